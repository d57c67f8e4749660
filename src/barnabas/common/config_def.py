"""Definitions of settings: their names, types, defaults and bounds, and how a configuration becomes typed values.

Each part of the system states its own settings once, as a `ConfigDef`, under Kafka's names and with Kafka's defaults.
From that come the parsing of a properties file, the error message for a wrong value, and what ``DescribeConfigs``
tells about a setting.

    LISTENER = ConfigDef()
    LISTENER.define("port", Type.INT, 9092, Range.between(0, 65535), Importance.HIGH, "Where to listen; 0 for any.")
    LISTENER.define("host", Type.STRING, None, None, Importance.LOW, "The address; all of the machine's if not set.")

    values = LISTENER.parse({"port": "9093", "my.plugin.colour": "red"})
    values.get_int("port")              # 9093
    values.get_optional_str("host")     # None: the default
    values.unknown                      # {"my.plugin.colour": "red"}

Names nobody defined are not an error: they may be meant for a plug-in, so they are kept. A parsed configuration does
not change any more. It is what a frozen dataclass of the part concerned is made from, and goes no further than there.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from barnabas.common.config_validators import (
    CaseInsensitiveValidString,
    CompositeValidator,
    ConfigError,
    LambdaValidator,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    Validator,
    ValidList,
    ValidString,
)
from barnabas.common.dataclass import dataclass, field
from barnabas.common.numerals import parse_double, parse_integer

__all__ = [
    "NO_DEFAULT",
    "CaseInsensitiveValidString",
    "CompositeValidator",
    "ConfigDef",
    "ConfigError",
    "ConfigKey",
    "ConfigValue",
    "ConfigValues",
    "Importance",
    "LambdaValidator",
    "ListSize",
    "NonEmptyString",
    "NonEmptyStringWithoutControlChars",
    "NonNull",
    "Password",
    "Range",
    "Type",
    "ValidList",
    "ValidString",
    "Validator",
    "convert_to_string",
    "parse_type",
]

logger = logging.getLogger(__name__)
T = TypeVar("T")

# What Java's trim() takes off both ends: everything up to the space.
_BLANKS: Final = bytes(range(0x21)).decode()


class Type(Enum):
    """The type of a setting. The values are the codes that ``DescribeConfigs`` uses on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    """Texts with commas between them; a tuple once parsed."""
    CLASS = 8
    """A Python class by its dotted name; the class itself once parsed."""
    PASSWORD = 9
    """A text that is never shown."""

    @property
    def is_sensitive(self) -> bool:
        return self is Type.PASSWORD


_INTEGER_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Importance(Enum):
    """How likely somebody needs to know of a setting; documentation is sorted by it."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class _NoDefault(Enum):
    NO_DEFAULT = "no default"


NO_DEFAULT: Final = _NoDefault.NO_DEFAULT
"""The default of a setting that must be given. None is different: it is a default, which says "not set"."""


class Password:
    """A secret that does not end up in a log by accident: only `value` gives it away."""

    __slots__ = ("value",)

    HIDDEN: Final = "[hidden]"

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return self.HIDDEN


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: what it is called, what it can be, what it is if nobody says."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    documentation: str = ""
    internal: bool = False
    """Works like any other, but is not shown to anybody: for tests and for the system's own use."""

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT

    @property
    def valid_values(self) -> str:
        return "" if self.validator is None else str(self.validator)


@dataclass(slots=True)
class ConfigValue:
    """What `ConfigDef.validate` found out about one setting: its value, or everything that is wrong with it."""

    name: str
    value: Any = None
    errors: list[str] = field(default_factory=list)


