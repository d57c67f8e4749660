"""Metrics of the runtime of a coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.coordinator.runtime.coordinator_state import CoordinatorState
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Avg, Max

_STATES: Final = (CoordinatorState.LOADING, CoordinatorState.ACTIVE, CoordinatorState.FAILED)


class CoordinatorRuntimeMetrics:
    """Kafka's ``<name>-metrics``: load times of partitions, partitions by state, waiting events."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        """`group` is for example ``group-coordinator-metrics``."""
        self._metrics = metrics
        self._group = group
        self._gauges: list[MetricName] = []
        self._load_time = metrics.sensor(f"{group}-PartitionLoadTime")
        for stat, kind in ((Max(), "max"), (Avg(), "avg")):
            name = metrics.metric_name(
                f"partition-load-time-{kind}", group, description=f"The {kind} time it took to load a partition, in ms"
            )
            self._load_time.add(name, stat)

    def record_load(self, start_ms: int, end_ms: int) -> None:
        self._load_time.record(end_ms - start_ms, end_ms)

    def watch(self, states: Callable[[], Iterable[CoordinatorState]], waiting: Callable[[], int]) -> None:
        """Adds the gauges of a runtime: the states of its partitions, and the number of waiting events."""
        for state in _STATES:
            self._gauge(
                "num-partitions",
                lambda state=state: Counter(states())[state],  # type: ignore[misc]
                f"The number of partitions in state {state.value}",
                state=state.value,
            )
        self._gauge("event-queue-size", waiting, "The number of waiting events")

    def _gauge(self, name: str, value: Callable[[], int], description: str, **tags: str) -> None:
        metric_name = self._metrics.metric_name(name, self._group, description=description, tags=tags)
        self._metrics.add_metric(metric_name, lambda _config, _now: float(value()))
        self._gauges.append(metric_name)

    def close(self) -> None:
        for name in self._gauges:
            self._metrics.remove_metric(name)
        self._metrics.remove_sensor(self._load_time.name)
