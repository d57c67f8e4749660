"""Formats numbers for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
NONE: Final = "-"


def number(value: float | None) -> str:
    """
    >>> number(1234567.0), number(12.345), number(0.0123), number(0), number(None)
    ('1,234,567', '12.3', '0.012', '0', '-')
    """
    if value is None or math.isnan(value):
        return NONE
    if value == 0 or abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}" if abs(value) < 1 else f"{value:.2f}"


def size(value: float | None) -> str:
    """Formats bytes in powers of 1000, as limits are set.

    >>> size(999), size(1_500_000), size(None)
    ('999 B', '1.50 MB', '-')
    """
    if value is None:
        return NONE
    power = 0
    while abs(value) >= 999.5 and power < len(_SIZES) - 1:
        value /= 1_000
        power += 1
    return (
        f"{value:.0f} B"
        if power == 0
        else f"{value:.3g} {_SIZES[power]}"
        if value >= 100
        else f"{value:.2f} {_SIZES[power]}"
    )


def short_size(value: float) -> str:
    """Formats bytes for an axis, with as few digits as needed.

    >>> short_size(0), short_size(2_000_000), short_size(2_500_000)
    ('0', '2 MB', '2.5 MB')
    """
    power = 0
    while abs(value) >= 1_000 and power < len(_SIZES) - 1:
        value /= 1_000
        power += 1
    return f"{value:g} {_SIZES[power]}" if value else "0"


def duration(milliseconds: float | None) -> str:
    """
    >>> duration(0), duration(0.42), duration(12.34), duration(4_210), duration(754_000)
    ('0', '0.42 ms', '12.3 ms', '4.21 s', '12 min 34 s')
    """
    if milliseconds is None or math.isnan(milliseconds):
        return NONE
    if milliseconds == 0:
        return "0"
    if milliseconds < 1_000:
        return f"{number(milliseconds)} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def percent(part: float | None) -> str:
    """
    >>> percent(0.256), percent(0.0042), percent(0)
    ('26 %', '0.42 %', '0 %')
    """
    if part is None or math.isnan(part):
        return NONE
    return f"{part * 100:.0f} %" if part == 0 or part >= 0.0995 else f"{part * 100:.2g} %"


def rate(quota: str, value: float | None) -> str:
    """Formats the usage of a quota with its unit.

    >>> rate("producer_byte_rate", 800_000.0), rate("request_percentage", 12.0)
    ('800 kB/s', '12 % of a thread')
    """
    if value is None:
        return NONE
    if quota.endswith("byte_rate"):
        return f"{size(value)}/s"
    return f"{number(value)} % of a thread" if quota == "request_percentage" else f"{number(value)}/s"


def moment(time_us: int) -> str:
    """
    >>> moment(1_794_754_800_000_000)
    '2026-11-15 15:00:00 UTC'
    """
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