class ConfigValues(Mapping[str, Any]):
    """A parsed configuration: a value of the right type for every defined setting. It cannot be changed.

    The getters are for the type checker's sake. A getter for another type than the setting was defined with is a
    mistake in the program, and so is one without ``optional`` for a setting that may be None: both raise `TypeError`.
    """

    __slots__ = ("_values", "originals", "unknown")

    def __init__(
        self, values: Mapping[str, Any], unknown: Mapping[str, object], originals: Mapping[str, object]
    ) -> None:
        self._values = MappingProxyType(dict(values))
        self.unknown: Mapping[str, object] = MappingProxyType(dict(unknown))
        """Settings that nobody has defined, as they were given."""
        self.originals: Mapping[str, object] = MappingProxyType(dict(originals))
        """Everything as it was given, before any parsing; what is not in here has its default."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(f'{name}={value!r}' for name, value in sorted(self._values.items()))})"

    def is_set(self, name: str) -> bool:
        return name in self.originals

    def get_bool(self, name: str) -> bool:
        return self._of(name, bool)

    def get_str(self, name: str) -> str:
        return self._of(name, str)

    def get_int(self, name: str) -> int:
        """The value of a SHORT, an INT or a LONG: they are all int here."""
        return self._of(name, int)

    def get_float(self, name: str) -> float:
        return self._of(name, float)

    def get_list(self, name: str) -> tuple[str, ...]:
        return self._of(name, tuple)

    def get_class(self, name: str) -> type:
        return self._of(name, type)

    def get_password(self, name: str) -> Password:
        return self._of(name, Password)

    def get_optional_str(self, name: str) -> str | None:
        return None if self._values[name] is None else self._of(name, str)

    def get_optional_int(self, name: str) -> int | None:
        return None if self._values[name] is None else self._of(name, int)

    def get_optional_list(self, name: str) -> tuple[str, ...] | None:
        return None if self._values[name] is None else self._of(name, tuple)

    def get_optional_class(self, name: str) -> type | None:
        return None if self._values[name] is None else self._of(name, type)

    def get_optional_password(self, name: str) -> Password | None:
        return None if self._values[name] is None else self._of(name, Password)

    def _of(self, name: str, kind: type[T]) -> T:
        value: object = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{name} must be a {kind.__name__}: {value!r}")
        return value


class ConfigDef:
    """A set of settings. It grows while a module is loaded and stays as it is from then on."""

    __slots__ = ("_keys",)

    def __init__(self, *parts: ConfigDef) -> None:
        """A definition of its own, or one that starts with what others define."""
        self._keys: dict[str, ConfigKey] = {}
        for part in parts:
            for key in part.keys.values():
                self._add(key)

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The settings by name, in the order in which they were defined."""
        return MappingProxyType(self._keys)

    def define(
        self,
        name: str,
        kind: Type,
        default: object = NO_DEFAULT,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        documentation: str = "",
        *,
        internal: bool = False,
    ) -> Self:
        """Adds a setting. Its default is parsed and checked like any value, so a wrong one shows at once."""
        if default is not NO_DEFAULT:
            default = parse_type(name, default, kind)
            if validator is not None:
                validator.ensure_valid(name, default)
        self._add(ConfigKey(name, kind, default, validator, importance, documentation, internal))
        return self

    def _add(self, key: ConfigKey) -> None:
        if key.name in self._keys:
            raise ValueError(f"{key.name} is defined twice")
        self._keys[key.name] = key

    def default_values(self) -> dict[str, Any]:
        return {key.name: key.default for key in self._keys.values() if key.has_default}

    def parse(self, properties: Mapping[str, Any]) -> ConfigValues:
        """Typed values for all settings, from texts or from values that have their type already.

        Raises `ConfigError` for the first setting that is missing or wrong.
        """
        values = {
            key.name: self._parse_value(key, properties.get(key.name), is_set=key.name in properties)
            for key in self._keys.values()
        }
        unknown = {name: value for name, value in properties.items() if name not in self._keys}
        return ConfigValues(values, unknown, properties)

    def parse_value(self, name: str, value: object) -> Any:
        """One value of a defined setting: parsed and checked."""
        return self._parse_value(self._keys[name], value, is_set=True)

    def _parse_value(self, key: ConfigKey, value: object, *, is_set: bool) -> Any:
        if is_set:
            parsed = parse_type(key.name, value, key.type)
        elif key.has_default:
            return key.default  # checked when it was defined
        else:
            raise ConfigError(f"Configuration {key.name} is missing and has no default.", name=key.name)
        if isinstance(key.validator, ValidList) and parsed is not None:
            distinct = tuple(dict.fromkeys(parsed))
            if len(distinct) != len(parsed):
                logger.warning("%s has duplicate entries: using %s instead of %s", key.name, distinct, parsed)
                parsed = distinct
        if key.validator is not None:
            key.validator.ensure_valid(key.name, parsed)
        return parsed

    def validate(self, properties: Mapping[str, Any]) -> list[ConfigValue]:
        """The same without stopping at the first error: one entry for each setting, in the order of definition."""
        results = []
        for key in self._keys.values():
            result = ConfigValue(key.name)
            try:
                result.value = self._parse_value(key, properties.get(key.name), is_set=key.name in properties)
            except ConfigError as error:
                result.errors.append(str(error))
            results.append(result)
        return results


