"""The words that definitions of settings are written in, short enough for one line each."""

from __future__ import annotations

from typing import Final

from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    Importance,
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
"""Kafka's way to write "no limit" in a setting of 32 bits."""
MAX_LONG: Final = 2**63 - 1
"""The same for 64 bits."""

NON_NULL: Final = NonNull()
NON_EMPTY: Final = NonEmptyString()

at_least: Final = Range.at_least
between: Final = Range.between
one_of: Final = ValidString.of
one_of_in_any_case: Final = CaseInsensitiveValidString.of


def some_of(*allowed: str, empty: bool = True) -> ValidList:
    """A list of some of these, without repeats."""
    return ValidList.of(*allowed, empty_allowed=empty)


def distinct(*, empty: bool, null: bool) -> ValidList:
    """A list of anything, without repeats."""
    return ValidList.any_non_duplicate_values(empty_allowed=empty, null_allowed=null)
