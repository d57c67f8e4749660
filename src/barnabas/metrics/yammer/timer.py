"""Timers: the rate and the duration of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.common.clock import Clock
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.histogram import Histogram, Snapshot
from barnabas.metrics.yammer.meter import Meter


class Timer:
    """A histogram of durations and a meter of their number.

    with timer.time():
        segment.flush()
    timer.snapshot().p99  # in the timer's duration unit
    """

    __slots__ = ("_histogram", "_nanoseconds", "duration_unit", "meter")

    def __init__(
        self,
        clock: Clock,
        duration_unit: TimeUnit = TimeUnit.MILLISECONDS,
        rate_unit: TimeUnit = TimeUnit.SECONDS,
    ) -> None:
        self.duration_unit = duration_unit
        self.meter = Meter(clock, "calls", rate_unit)
        self._histogram = Histogram(clock, divisor=duration_unit.nanoseconds)
        self._nanoseconds = clock.nanoseconds

    def update(self, duration_ns: int, now_ns: int | None = None) -> None:
        """Adds a duration in nanoseconds. Ignores a negative one, which only a faulty clock can cause."""
        if duration_ns < 0:
            return
        if now_ns is None:
            now_ns = self._nanoseconds()
        self._histogram.update(duration_ns, now_ns)
        self.meter.mark(1, now_ns)

    @contextmanager
    def time(self) -> Iterator[None]:
        """Measures the enclosed block, whether it succeeds or fails."""
        started_ns = self._nanoseconds()
        try:
            yield
        finally:
            now_ns = self._nanoseconds()
            self.update(now_ns - started_ns, now_ns)

    @property
    def count(self) -> int:
        return self._histogram.count

    def snapshot(self) -> Snapshot:
        """Returns the durations in the duration unit."""
        return self._histogram.snapshot()
