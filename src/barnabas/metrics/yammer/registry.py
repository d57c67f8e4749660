"""The broker's metrics by JMX name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metrics.names import MBeanName
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.histogram import Histogram, HistogramSet
from barnabas.metrics.yammer.meter import IdleMeter, Meter
from barnabas.metrics.yammer.timer import Timer


class Gauge:
    """A value that is kept elsewhere and computed when it is read."""

    __slots__ = ("value",)

    value: Callable[[], Any]

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value


YammerMetric: TypeAlias = Gauge | Meter | Histogram | Timer
_M = TypeVar("_M", Gauge, Meter, IdleMeter, Histogram, Timer)


class MetricsRegistry:
    """All gauges, meters, histograms and timers by name.

    A second request for a name returns the existing metric, which must be of the same kind. For a gauge, the first
    function stays until the gauge is removed.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._lock = threading.Lock()  # guards the dict; creating a metric takes no other lock
        self._metrics: dict[MBeanName, YammerMetric] = {}

    def get_or_add(self, name: MBeanName, kind: type[_M], make: Callable[[], _M]) -> _M:
        with self._lock:
            metric = self._metrics.get(name)
            if metric is None:
                metric = self._metrics[name] = make()
            if not isinstance(metric, kind):
                raise ValueError(f"{name} cannot be a {kind.__name__}: it is a {type(metric).__name__}")
            return metric

    def add_all(self, metrics: Mapping[MBeanName, YammerMetric]) -> None:
        """Adds metrics that were created together. Raises ValueError, and adds none, if one of the names is in use."""
        with self._lock:
            for name in metrics:
                if name in self._metrics:
                    raise ValueError(f"{name} is already registered")
            self._metrics.update(metrics)

    def remove(self, name: MBeanName) -> YammerMetric | None:
        """Removes a metric and returns it, or None."""
        with self._lock:
            return self._metrics.pop(name, None)

    def get(self, name: MBeanName) -> YammerMetric | None:
        with self._lock:
            return self._metrics.get(name)

    @property
    def metrics(self) -> dict[MBeanName, YammerMetric]:
        with self._lock:
            return dict(self._metrics)


class KafkaMetricsGroup:
    """Creates the metrics of one class of the broker, with Kafka's domain and class name.

    >>> registry = MetricsRegistry()
    >>> group = KafkaMetricsGroup(registry, "kafka.server", "KafkaRequestHandlerPool")
    >>> str(group.metric_name("RequestHandlerAvgIdlePercent"))
    'kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent'
    """

    __slots__ = ("domain", "registry", "type")

    def __init__(self, registry: MetricsRegistry, domain: str, type_name: str) -> None:
        self.registry = registry
        self.domain = domain
        self.type = type_name

    def metric_name(self, name: str, tags: Mapping[str, str] | None = None) -> MBeanName:
        return MBeanName(self.domain, self.type, name, tags)

    def new_gauge(self, name: str, value: Callable[[], Any], tags: Mapping[str, str] | None = None) -> Gauge:
        return self.registry.get_or_add(self.metric_name(name, tags), Gauge, lambda: Gauge(value))

    def new_meter(
        self,
        name: str,
        event_type: str,
        rate_unit: TimeUnit = TimeUnit.SECONDS,
        tags: Mapping[str, str] | None = None,
    ) -> Meter:
        clock = self.registry.clock
        return self.registry.get_or_add(
            self.metric_name(name, tags), Meter, lambda: Meter(clock, event_type, rate_unit)
        )

    def new_idle_meter(
        self, name: str, event_type: str = "percent", tags: Mapping[str, str] | None = None
    ) -> IdleMeter:
        clock = self.registry.clock
        return self.registry.get_or_add(self.metric_name(name, tags), IdleMeter, lambda: IdleMeter(clock, event_type))

    def new_histogram(
        self, name: str, biased: bool = True, tags: Mapping[str, str] | None = None, divisor: float = 1.0
    ) -> Histogram:
        clock = self.registry.clock
        return self.registry.get_or_add(
            self.metric_name(name, tags), Histogram, lambda: Histogram(clock, biased, divisor)
        )

    def new_histogram_set(
        self,
        names: Sequence[str],
        biased: bool = True,
        tags: Mapping[str, str] | None = None,
        divisor: float = 1.0,
    ) -> HistogramSet:
        """Creates histograms that are updated together, each with its own name; all of them must be new.

        >>> group = KafkaMetricsGroup(MetricsRegistry(), "kafka.network", "RequestMetrics")
        >>> times = group.new_histogram_set(("LocalTimeMs", "TotalTimeMs"), tags={"request": "Produce"}, divisor=1e6)
        >>> times.update((1_500_000, 2_000_000), group.registry.clock.nanoseconds())
        >>> times[0].snapshot().max
        1.5
        """
        histograms = HistogramSet(len(names), self.registry.clock, biased, divisor)
        self.registry.add_all(
            {self.metric_name(name, tags): histogram for name, histogram in zip(names, histograms, strict=True)}
        )
        return histograms

    def new_timer(
        self,
        name: str,
        duration_unit: TimeUnit = TimeUnit.MILLISECONDS,
        rate_unit: TimeUnit = TimeUnit.SECONDS,
        tags: Mapping[str, str] | None = None,
    ) -> Timer:
        clock = self.registry.clock
        return self.registry.get_or_add(
            self.metric_name(name, tags), Timer, lambda: Timer(clock, duration_unit, rate_unit)
        )

    def remove_metric(self, name: str, tags: Mapping[str, str] | None = None) -> None:
        self.registry.remove(self.metric_name(name, tags))
