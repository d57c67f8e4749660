"""A metric: a name, something to measure, and how to measure it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from barnabas.common.clock import Clock
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.stats import Measurable, Rate, SampledStat

Gauge: TypeAlias = Callable[[MetricConfig, int], Any]
"""A function of the configuration and the time in milliseconds; its value may be anything, such as a version string."""


class KafkaMetric:
    """A named value that can be read at any time.

    What it reads is a `Measurable`, in most cases a stat of a sensor, or a `Gauge`. Reading takes `lock`: for a metric
    of a sensor that is the sensor's lock, because measuring a stat also tidies up its windows. Before that, `catch_up`
    has the sensor record what it has only noted down so far.
    """

    __slots__ = ("_catch_up", "_clock", "_gauge", "_lock", "config", "measurable", "name")

    config: MetricConfig
    """How it is measured now. Read it freely; change it with `reconfigure`."""

    measurable: Measurable | None
    """What is measured; None when the value comes from a gauge."""

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
        """The value now: a float, or whatever the gauge gives."""
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
        """The milliseconds that a rate is divided by now. Raises TypeError if this is no rate."""
        rate = self.measurable
        if not isinstance(rate, Rate):
            raise TypeError(f"{self.name} is not a rate but {rate!r}")
        if self._catch_up is not None:
            self._catch_up()
        with self._lock:
            return rate.window_size(self.config, now_ms)

    def samples(self) -> list[tuple[int, float, int]]:
        """Start, value and number of events of each window that a rate or another sampled stat keeps now.

        A place in the list stays with its window until the window is started again. Nothing is for what is not sampled.
        """
        stat = self.measurable.stat if isinstance(self.measurable, Rate) else self.measurable
        if not isinstance(stat, SampledStat):
            return []
        if self._catch_up is not None:
            self._catch_up()
        with self._lock:
            return [(sample.start_ms, sample.value, sample.event_count) for sample in stat.samples]

    def reconfigure(self, config: MetricConfig) -> None:
        """Measures by another configuration from now on, such as one with another bound. Nothing recorded is lost.

        It takes effect between two recordings, never in the middle of one.
        """
        with self._lock:
            self.config = config

    def __repr__(self) -> str:
        return f"KafkaMetric({self.name!r})"
