"""How things are timed: interleaved rounds, medians, ratios.

Machines are noisy and slow down over a run, so contenders take turns: one round of each, then the next round. What is
reported is the median of the rounds and the ratio of medians; absolute figures are there for orientation only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One contender of one case. ``target`` is the ratio to ``against`` that is to be reached."""

    case: str
    contender: str
    rate: float
    unit: str
    ratio: float | None = None
    against: str = ""
    target: float | None = None

    @property
    def reached(self) -> bool | None:
        return None if self.target is None or self.ratio is None else self.ratio >= self.target


def rates(contenders: dict[str, Callable[[], int]], rounds: int = 7) -> dict[str, float]:
    """Items per second, the median over the rounds; each contender returns how many items it handled."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for name, work in contenders.items():  # warm-up: compile codecs, fill caches
        work()
        seen[name].clear()
    for _ in range(rounds):
        for name, work in contenders.items():
            started = time.perf_counter()
            items = work()
            seen[name].append(items / (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in seen.items()}


def compare(case: str, unit: str, measured: dict[str, float], ours: str, targets: dict[str, float]) -> list[Row]:
    """Rows for a case: ours against each peer that has a target, then the peers."""
    rows = [
        Row(case, ours, measured[ours], unit, measured[ours] / measured[peer], peer, target)
        for peer, target in targets.items()
    ]
    rows += [Row(case, name, rate, unit) for name, rate in measured.items() if name != ours or not targets]
    return rows


def print_rows(rows: Sequence[Row]) -> None:
    width = max(len(row.contender) for row in rows)
    case = ""
    for row in rows:
        if row.case != case:
            case = row.case
            print(f"\n{case}")
        line = f"  {row.contender:<{width}}  {row.rate:>14,.0f} {row.unit}"
        if row.ratio is not None:
            line += f"   {row.ratio:5.2f}x {row.against}"
        if row.target is not None:
            line += f"   target {row.target:g}x: {'reached' if row.reached else 'NOT REACHED'}"
        print(line)
