"""Rates: a sum over recent windows, divided by the time it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.stats.cumulative import CumulativeSum
from barnabas.metrics.stats.sampled import SampledStat, WindowedCount, WindowedSum
from barnabas.metrics.stats.stat import NamedMeasurable
from barnabas.metrics.units import TimeUnit


class Rate:
    """The sum of recent values per unit of time. Byte, request and connection quotas compare it with their bound.

    The question is what to divide the sum by. The time since the oldest sample began would be wrong for a quota: a
    client that sends its first 1,000 bytes would, 10 ms later, appear to send 100,000 bytes a second, and be throttled
    needlessly. So windows that are missing before the oldest sample count as empty windows: the divisor has at least
    ``samples - 1`` full windows, plus the elapsed part of the current one.

    With 11 samples of one second (the quota default), after 1,000 bytes at time 0:

        measured after         0 ms    10 ms     5.5 s       10 s      10.5 s
        full windows              0        0         5         10          10
        padded with              10       10         5          0           0   windows
        divisor              10.0 s  10.01 s    10.5 s     10.0 s      10.5 s
        rate                  100.0     99.9      95.2      100.0        95.2   bytes/s

    The divisor is at least 1 ms, which matters for a single sample that is measured at its start.
    """

    __slots__ = ("_window_ms", "record", "stat", "unit")

    record: Callable[[MetricConfig, float, int], None]
    """The stat's own method, because recording only concerns the sum: one call less per request."""

    def __init__(
        self,
        unit: TimeUnit = TimeUnit.SECONDS,
        stat: SampledStat | None = None,
        window_ms: int | None = None,
    ) -> None:
        self.unit = unit
        self.stat = WindowedSum() if stat is None else stat
        self._window_ms = window_ms
        if window_ms is not None:
            self.stat.use_window(window_ms)
        self.record = self.stat.record

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        total = self.stat.measure(config, now_ms)
        return total / self.unit.from_milliseconds(self._padded(config, now_ms - self.stat.oldest(now_ms)))

    def window_size(self, config: MetricConfig, now_ms: int) -> int:
        """Returns the divisor in milliseconds. The throttle time is computed with the same number."""
        self.stat.purge_obsolete_samples(config, now_ms)
        return self._padded(config, now_ms - self.stat.oldest(now_ms))

    def _padded(self, config: MetricConfig, elapsed_ms: int) -> int:
        """Returns the divisor for the time since the oldest sample began."""
        window_ms = self._window_ms or config.window_ms
        # Rounded towards zero, as in Java: a clock that went back has no full windows, not minus one.
        full_windows = elapsed_ms // window_ms if elapsed_ms >= 0 else -(-elapsed_ms // window_ms)
        missing_windows = config.samples - 1 - full_windows
        if missing_windows > 0:
            elapsed_ms += missing_windows * window_ms
        return max(elapsed_ms, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.unit.name}, {self.stat!r})"


class SimpleRate(Rate):
    """A rate that pads its divisor to one window only, so it shows a burst sooner. Replication throttles use it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()

    def _padded(self, config: MetricConfig, elapsed_ms: int) -> int:
        return max(elapsed_ms, config.window_ms)


class Meter:
    """A rate and a total, as two metrics with the same values.

    With a `WindowedCount` both count values; otherwise both add them up.
    """

    __slots__ = ("_count_only", "_rate", "_rate_name", "_total", "_total_name")

    def __init__(
        self,
        rate_name: MetricName,
        total_name: MetricName,
        unit: TimeUnit = TimeUnit.SECONDS,
        stat: WindowedSum | None = None,
    ) -> None:
        self._rate_name = rate_name
        self._total_name = total_name
        self._rate = Rate(unit, stat)
        self._total = CumulativeSum()
        self._count_only = isinstance(stat, WindowedCount)

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:
        self._rate.record(config, value, time_ms)
        self._total.record(config, 1.0 if self._count_only else value, time_ms)

    def record_all(self, config: MetricConfig, values: Sequence[float], time_ms: int) -> None:
        """`record` for several values of the same time."""
        self._rate.stat.record_all(config, values, time_ms)
        self._total.record_all(config, [1.0] * len(values) if self._count_only else values, time_ms)

    def stats(self) -> Sequence[NamedMeasurable]:
        return (NamedMeasurable(self._total_name, self._total), NamedMeasurable(self._rate_name, self._rate))
