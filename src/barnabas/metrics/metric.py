"""A metric: a name, a measurable or gauge, and a configuration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from barnabas.common.clock import Clock
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.stats import Measurable, Rate, SampledStat

Gauge: TypeAlias = Callable[[MetricConfig, int], Any]
"""A function of the configuration and the time in milliseconds. Its value may have any type, such as a string."""


class KafkaMetric:
    """A named value that can be read at any time.

    It reads a `Measurable`, usually a stat of a sensor, or a `Gauge`. Reading takes `lock`: for a metric of a sensor
    that is the sensor's lock, because measuring a stat also purges its windows. Before that, `catch_up` makes the
    sensor record its pending values.
    """

    __slots__ = ("_catch_up", "_clock", "_gauge", "_lock", "config", "measurable", "name")

    config: MetricConfig
    """The current configuration. Change it with `reconfigure`."""

    measurable: Measurable | None
    """The measured stat; None if the value comes from a gauge."""

    def __init__(
        self,
        name: MetricName,
        provider: Measurable | Gauge,
        config: MetricConfig,
        clock: Clock,
        lock: threading.Lock | None = None,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self._clock = clock
        self._catch_up = catch_up
        self._lock = threading.Lock() if lock is None else lock
        if isinstance(provider, Measurable):
            self.measurable = provider
            self._gauge: Gauge | None = None
        else:
            self.measurable = None
            self._gauge = provider

    def value(self, now_ms: int | None = None) -> Any:
        """Returns the current value: a float, or any value of the gauge."""
        if now_ms is None:
            now_ms = self._clock.milliseconds()
        if self._catch_up is not None:
            self._catch_up()
        with self._lock:
            if self.measurable is not None:
                return self.measurable.measure(self.config, now_ms)
            assert self._gauge is not None
            return self._gauge(self.config, now_ms)

    def window_size(self, now_ms: int) -> int:
        """Returns the current divisor of a rate in milliseconds. Raises TypeError if this is not a rate."""
        rate = self.measurable
        if not isinstance(rate, Rate):
            raise TypeError(f"{self.name} is not a rate but {rate!r}")
        if self._catch_up is not None:
            self._catch_up()
        with self._lock:
            return rate.window_size(self.config, now_ms)

    def samples(self) -> list[tuple[int, float, int]]:
        """Returns start, value and number of events of each current window of a rate or another sampled stat.

        A window keeps its place in the list until it is reused. The list is empty for a stat without windows.
        """
        stat = self.measurable.stat if isinstance(self.measurable, Rate) else self.measurable
        if not isinstance(stat, SampledStat):
            return []
        if self._catch_up is not None:
            self._catch_up()
        with self._lock:
            return [(sample.start_ms, sample.value, sample.event_count) for sample in stat.samples]

    def reconfigure(self, config: MetricConfig) -> None:
        """Changes the configuration, for example the bound. Recorded values stay.

        It takes effect between two recordings, never in the middle of one.
        """
        with self._lock:
            self.config = config

    def __repr__(self) -> str:
        return f"KafkaMetric({self.name!r})"
