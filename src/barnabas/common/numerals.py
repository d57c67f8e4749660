"""Parses numbers as Java does, for files and settings that Kafka reads too.

Python's ``int`` and ``float`` accept more than Java's parsers: ``1_000``, `` 12 ``, ``inf``. A setting that works here
must not stop Apache Kafka from starting with the same file, so the stricter rules apply.
"""

from __future__ import annotations

import re
from typing import Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|Infinity)[fFdD]?"


def parse_integer(text: str, bits: int = 32) -> int:
    """Parses a signed decimal number of this number of bits; raises ``ValueError``.

    >>> parse_integer("-7"), parse_integer("32767", bits=16)
    (-7, 32767)
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{shortened(text)!r} is not a whole number")
    # Leading zeros are ignored, and 20 digits never fit: so int() never gets megabytes of text.
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) < 20:
        value = int(digits or "0")
        if text[0] == "-":
            value = -value
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    raise ValueError(f"{shortened(text)} does not fit into {bits} bits")


def parse_double(text: str) -> float:
    """Parses a decimal fraction with an optional exponent; ``NaN`` and ``Infinity`` must be written exactly so.

    >>> parse_double("0.5"), parse_double("1e3"), parse_double("-Infinity")
    (0.5, 1000.0, -inf)
    """
    if re.fullmatch(_DECIMAL, text) is None:
        raise ValueError(f"{shortened(text)!r} is not a decimal number")
    return float(text.rstrip("fFdD"))


def shortened(text: str, limit: int = 80) -> str:
    """Truncates a text from outside for an error message."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
