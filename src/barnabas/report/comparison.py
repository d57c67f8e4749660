"""Compares a report with an earlier one, whose numbers ``barnabas report --json`` has printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.report.table_reader import ReportError
from barnabas.report.units import NONE, percent

PRODUCE: Final = "Produce"
NEEDED: Final = ("start_us", "end_us", "tenants", "latency")


@dataclass(frozen=True, slots=True)
class Amounts:
    """What one tenant did in one report, per second, so that reports of different length can be compared."""

    bytes_per_s: float = 0.0
    """Produced and fetched."""
    throttle_ms_per_s: float = 0.0
    produce_p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class TenantChange:
    """A tenant in the earlier report and in this one; None where it does not occur."""

    name: str
    before: Amounts | None
    now: Amounts | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The data of the section that compares two reports."""

    start_us: int
    end_us: int
    """The period of the earlier report."""
    tenants: Sequence[TenantChange]
    """Those that moved records in one of the reports; the largest first."""


def read_earlier(file: Path) -> dict[str, Any]:
    """Reads the numbers of an earlier report; raises `ReportError` if the file has something else."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"the earlier report {file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ReportError(f"the earlier report {file} is not JSON: {error}; {_HOW}") from None
    missing = [name for name in NEEDED if not isinstance(document, dict) or name not in document]
    if missing:
        raise ReportError(f"the earlier report {file} has no {' and no '.join(missing)}; {_HOW}")
    found: dict[str, Any] = document
    return found


_HOW: Final = "expected the output of barnabas report --json"


def compare(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Comparison | None:
    """Compares the numbers of two reports; returns None if one of them has no requests."""
    if earlier["start_us"] is None or now["start_us"] is None:
        return None
    try:
        before, after = _amounts(earlier), _amounts(now)
    except (KeyError, TypeError) as error:
        raise ReportError(f"the earlier report is incomplete: {error!r}; {_HOW}") from None
    changes = [TenantChange(name, before.get(name), after.get(name)) for name in {**after, **before}]

    def size(one: TenantChange) -> float:
        return max((found.bytes_per_s for found in (one.before, one.now) if found), default=0.0)

    moved = [one for one in changes if size(one) > 0]
    return Comparison(
        earlier["start_us"], earlier["end_us"], sorted(moved, key=lambda one: (-size(one), one.name))
    )  # fmt: skip


def _amounts(report: Mapping[str, Any]) -> dict[str, Amounts]:
    seconds = max((report["end_us"] - report["start_us"]) / 1e6, 1.0)
    p99 = {row["tenant"]: row["p99_ms"] for row in report["latency"] or () if row["api"] == PRODUCE}
    return {
        one["tenant"]: Amounts(
            (one["produced_bytes"] + one["fetched_bytes"]) / seconds,
            one["throttle_ms"] / seconds,
            p99.get(one["tenant"]),
        )
        for one in report["tenants"]
    }


def change(before: float | None, now: float | None) -> float | None:
    """Returns the relative change; None if there is nothing to relate it to.

    >>> change(100.0, 150.0), change(0.0, 5.0), change(None, 5.0)
    (0.5, None, None)
    """
    return None if not before or now is None else now / before - 1


def change_text(before: float | None, now: float | None) -> str:
    """Formats a change.

    >>> change_text(100.0, 150.0), change_text(100.0, 50.0), change_text(100.0, 1_000.0), change_text(0.0, 5.0)
    ('+50 %', '-50 %', '10 times', 'new')
    >>> change_text(None, None), change_text(0.0, 0.0), change_text(7.0, 7.0)
    ('-', '-', 'same')
    """
    if not before and not now:
        return NONE
    if not before:
        return "new"
    if now is None:
        return "gone"
    part = now / before - 1
    if abs(part) < 0.005:
        return "same"
    if part >= 4:
        return f"{now / before:.0f} times"
    return f"{'+' if part > 0 else '-'}{percent(abs(part))}"
