"""Parses times and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from barnabas.cli.console import UsageError

_ISO: Final = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.IGNORECASE)
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PARTS: Final = {"weeks": "w", "days": "d", "hours": "h", "minutes": "m", "seconds": "s"}


def parse_duration_ms(text: str) -> int:
    """Parses ``90m``, ``1h30m``, or ISO 8601's ``PT1H30M``; returns milliseconds.

    >>> parse_duration_ms("90m"), parse_duration_ms("1h30m"), parse_duration_ms("PT1H30M"), parse_duration_ms("P1D")
    (5400000, 5400000, 5400000, 86400000)
    """
    iso = _ISO.fullmatch(text.strip())
    if iso is not None and any(iso.groups()):
        return int(sum(float(iso[part] or 0) * _MS[unit] for part, unit in _PARTS.items()))
    pieces = _SHORT.findall(text)
    if not pieces or _SHORT.sub("", text).strip():
        raise UsageError(f"a duration must have a form such as 90m, 1h30m, 7d or PT1H30M: {text!r}")
    return int(sum(float(amount) * _MS[unit.lower()] for amount, unit in pieces))


def parse_time_ms(text: str) -> int:
    """Parses a date with an optional time, or a number of milliseconds since 1970; returns milliseconds.

    A time without a zone is in UTC, as in Kafka's tools.

    >>> parse_time_ms("1970-01-02"), parse_time_ms("1970-01-01T01:00:00.5+01:00"), parse_time_ms("1500")
    (86400000, 500, 1500)
    """
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"a time must be like 2026-03-01T12:00:00, or milliseconds since 1970: {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)
