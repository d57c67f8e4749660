"""Formats floating-point numbers as Java does."""

from __future__ import annotations

import math
from typing import Final

_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def java_double(value: float) -> str:
    """Returns Java's text of a number, so that both brokers describe it the same way.

    >>> java_double(0.5), java_double(1e10), java_double(1.7976931348623157e308), java_double(0.0001)
    ('0.5', '1.0E10', '1.7976931348623157E308', '1.0E-4')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return _NAMES.get(str(value), str(value))
    # The fewest digits that round-trip; 16 after the point always do.
    texts = (f"{value:.{digits}e}" for digits in range(1, 17))
    mantissa, _, exponent = next(text for text in texts if float(text) == value).partition("e")
    return f"{mantissa}E{int(exponent)}"
