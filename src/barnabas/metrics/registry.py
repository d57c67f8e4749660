"""The registry of sensors and metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metrics.config import MetricConfig, RecordingLevel
from barnabas.metrics.metric import Gauge, KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Measurable

_log = logging.getLogger(__name__)


class MetricsReporter(Protocol):
    """Receives notifications of metrics, and reads their values at any time.

    It is called with the registry's lock held, so that notifications are in order. Metrics may be read here.
    """

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        """Receives all metrics that exist when the reporter is added."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """Receives a new metric."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """Receives a removed metric."""

    def close(self) -> None: ...


class Metrics:
    """All sensors by name, all metrics by `MetricName`.

    `sensor` returns an existing sensor or creates it. A sensor with a time to live is removed after it was inactive for
    longer, with its metrics and its children, so that a broker does not keep every client ID that it has ever seen. The
    registry has no thread: a scheduler calls `expire_inactive_sensors`, every 30 seconds in Kafka.

    **Locks.** `lock` guards the sets of sensors and metrics. It is re-entrant, because reporters are called with it
    held and may call back. A sensor's lock may be taken inside it, never the other way round. `get_sensor` and `metric`
    look up one key in a dict and take no lock.
    """

    def __init__(
        self,
        config: MetricConfig | None = None,
        reporters: Iterable[MetricsReporter] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config = config or MetricConfig()
        self.clock = clock
        self.lock = threading.RLock()
        self._sensors: dict[str, Sensor] = {}
        self._metrics: dict[MetricName, KafkaMetric] = {}
        self._children: dict[Sensor, list[Sensor]] = {}
        self._reporters: list[MetricsReporter] = []
        for reporter in reporters:
            self.add_reporter(reporter)
        self.add_metric(
            self.metric_name("count", "kafka-metrics-count", description="The number of registered metrics"),
            lambda _config, _now: float(len(self._metrics)),
        )

    # ------------------------------------------------------------------------------------------------ sensors

    def get_sensor(self, name: str) -> Sensor | None:
        return self._sensors.get(name)

    def sensor(
        self,
        name: str,
        config: MetricConfig | None = None,
        inactive_sensor_expiration_seconds: int | None = None,
        recording_level: RecordingLevel = RecordingLevel.INFO,
        parents: Sequence[Sensor] = (),
    ) -> Sensor:
        """Returns the sensor of that name, or creates it. Other arguments are ignored for an existing one."""
        with self.lock:
            sensor = self._sensors.get(name)
            if sensor is None:
                sensor = Sensor(
                    self,
                    name,
                    parents,
                    config or self.config,
                    self.clock,
                    recording_level,
                    inactive_sensor_expiration_seconds,
                )
                self._sensors[name] = sensor
                for parent in parents:
                    self._children.setdefault(parent, []).append(sensor)
            return sensor

    def remove_sensor(self, name: str) -> None:
        """Removes a sensor, if it exists, with its metrics and its children."""
        with self.lock:
            sensor = self._sensors.pop(name, None)
            if sensor is None:
                return
            sensor.mark_removed()
            for metric in sensor.metrics:
                self.remove_metric(metric.name)
            for parent in sensor.parents:
                if parent in self._children:
                    self._children[parent].remove(sensor)
            for child in self._children.pop(sensor, ()):
                self.remove_sensor(child.name)

    def expire_inactive_sensors(self, now_ms: int | None = None) -> list[str]:
        """Removes every sensor that was inactive for too long, and returns their names.

        A child is removed with its parent, active or not. That is rare, because a child also records into its parent.
        """
        if now_ms is None:
            now_ms = self.clock.milliseconds()
        with self.lock:
            expired = [name for name, sensor in self._sensors.items() if sensor.has_expired(now_ms)]
            for name in expired:
                _log.debug("Removing sensor %s, which was inactive for too long", name)
                self.remove_sensor(name)
        return expired

    @property
    def sensors(self) -> dict[str, Sensor]:
        with self.lock:
            return dict(self._sensors)

    # ------------------------------------------------------------------------------------------------ metrics

    def metric_name(
        self, name: str, group: str, tags: Mapping[str, str] | None = None, description: str = ""
    ) -> MetricName:
        """Returns a name with these tags and the tags that the registry's configuration adds to all."""
        return MetricName(name, group, {**self.config.tags, **(tags or {})}, description)

    def add_metric(
        self, name: MetricName, provider: Measurable | Gauge, config: MetricConfig | None = None
    ) -> KafkaMetric:
        """Adds a metric of a value that is kept elsewhere. Raises ValueError if the name is in use."""
        metric = KafkaMetric(name, provider, config or self.config, self.clock)
        self.register(metric)
        return metric

    def metric(self, name: MetricName) -> KafkaMetric | None:
        return self._metrics.get(name)

    def remove_metric(self, name: MetricName) -> KafkaMetric | None:
        """Removes a metric and returns it, or None."""
        with self.lock:
            metric = self._metrics.pop(name, None)
            if metric is not None:
                for reporter in self._reporters:
                    _call(reporter, reporter.metric_removal, metric)
            return metric

    @property
    def metrics(self) -> dict[MetricName, KafkaMetric]:
        with self.lock:
            return dict(self._metrics)

    def register(self, metric: KafkaMetric) -> None:
        with self.lock:
            if metric.name in self._metrics:
                raise ValueError(f"metric {metric.name} already exists")
            self._metrics[metric.name] = metric
            for reporter in self._reporters:
                _call(reporter, reporter.metric_change, metric)

    # ------------------------------------------------------------------------------------------------ reporters

    def add_reporter(self, reporter: MetricsReporter) -> None:
        with self.lock:
            reporter.init(list(self._metrics.values()))
            self._reporters.append(reporter)

    def remove_reporter(self, reporter: MetricsReporter) -> None:
        with self.lock:
            if reporter in self._reporters:
                self._reporters.remove(reporter)
                reporter.close()

    @property
    def reporters(self) -> list[MetricsReporter]:
        with self.lock:
            return list(self._reporters)

    def close(self) -> None:
        """Closes the reporters; the failure of one does not affect the others."""
        with self.lock:
            reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            _call(reporter, reporter.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _call(reporter: MetricsReporter, method: Callable[..., None], *arguments: object) -> None:
    """Calls a reporter, which is a plug-in: an error is logged and affects neither the broker nor other reporters."""
    try:
        method(*arguments)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("The metrics reporter %r failed", reporter)
