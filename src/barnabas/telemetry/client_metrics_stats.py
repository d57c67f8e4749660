"""Metrics about client telemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Avg, Max, Meter, WindowedCount

GROUP: Final = "client-metrics"
INSTANCE_COUNT: Final = "instance-count"
UNKNOWN_SUBSCRIPTION_REQUEST: Final = "unknown-subscription-request"
THROTTLE: Final = "throttle"
PLUGIN_EXPORT: Final = "plugin-export"
PLUGIN_ERROR: Final = "plugin-error"
PLUGIN_EXPORT_TIME: Final = "plugin-export-time"
EXPIRATION_SECONDS: Final = 2 * 3_600
"""Longer than the longest interval. A push in progress while its client is removed creates the metrics again, and only
their expiration removes them."""
_OF_INSTANCES: Final = (THROTTLE, PLUGIN_EXPORT, PLUGIN_ERROR)


class ClientMetricsStats:
    """Counts the pushes of clients, under Kafka's names.

    Metrics of a client are created at its first event. Most clients match no subscription: with sixteen thousand of
    them, metrics of each would outnumber all other metrics of the broker.
    """

    def __init__(self, metrics: Metrics, instance_count: Callable[[], int]) -> None:
        self._metrics = metrics
        self._instance_count_name = metrics.metric_name(
            INSTANCE_COUNT, GROUP, description="The number of client instances in the cache"
        )
        metrics.add_metric(self._instance_count_name, lambda _config, _now: float(instance_count()))
        self._unknown_subscription = metrics.sensor(UNKNOWN_SUBSCRIPTION_REQUEST)
        self._unknown_subscription.add_compound(self._meter(UNKNOWN_SUBSCRIPTION_REQUEST))

    def record_unknown_subscription(self) -> None:
        self._unknown_subscription.record()

    def record_throttle(self, client_instance_id: Uuid) -> None:
        self._sensor(THROTTLE, client_instance_id).record()

    def record_plugin_export(self, client_instance_id: Uuid, time_ms: float) -> None:
        self._sensor(PLUGIN_EXPORT, client_instance_id).record(time_ms)

    def record_plugin_error(self, client_instance_id: Uuid) -> None:
        self._sensor(PLUGIN_ERROR, client_instance_id).record()

    def forget(self, client_instance_id: Uuid) -> None:
        """Removes the metrics of a client."""
        for kind in _OF_INSTANCES:
            self._metrics.remove_sensor(_sensor_name(kind, client_instance_id))

    def close(self) -> None:
        """Removes the metrics of the broker."""
        self._metrics.remove_metric(self._instance_count_name)
        self._metrics.remove_sensor(UNKNOWN_SUBSCRIPTION_REQUEST)

    def _sensor(self, kind: str, client_instance_id: Uuid) -> Sensor:
        name = _sensor_name(kind, client_instance_id)
        sensor = self._metrics.get_sensor(name)
        if sensor is not None:
            return sensor
        tags = {"client_instance_id": uuid_to_string(client_instance_id)}
        with self._metrics.lock:  # otherwise two threads could add the stats twice, and count everything twice
            if (sensor := self._metrics.get_sensor(name)) is not None:
                return sensor
            sensor = self._metrics.sensor(name, inactive_sensor_expiration_seconds=EXPIRATION_SECONDS)
            sensor.add_compound(self._meter(kind, tags))
            if kind == PLUGIN_EXPORT:
                what = "of exporters for a push of this client, in ms"
                sensor.add(self._name(f"{PLUGIN_EXPORT_TIME}-avg", tags, f"Mean time {what}"), Avg())
                sensor.add(self._name(f"{PLUGIN_EXPORT_TIME}-max", tags, f"Maximum time {what}"), Max())
            return sensor

    def _meter(self, kind: str, tags: Mapping[str, str] | None = None) -> Meter:
        rate = self._name(f"{kind}-rate", tags, f"{kind} events per second")
        total = self._name(f"{kind}-count", tags, f"All {kind} events")
        return Meter(rate, total, stat=WindowedCount())

    def _name(self, name: str, tags: Mapping[str, str] | None, description: str) -> MetricName:
        return self._metrics.metric_name(name, GROUP, tags, description)


def _sensor_name(kind: str, client_instance_id: Uuid) -> str:
    return f"{kind}-{uuid_to_string(client_instance_id)}"
