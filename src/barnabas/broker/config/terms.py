"""Short names for definitions of settings."""

from __future__ import annotations

import re
from typing import Final

from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    ConfigError,
    Importance,
    LambdaValidator,
    NonEmptyString,
    NonNull,
    Range,
    Type,
    ValidList,
    ValidString,
)

BOOLEAN: Final = Type.BOOLEAN
STRING: Final = Type.STRING
SHORT: Final = Type.SHORT
INT: Final = Type.INT
LONG: Final = Type.LONG
DOUBLE: Final = Type.DOUBLE
LIST: Final = Type.LIST
CLASS: Final = Type.CLASS
PASSWORD: Final = Type.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

MAX_INT: Final = 2**31 - 1
"""Kafka's value for "no limit" in 32-bit settings."""
MAX_LONG: Final = 2**63 - 1
"""Kafka's value for "no limit" in 64-bit settings."""

NON_NULL: Final = NonNull()
NON_EMPTY: Final = NonEmptyString()

at_least: Final = Range.at_least
between: Final = Range.between
one_of: Final = ValidString.of
one_of_in_any_case: Final = CaseInsensitiveValidString.of


def _check_patterns(name: str, value: object) -> None:
    assert isinstance(value, tuple)
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError.invalid(name, pattern, f"not a regular expression: {error}") from None


PATTERNS: Final = LambdaValidator(_check_patterns, "regular expressions, separated by commas")
"""Validates a list of regular expressions."""


def some_of(*allowed: str, empty: bool = True) -> ValidList:
    """Validates a list of distinct values, all of them allowed ones."""
    return ValidList.of(*allowed, empty_allowed=empty)


def distinct(*, empty: bool, null: bool) -> ValidList:
    """Validates a list of distinct values."""
    return ValidList.any_non_duplicate_values(empty_allowed=empty, null_allowed=null)
