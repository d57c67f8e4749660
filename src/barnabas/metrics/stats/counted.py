"""Stats of counters that are kept elsewhere: nothing is recorded; they read the counter when they are measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.stats.cumulative import CumulativeSum
from barnabas.metrics.stats.rate import Rate
from barnabas.metrics.stats.sampled import Max, WindowedSum
from barnabas.metrics.units import TimeUnit

Counter: TypeAlias = Callable[[], int]
"""A number that only grows. Its owner increments it without a lock; any thread may read it."""


class CountedTotal(CumulativeSum):
    """The value of the counter."""

    __slots__ = ("_counter",)

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def measure(self, config: MetricConfig, now_ms: int) -> float:  # noqa: ARG002 - the interface
        return float(self._counter())


class CountedRate(Rate):
    """The recent growth of the counter, per unit of time.

    Recording into a sensor costs some microseconds, more than a selector needs for a small request; incrementing an
    integer costs almost nothing. So the growth of the counter is recorded when the rate is read, as if it had happened
    just then. Reading it regularly keeps the windows accurate: read once a second, with windows of 30 seconds, it
    differs from a rate that records every event by at most that second.

    >>> from barnabas.metrics.config import MetricConfig
    >>> requests = [0]
    >>> rate = CountedRate(lambda: requests[0])
    >>> config = MetricConfig(samples=2, window_ms=30_000)
    >>> rate.measure(config, 0)
    0.0
    >>> requests[0] += 60
    >>> rate.measure(config, 0)
    2.0
    """

    __slots__ = ("_counter", "_seen")

    def __init__(self, counter: Counter, unit: TimeUnit = TimeUnit.SECONDS) -> None:
        super().__init__(unit)
        self._counter = counter
        self._seen = 0

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        count = self._counter()
        if count != self._seen:
            self.record(config, count - self._seen, now_ms)
            self._seen = count
        return super().measure(config, now_ms)


class CountedAvg:
    """The recent growth of one counter per growth of another, for example bytes per request."""

    __slots__ = ("_count", "_counts", "_seen_count", "_seen_sum", "_sum", "_sums")

    def __init__(self, sums: Counter, counts: Counter) -> None:
        self._sums = sums
        self._counts = counts
        self._seen_sum = self._seen_count = 0
        self._sum = WindowedSum()
        self._count = WindowedSum()

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        total, count = self._sums(), self._counts()
        if count != self._seen_count:
            self._sum.record(config, total - self._seen_sum, now_ms)
            self._count.record(config, count - self._seen_count, now_ms)
            self._seen_sum, self._seen_count = total, count
        recent = self._count.measure(config, now_ms)
        return self._sum.measure(config, now_ms) / recent if recent else math.nan


class CountedMax:
    """The greatest recent value. The owner keeps the greatest value since this was last measured."""

    __slots__ = ("_counts", "_greatest", "_max", "_seen_count")

    def __init__(self, greatest: Counter, counts: Counter) -> None:
        self._greatest = greatest
        self._counts = counts
        self._seen_count = 0
        self._max = Max()

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        count = self._counts()
        if count != self._seen_count:
            self._max.record(config, self._greatest(), now_ms)
            self._seen_count = count
        return self._max.measure(config, now_ms)
