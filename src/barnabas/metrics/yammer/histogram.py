"""Histograms: the distribution of values, weighted towards recent ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from barnabas._kernels import metrics
from barnabas.common.clock import Clock

BucketTable = metrics.BucketTable

FADING_PER_SECOND = 0.015
"""Yammer's alpha: a value of five minutes ago has 1 % of the weight of a new one."""


class Snapshot:
    """A histogram at one moment.

    As in Yammer, `count`, `sum`, `mean`, `min`, `max` and `stddev` cover all values since the start, and the quantiles
    the recent ones. All are 0 without values.
    """

    __slots__ = ("_running", "_values", "count", "max", "mean", "min", "stddev", "sum")

    def __init__(
        self, totals: tuple[int, float, float, float, float, float], values: list[float], weights: list[float]
    ) -> None:
        self.count, origin, distance, squares, self.min, self.max = totals
        self.sum = origin * self.count + distance
        self.mean = self.sum / self.count if self.count else 0.0
        self.stddev = 0.0
        if self.count > 1:
            variance = (squares - distance * distance / self.count) / (self.count - 1)
            self.stddev = math.sqrt(max(variance, 0.0))
        self._values = values
        self._running = list(accumulate(weights))

    def quantile(self, fraction: float) -> float:
        """Returns the least value such that this fraction of the recent weight is at or below it.

        Its error is at most 1/256 (0.39 %).
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"a quantile must be between 0 and 1: {fraction}")
        if not self._values:
            return 0.0
        place = bisect_left(self._running, fraction * self._running[-1])
        # The rounded step of a value may lie outside the range of all values.
        return min(max(self._values[min(place, len(self._values) - 1)], self.min), self.max)

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def p75(self) -> float:
        return self.quantile(0.75)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

    @property
    def p98(self) -> float:
        return self.quantile(0.98)

    @property
    def p99(self) -> float:
        return self.quantile(0.99)

    @property
    def p999(self) -> float:
        return self.quantile(0.999)

    def __repr__(self) -> str:
        return f"Snapshot(count={self.count}, mean={self.mean:g}, median={self.median:g}, p99={self.p99:g})"


class Histogram:
    """The distribution of values, weighted towards recent ones.

    **Method.** Each value adds to one of a set of buckets, whose widths grow with the value, so that any quantile is
    known to 0.39 %. The weight that a value adds grows with time, so that older ones fade (see
    `barnabas._kernels.pure.metrics` for both). An update takes a few additions for any value: the broker performs more
    than seven updates for every request.

    **Differences from Yammer.** Yammer keeps a sample of 1,028 values. A new value gets the priority
    ``exp(0.015 * seconds) / random`` and replaces the lowest one, so the sample is a random selection in which newer
    values are more likely. The buckets hold all values with exactly these weights, so they give the quantiles that
    Yammer estimates:

    * Yammer's figures are random. With 1,028 values, the 99.9th percentile is about the greatest of the sample, and two
      brokers under the same load show different ones. The figures here are within 0.39 % of the weighted truth.
    * Yammer gives all of the first 1,028 values the same weight, however old they are. Here they fade from the start,
      so a histogram with few values follows a change sooner.
    * Yammer interpolates between two neighbours; here a quantile is an existing value, rounded to 8 bits.
    * Yammer takes whole numbers, so Kafka's times are whole milliseconds; here they keep their fraction.

    Both have in common: without new values the quantiles do not change; ``biased=False`` gives every value the same
    weight forever; count, mean, extremes and deviation are those of all values.

    Updates and `snapshot` are thread-safe.
    """

    __slots__ = ("_column", "_nanoseconds", "_table")

    def __init__(self, clock: Clock, biased: bool = True, divisor: float = 1.0) -> None:
        self._nanoseconds = clock.nanoseconds
        self._table = _table(1, clock, biased, divisor)
        self._column = 0

    @classmethod
    def _of(cls, table: BucketTable, column: int, clock: Clock) -> Histogram:
        histogram = cls.__new__(cls)
        histogram._nanoseconds = clock.nanoseconds
        histogram._table = table
        histogram._column = column
        return histogram

    def update(self, value: float, now_ns: int | None = None) -> None:
        """Adds a value, at a given time of the same clock or now."""
        self._table.add(self._column, value, self._nanoseconds() if now_ns is None else now_ns)

    def update_many(self, values: Iterable[float], now_ns: int | None = None) -> None:
        """Adds several values in one step; none of them if one is not finite."""
        self._table.add_all(self._column, values, self._nanoseconds() if now_ns is None else now_ns)

    def snapshot(self) -> Snapshot:
        return Snapshot(*self._table.read(self._column))

    @property
    def count(self) -> int:
        return self.snapshot().count


class HistogramSet:
    """Histograms that are always updated together, such as the seven times of a request.

        times = HistogramSet(3, clock, divisor=1e6)      # from nanoseconds to milliseconds
        times.update((queue_ns, local_ns, send_ns), now_ns)
        times[1].snapshot().p99                         # milliseconds of local work

    One call and one lock update all of them, with one timestamp of the caller.
    """

    __slots__ = ("_histograms", "table", "update")

    update: Callable[[tuple[float, ...], int], None]
    """Adds one value to each histogram, at a time in nanoseconds of the clock: ``update(values, now_ns)``.

    It is the table's own method without a wrapper, because every request calls it.
    """

    def __init__(self, size: int, clock: Clock, biased: bool = True, divisor: float = 1.0) -> None:
        table = _table(size, clock, biased, divisor)
        self.table = table
        self.update = table.add_row
        self._histograms = tuple(Histogram._of(table, column, clock) for column in range(size))

    def __len__(self) -> int:
        return len(self._histograms)

    def __getitem__(self, index: int) -> Histogram:
        return self._histograms[index]

    def __iter__(self) -> Iterator[Histogram]:
        return iter(self._histograms)


def _table(columns: int, clock: Clock, biased: bool, divisor: float) -> BucketTable:
    return BucketTable(columns, FADING_PER_SECOND if biased else 0.0, clock.nanoseconds(), divisor)
