"""How long a run may take, and how long it is expected to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

LEAST_ROUNDS = 2
HURRY_PART = 0.85
ROUND_S = 11.0
QUICK_ROUND_S = 7.0
"""A round on both brokers, for a case that no run has timed yet."""
FIXED_S = 60.0
"""What there is besides cases: the brokers' own starts, and the warm-up."""
START_ROUND_S = 12.0


@dataclass(frozen=True, slots=True)
class Timing:
    """What a case took, with its preparation."""

    seconds: float
    rounds: int


class Budget:
    """When most of the time is gone, cases that are left do with fewer rounds; when all of it is, they are left out."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._started = now()
        self._seconds = seconds

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._started

    @property
    def is_over(self) -> bool:
        return self.elapsed_s >= self._seconds

    def allows(self, round_number: int) -> bool:
        return round_number < LEAST_ROUNDS or self.elapsed_s < self._seconds * HURRY_PART


def estimate(
    rounds: Iterable[tuple[str, int]], known: Mapping[str, Timing], start_rounds: int, round_s: float
) -> float:
    """Seconds: of each case (its key and its rounds) what the last run says, else a guess."""
    total = start_rounds * START_ROUND_S
    cases = list(rounds)
    for key, count in cases:
        timing = known.get(key)
        total += count * (timing.seconds / timing.rounds if timing and timing.rounds else round_s)
    return total + (FIXED_S if cases else 0.0)


def clock_text(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