def parse_type(name: str, value: object, kind: Type) -> Any:
    """The value of a setting in its type: out of a text, or as it is if it has the type already. None stays None."""
    if value is None:
        return None
    text = value.strip(_BLANKS) if isinstance(value, str) else None
    match kind:
        case Type.BOOLEAN:
            if isinstance(value, bool):
                return value
            if text is not None and text.lower() in {"true", "false"}:
                return text.lower() == "true"
            raise ConfigError.invalid(name, value, "it must be true or false")
        case Type.STRING:
            if text is not None:
                return text
            raise _wrong_type(name, value, "a string")
        case Type.PASSWORD:
            if isinstance(value, Password):
                return value
            if text is not None:
                return Password(text)
            raise _wrong_type(name, Password.HIDDEN, "a string", type(value))
        case Type.SHORT | Type.INT | Type.LONG:
            return _parse_integer(name, value, text, _INTEGER_BITS[kind])
        case Type.DOUBLE:
            return _parse_double(name, value, text)
        case Type.LIST:
            if text is not None:
                return tuple(item.strip() for item in text.split(",")) if text else ()
            if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
                return tuple(value)
            raise _wrong_type(name, value, "a comma-separated list")
        case Type.CLASS:
            if isinstance(value, type):
                return value
            if text is not None:
                return _load_class(name, text)
            raise _wrong_type(name, value, "a class or the name of a class")


def _parse_integer(name: str, value: object, text: str | None, bits: int) -> int:
    if text is not None:
        try:
            return parse_integer(text, bits)
        except ValueError:
            raise ConfigError.invalid(name, value, f"it must be an integer of at most {bits} bits") from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong_type(name, value, f"an integer of at most {bits} bits")
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ConfigError.invalid(name, value, f"it must be an integer of at most {bits} bits")
    return value


def _parse_double(name: str, value: object, text: str | None) -> float:
    try:
        if text is not None:
            return parse_double(text)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        raise ConfigError.invalid(name, value, "it must be a number") from None
    raise _wrong_type(name, value, "a number")


def _wrong_type(name: str, value: object, wanted: str, kind: type[Any] | None = None) -> ConfigError:
    return ConfigError.invalid(name, value, f"it must be {wanted}, not of type {(kind or type(value)).__name__}")


def _load_class(name: str, text: str) -> type[Any]:
    """The class of a dotted name; the longest part of it that is a module gets imported."""
    parts = text.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigError.invalid(name, text, "it must be the dotted name of a class")
    for end in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:end])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name + ".").startswith(error.name + "."):
                continue  # there is no such module; a shorter name may be one, and the rest classes inside it
            raise ConfigError.invalid(name, text, f"module {module_name} needs {error.name}") from error
        except Exception as error:
            raise ConfigError.invalid(name, text, f"module {module_name} cannot be imported ({error})") from error
        for part in parts[end:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
        break
    raise ConfigError.invalid(name, text, "the class does not exist")


def convert_to_string(value: object, kind: Type | None = None) -> str | None:
    """The text form of a parsed value, which parses to the same value again; a password stays hidden."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple() | list():
            return ",".join(str(item) for item in value)
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case _:
            return Password.HIDDEN if kind is Type.PASSWORD else str(value)
