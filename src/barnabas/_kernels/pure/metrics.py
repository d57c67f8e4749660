"""The buckets of histograms and the counts of meters: the twin of `compiled.metrics`.

**Buckets.** Each power of two is divided into 128 equal steps, and a value goes to the nearest step. That is a floating
point number cut to 8 significant bits, so the step follows from the bits of the number without a search:

    1000 = 0.9765625 * 2**10    0.9765625 * 256 = 250    so 1000 is step 250 of 2**10, exactly
    1001 = 0.9775390625 * 2**10 0.977... * 256 = 250.25  the same step; 1001 is stored as 1000

The error is at most half a step, which is 1/256 of the value (0.39 %); whole numbers up to 256 are exact. Steps go from
2**-20 to 2**44. Smaller values, including zero and negative ones, count as zero; larger ones count as the largest step.

**Decay.** A value adds not 1 to its step but ``exp(alpha * t)``, where t is the time since the start in whole seconds.
Weights only grow, so older values shrink relative to new ones without being touched. Before the weights get too large
for a float, all are divided by the current one and t starts again. With alpha = 0.015 a value has half of its weight
after 46 seconds and 1 % of it after 5 minutes. With alpha = 0 nothing decays.

Count, sum, squares and extremes cover all values ever. The sums are of the distance from the first value (`origin`);
otherwise the spread of values that differ little would be lost in rounding errors.

**Locks.** Every method of a table is atomic. Here a lock ensures that; the compiled twin uses the per-object lock in
free-threaded Python, and with the interpreter lock it runs no Python code between its first change and its last.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable
from typing import TypeAlias

Totals: TypeAlias = tuple[int, float, float, float, float, float]
"""Over all values: count, first value (the origin), sum of (value - origin), sum of its squares, lowest, highest."""

STEPS = 128
"""Steps per power of two."""
LOWEST_EXPONENT = -20
OCTAVES = 64
MAX_COLUMNS = 32

RESCALE_EXPONENT = 64.0
NEGLIGIBLE = 1e-12

_SMALLEST = 2.0**LOWEST_EXPONENT
_FIRST = (LOWEST_EXPONENT + 1) * STEPS + STEPS
_LAST = OCTAVES * STEPS - 1
_ZERO = -1
_SECOND_NS = 1_000_000_000


class _Column:
    def __init__(self) -> None:
        self.count = 0
        self.origin = self.distance = self.squares = self.low = self.high = 0.0
        self.weights: dict[int, float] = {}


class BucketTable:
    """Columns of decaying buckets that are updated together, and so share the clock and the weight.

    Values are divided by `divisor` first, so that a caller with nanoseconds can record milliseconds without converting
    each value.
    """

    def __init__(self, columns: int, alpha: float, start_ns: int, divisor: float = 1.0) -> None:
        if not 1 <= columns <= MAX_COLUMNS:
            raise ValueError(f"a table of {columns} columns: from 1 to {MAX_COLUMNS} are possible")
        if not divisor > 0:
            raise ValueError(f"values divided by {divisor}")
        self._lock = threading.Lock()  # guards the columns and the times
        self._columns = [_Column() for _ in range(columns)]
        self._alpha = alpha
        self._divisor = divisor
        self._epoch_ns = start_ns
        self._tick_ns = start_ns
        self._weight = 1.0

    def add_row(self, values: tuple[float, ...], now_ns: int) -> None:
        """Adds one value to each column; adds none if any value is not finite."""
        if len(values) != len(self._columns):
            raise ValueError(f"{len(values)} values for {len(self._columns)} columns")
        self._add(self._columns, self._scaled(values), now_ns)

    def add_moments(
        self, first: int, second: int, third: int, fourth: int, fifth: int, aside: float, unscaled: float, now_ns: int
    ) -> None:
        """Adds the intervals between six moments, the last of which is now, to a table of eight columns.

        The columns are the five intervals, with ``aside`` unchanged between the third and the fourth of them, the
        total, and ``unscaled`` unchanged: the timeline of a request, its throttle time and its size, without a tuple in
        between.
        """
        moments = (first, second, third, fourth, fifth, now_ns)
        intervals = [end - start for start, end in itertools.pairwise(moments)]
        unchanged = (aside * self._divisor, unscaled * self._divisor)
        self.add_row((*intervals[:3], unchanged[0], *intervals[3:], now_ns - first, unchanged[1]), now_ns)

    def add(self, column: int, value: float, now_ns: int) -> None:
        """Adds one value to one column."""
        self._add((self._columns[column],), self._scaled((value,)), now_ns)

    def add_all(self, column: int, values: Iterable[float], now_ns: int) -> None:
        """Adds many values to one column; adds none if any value is not finite."""
        self._add(itertools.repeat(self._columns[column]), self._scaled(values), now_ns)

    def read(self, column: int) -> tuple[Totals, list[float], list[float]]:
        """Returns the totals, the values of all non-empty steps in ascending order, and their weights."""
        it = self._columns[column]
        with self._lock:
            totals = (it.count, it.origin, it.distance, it.squares, it.low, it.high)
            steps = sorted(it.weights.items())
        return totals, [_value_of(step) for step, _ in steps], [weight for _, weight in steps]

    def _scaled(self, values: Iterable[float]) -> list[float]:
        divisor = self._divisor
        scaled = [float(value) / divisor for value in values]
        for value in scaled:
            if not math.isfinite(value):
                raise ValueError(f"a histogram takes finite numbers, not {value!r}")
        return scaled

    def _add(self, columns: Iterable[_Column], values: list[float], now_ns: int) -> None:
        with self._lock:
            if not 0 <= now_ns - self._tick_ns < _SECOND_NS:
                self._keep_time(now_ns)
            for value, column in zip(values, columns):  # noqa: B905 - one column may be repeated for ever
                if not column.count:
                    column.origin = column.low = column.high = value
                column.count += 1
                column.low, column.high = min(column.low, value), max(column.high, value)
                distance = value - column.origin
                column.distance += distance
                column.squares += distance * distance
                step = _step_of(value)
                column.weights[step] = column.weights.get(step, 0.0) + self._weight

    def _keep_time(self, now_ns: int) -> None:
        """Updates `_weight` to the one of this second."""
        seconds = max((now_ns - self._epoch_ns) // _SECOND_NS, 0)
        exponent = self._alpha * seconds
        if exponent > RESCALE_EXPONENT:
            self._rescale(math.exp(-exponent))
            self._epoch_ns += seconds * _SECOND_NS
            seconds, exponent = 0, 0.0
        self._weight = math.exp(exponent)
        self._tick_ns = self._epoch_ns + seconds * _SECOND_NS

    def _rescale(self, factor: float) -> None:
        for column in self._columns:
            scaled = ((step, weight * factor) for step, weight in column.weights.items())
            column.weights = {step: weight for step, weight in scaled if weight >= NEGLIGIBLE}


def _step_of(value: float) -> int:
    if value < _SMALLEST:
        return _ZERO
    mantissa, exponent = math.frexp(value)
    # The mantissa is at least 0.5; rounded up to 1 it becomes the first step of the next power of two.
    return min(exponent * STEPS + int(mantissa * 256 + 0.5) - _FIRST, _LAST)


def _value_of(step: int) -> float:
    if step == _ZERO:
        return 0.0
    return math.ldexp(STEPS + step % STEPS, step // STEPS + LOWEST_EXPONENT - 7)


TICK_NS = 5_000_000_000
MINUTES = (1, 5, 15)
_ALPHAS = tuple(1 - math.exp(-5 / 60 / minutes) for minutes in MINUTES)


class EventCount:
    """Counts events, and computes their rate per nanosecond over the last 1, 5 and 15 minutes."""

    def __init__(self, start_ns: int) -> None:
        self._lock = threading.Lock()  # guards everything below; nothing is called with it held
        self.count = 0
        self._uncounted = 0
        self._next_tick_ns = start_ns + TICK_NS
        self._rates = [0.0] * len(MINUTES)
        self._started = False

    def add(self, events: int, now_ns: int) -> None:
        with self._lock:
            self._tick(now_ns)
            self.count += events
            self._uncounted += events

    def rate(self, which: int, now_ns: int) -> float:
        """Returns the rate of the last 1, 5 or 15 minutes: `which` is the index in `MINUTES`."""
        with self._lock:
            self._tick(now_ns)
            return self._rates[which]

    def _tick(self, now_ns: int) -> None:
        """Moves each rate, every five seconds, by the fraction `_ALPHAS` towards the rate of those five seconds.

        The first rate is that of the first five seconds.
        """
        if now_ns < self._next_tick_ns:
            return
        ticks = (now_ns - self._next_tick_ns) // TICK_NS + 1
        self._next_tick_ns += ticks * TICK_NS
        found, self._uncounted = self._uncounted / TICK_NS, 0
        rates = self._rates if self._started else [found] * len(MINUTES)
        self._started = True
        self._rates = [
            (rate + alpha * (found - rate)) * (1 - alpha) ** (ticks - 1)
            for rate, alpha in zip(rates, _ALPHAS, strict=True)
        ]
