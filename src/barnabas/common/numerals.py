"""Reads numbers the way Java does, for files and settings that Kafka reads too.

Python's ``int`` and ``float`` take more than Java's parsers do: ``1_000``, `` 12 ``, ``inf``. A setting that works here
but stops Apache Kafka from starting with the same file would be a trap, so the stricter reading counts.
"""

from __future__ import annotations

import re
from typing import Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|Infinity)[fFdD]?"


def parse_integer(text: str, bits: int = 32) -> int:
    """A signed decimal number that fits into so many bits; a ``ValueError`` says what else it is.

    >>> parse_integer("-7"), parse_integer("32767", bits=16)
    (-7, 32767)
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{shortened(text)!r} is not a whole number")
    # Zeros in front do not count, and a number of 20 digits fits nowhere: so int() never gets a text of megabytes.
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) < 20:
        value = int(digits or "0")
        if text[0] == "-":
            value = -value
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    raise ValueError(f"{shortened(text)} does not fit into {bits} bits")


def parse_double(text: str) -> float:
    """A decimal fraction, with an exponent or not; ``NaN`` and ``Infinity`` are written like that and no other way.

    >>> parse_double("0.5"), parse_double("1e3"), parse_double("-Infinity")
    (0.5, 1000.0, -inf)
    """
    if re.fullmatch(_DECIMAL, text) is None:
        raise ValueError(f"{shortened(text)!r} is not a decimal number")
    return float(text.rstrip("fFdD"))


def shortened(text: str, limit: int = 80) -> str:
    """A text that came from outside, cut to what fits into an error message."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
