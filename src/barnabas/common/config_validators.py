"""Validators: restrict the values of a setting beyond its type.

A validator has one method, which returns nothing or raises, and a string that describes the allowed values for
documentation and ``DescribeConfigs``.

    define("segment.ms", Type.LONG, 604800000, Range.at_least(1), ...)
    define("message.timestamp.type", Type.STRING, "CreateTime", ValidString.of("CreateTime", "LogAppendTime"), ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.numerals import shortened


class ConfigError(InvalidConfigurationError):
    """A setting is missing or has an invalid value.

    `name` is the setting. The message always repeats it, because it is often the only thing that the author of the
    configuration sees.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name

    @classmethod
    def invalid(cls, name: str, value: object, reason: str) -> ConfigError:
        return cls(f"Configuration {name} cannot be {_shown(value)}: {reason}.", name=name)


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{shortened(', '.join(str(item) for item in value))}]"
    return shortened(str(value)) or "an empty string"


class Validator(Protocol):
    """Validates a value that already has its type."""

    def ensure_valid(self, name: str, value: object) -> None:
        """Raises `ConfigError` if the setting `name` cannot have this value."""
        ...


class Range:
    """A number between two bounds, both inclusive; None means no bound."""

    __slots__ = ("highest", "lowest")

    def __init__(self, lowest: float | None = None, highest: float | None = None) -> None:
        self.lowest = lowest
        self.highest = highest

    @classmethod
    def at_least(cls, lowest: float) -> Range:
        return cls(lowest)

    @classmethod
    def between(cls, lowest: float, highest: float) -> Range:
        return cls(lowest, highest)

    def ensure_valid(self, name: str, value: object) -> None:
        if value is None:
            raise ConfigError.invalid(name, value, "a value is required")
        assert isinstance(value, (int, float))
        if isinstance(value, float) and math.isnan(value):
            raise ConfigError.invalid(name, value, "it must be a number")
        if self.lowest is not None and value < self.lowest:
            raise ConfigError.invalid(name, value, f"it must be at least {self.lowest}")
        if self.highest is not None and value > self.highest:
            raise ConfigError.invalid(name, value, f"it must be at most {self.highest}")

    def __str__(self) -> str:
        ends = [str(end) for end in (self.lowest, "...", self.highest) if end is not None]
        return f"[{','.join(ends)}]"


class ValidString:
    """One of a few strings, case-sensitive."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)

    @classmethod
    def of(cls, *allowed: str) -> ValidString:
        return cls(allowed)

    def ensure_valid(self, name: str, value: object) -> None:
        if value not in self.allowed:
            raise ConfigError.invalid(name, value, f"it must be one of {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.allowed)}]"


class CaseInsensitiveValidString:
    """One of a few strings, case-insensitive."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(text.upper() for text in allowed)

    @classmethod
    def of(cls, *allowed: str) -> CaseInsensitiveValidString:
        return cls(allowed)

    def ensure_valid(self, name: str, value: object) -> None:
        if not isinstance(value, str) or value.upper() not in self.allowed:
            reason = f"it must be one of {', '.join(self.allowed)}, in upper or lower case"
            raise ConfigError.invalid(name, value, reason)

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.allowed)}]"


class ValidList:
    """A list without empty and duplicate entries, of any strings or of a few allowed ones.

    Duplicates are tolerated: `ConfigDef` removes them, logs a warning, and then calls the validator.
    """

    __slots__ = ("allowed", "empty_allowed", "null_allowed")

    def __init__(self, allowed: Sequence[str], *, empty_allowed: bool, null_allowed: bool) -> None:
        self.allowed = tuple(allowed)
        self.empty_allowed = empty_allowed
        self.null_allowed = null_allowed

    @classmethod
    def of(cls, *allowed: str, empty_allowed: bool = True) -> ValidList:
        if not allowed and not empty_allowed:
            raise ValueError("a list that must not be empty needs allowed values")
        return cls(allowed, empty_allowed=empty_allowed, null_allowed=False)

    @classmethod
    def any_non_duplicate_values(cls, *, empty_allowed: bool, null_allowed: bool) -> ValidList:
        return cls((), empty_allowed=empty_allowed, null_allowed=null_allowed)

    def ensure_valid(self, name: str, value: object) -> None:
        if value is None:
            if not self.null_allowed:
                raise ConfigError.invalid(name, value, "a value is required")
            return
        assert isinstance(value, tuple)
        if not value and not self.empty_allowed:
            wanted = f"of {', '.join(self.allowed)}" if self.allowed else "entry"
            raise ConfigError.invalid(name, value, f"it must have at least one {wanted}")
        if len(set(value)) != len(value):
            raise ConfigError.invalid(name, value, "it has a duplicate entry")
        for item in value:
            if not item:
                raise ConfigError.invalid(name, value, "it has an empty entry")
            if self.allowed and item not in self.allowed:
                reason = f"{shortened(item)} is not one of {', '.join(self.allowed)}"
                raise ConfigError.invalid(name, value, reason)

    def __str__(self) -> str:
        return f"[{', '.join(self.allowed)}]" if self.allowed else ""


class ListSize:
    """A list with a maximum number of entries."""

    __slots__ = ("highest",)

    def __init__(self, highest: int) -> None:
        self.highest = highest

    def ensure_valid(self, name: str, value: object) -> None:
        assert isinstance(value, tuple)
        if len(value) > self.highest:
            raise ConfigError.invalid(name, value, f"it has {len(value)} entries, at most {self.highest} are allowed")

    def __str__(self) -> str:
        return f"at most {self.highest} entries"


class NonEmptyString:
    """A string of at least one character, or None: other validators decide about missing values."""

    __slots__ = ()

    def ensure_valid(self, name: str, value: object) -> None:
        if value == "":
            raise ConfigError.invalid(name, value, "it must not be empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonEmptyStringWithoutControlChars(NonEmptyString):
    """The same, without control characters, for names that are shown on terminals."""

    __slots__ = ()

    def ensure_valid(self, name: str, value: object) -> None:
        super().ensure_valid(name, value)
        if value is None:
            return
        found = [ord(c) for c in str(value) if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]
        if found:
            codes = ", ".join(map(str, found[:10]))
            raise ConfigError.invalid(name, ascii(value), f"it has control characters (codes {codes})")

    def __str__(self) -> str:
        return "non-empty string without ISO control characters"


class NonNull:
    """Any value but None."""

    __slots__ = ()

    def ensure_valid(self, name: str, value: object) -> None:
        if value is None:
            raise ConfigError.invalid(name, value, "a value is required")

    def __str__(self) -> str:
        return "non-null"


class CompositeValidator:
    """Applies several validators in order."""

    __slots__ = ("validators",)

    def __init__(self, *validators: Validator) -> None:
        self.validators = validators

    def ensure_valid(self, name: str, value: object) -> None:
        for validator in self.validators:
            validator.ensure_valid(name, value)

    def __str__(self) -> str:
        return ", ".join(str(validator) for validator in self.validators)


class LambdaValidator:
    """A validator from a function and a description."""

    __slots__ = ("_check", "_description")

    def __init__(self, check: Callable[[str, object], None], description: str) -> None:
        self._check = check
        self._description = description

    def ensure_valid(self, name: str, value: object) -> None:
        self._check(name, value)

    def __str__(self) -> str:
        return self._description
