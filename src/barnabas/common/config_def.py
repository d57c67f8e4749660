"""Definitions of settings: names, types, defaults and bounds, and the parsing of a configuration.

Each part of the system defines its own settings once, as a `ConfigDef`, with Kafka's names and defaults. The definition
is used to parse properties, to report invalid values, and to describe settings for ``DescribeConfigs``.

    LISTENER = ConfigDef()
    LISTENER.define("port", Type.INT, 9092, Range.between(0, 65535), Importance.HIGH, "The port; 0 for any.")
    LISTENER.define("host", Type.STRING, None, None, Importance.LOW, "The address; by default all addresses.")

    values = LISTENER.parse({"port": "9093", "my.plugin.colour": "red"})
    values.get_int("port")              # 9093
    values.get_optional_str("host")     # None: the default
    values.unknown                      # {"my.plugin.colour": "red"}

Unknown names are not an error: they may be meant for a plug-in, so they are kept. A parsed configuration is immutable.
A part of the system creates its own frozen dataclass from it, and passes only that on.
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

# Java's trim() removes these from both ends: everything up to the space.
_BLANKS: Final = bytes(range(0x21)).decode()


class Type(Enum):
    """The type of a setting. The values are the codes in ``DescribeConfigs``."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    """Comma-separated strings; a tuple once parsed."""
    CLASS = 8
    """A Python class by its dotted name; the class itself once parsed."""
    PASSWORD = 9
    """A string that is never shown."""

    @property
    def is_sensitive(self) -> bool:
        return self is Type.PASSWORD


_INTEGER_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Importance(Enum):
    """The importance of a setting; documentation is sorted by it."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class _NoDefault(Enum):
    NO_DEFAULT = "no default"


NO_DEFAULT: Final = _NoDefault.NO_DEFAULT
"""The default of a required setting. None is different: it is a default, which means "not set"."""


class Password:
    """A secret that is not logged by accident: only `value` returns it."""

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
    """One setting: its name, its allowed values, and its default."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    documentation: str = ""
    internal: bool = False
    """Whether it is hidden from users: for tests and internal use."""

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT

    @property
    def valid_values(self) -> str:
        return "" if self.validator is None else str(self.validator)


@dataclass(slots=True)
class ConfigValue:
    """The result of `ConfigDef.validate` for one setting: its value, or all its errors."""

    name: str
    value: Any = None
    errors: list[str] = field(default_factory=list)


class ConfigValues(Mapping[str, Any]):
    """A parsed configuration: a typed value for every defined setting. Immutable.

    The getters are for the type checker. Using a getter of another type, or one without ``optional`` for a setting that
    may be None, is a bug in the program: both raise `TypeError`.
    """

    __slots__ = ("_values", "originals", "unknown")

    def __init__(
        self, values: Mapping[str, Any], unknown: Mapping[str, object], originals: Mapping[str, object]
    ) -> None:
        self._values = MappingProxyType(dict(values))
        self.unknown: Mapping[str, object] = MappingProxyType(dict(unknown))
        """Unknown settings, as they were given."""
        self.originals: Mapping[str, object] = MappingProxyType(dict(originals))
        """Everything as it was given, before parsing; other settings have their defaults."""

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
        """Returns the value of a SHORT, an INT or a LONG, which are all int here."""
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
    """A set of settings. It is built while a module is loaded and does not change afterwards."""

    __slots__ = ("_keys",)

    def __init__(self, *parts: ConfigDef) -> None:
        """Creates a definition, empty or with the settings of others."""
        self._keys: dict[str, ConfigKey] = {}
        for part in parts:
            for key in part.keys.values():
                self._add(key)

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The settings by name, in the order of definition."""
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
        """Adds a setting. Its default is parsed and validated like any value, so an invalid one fails at once."""
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
        """Returns typed values of all settings, from strings or from values that already have their type.

        Raises `ConfigError` for the first setting that is missing or wrong.
        """
        values = {
            key.name: self._parse_value(key, properties.get(key.name), is_set=key.name in properties)
            for key in self._keys.values()
        }
        unknown = {name: value for name, value in properties.items() if name not in self._keys}
        return ConfigValues(values, unknown, properties)

    def parse_value(self, name: str, value: object) -> Any:
        """Parses and validates one value of a defined setting."""
        return self._parse_value(self._keys[name], value, is_set=True)

    def _parse_value(self, key: ConfigKey, value: object, *, is_set: bool) -> Any:
        if is_set:
            parsed = parse_type(key.name, value, key.type)
        elif key.has_default:
            return key.default  # validated when it was defined
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
        """Validates without stopping at the first error: returns one entry per setting, in the order of definition."""
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
    """Converts a value to the type of a setting, unless it already has it. None stays None."""
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
    """Returns the class of a dotted name; imports the longest prefix that is a module."""
    parts = text.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigError.invalid(name, text, "it must be the dotted name of a class")
    for end in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:end])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name + ".").startswith(error.name + "."):
                continue  # not a module; a shorter prefix may be one, and the rest classes inside it
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
    """Returns the string form of a parsed value, which parses to the same value; a password stays hidden."""
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
