"""Connection rates: how many connections per second the broker, a listener and an IP address may open.

A connection is expensive before it sends its first byte: a TLS handshake, an authentication, buffers. So the number of
connections is not the only thing worth a limit; a client that reconnects in a loop never holds more than one and can
still keep a broker busy. This module measures the rates and computes how much too early a connection comes.
`connection_quotas` decides whether the connection waits or is rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.stats import Avg, Rate
from barnabas.metrics.throttle import bounded_throttle_time

_log = logging.getLogger(__name__)

METRICS_GROUP = "socket-server-metrics"

_SENSOR = "Connection-Accept-Rate"
_METRIC = "connection-accept-rate"
_LISTENER_TAG = "listener"
_IP_TAG = "ip"
_IP_SENSOR_EXPIRATION_SECONDS = 3_600
"""An address without new connections for an hour is forgotten; otherwise a broker would remember every address."""


class ConnectionRate:
    """One rate and its limit.

    With 11 samples of one second and a limit of 5/s, 50 connections may come at once, because the rate is taken over at
    least ten seconds (see `Rate`). The 51st makes it 5.1/s. It would be 5/s again after (5.1 - 5) / 5 * 10 s = 200 ms,
    so that is the delay. A delay is never longer than one sample.
    """

    __slots__ = ("_max_throttle_ms", "_metric", "_sensor")

    def __init__(self, sensor: Sensor, metric: KafkaMetric, max_throttle_ms: int) -> None:
        self._sensor = sensor
        self._metric = metric
        self._max_throttle_ms = max_throttle_ms

    def record(self, now_ms: int) -> int:
        """Counts one connection; returns by how many milliseconds it came too early, or 0."""
        try:
            self._sensor.record(1.0, now_ms)
        except QuotaViolationError as violation:
            delay_ms = max(bounded_throttle_time(violation, self._max_throttle_ms, now_ms), 0)
            _log.debug("%s: a delay of %d ms", violation, delay_ms)
            return delay_ms
        return 0

    def unrecord(self, now_ms: int) -> None:
        """Uncounts a connection that was recorded and then rejected."""
        self._sensor.record(-1.0, now_ms, check_quotas=False)

    def update(self, limit: int) -> None:
        """Sets a new limit. Earlier records still count."""
        self._metric.reconfigure(self._metric.config.with_quota(Quota(limit)))


class ListenerRates:
    """The rate of a listener, and the throttle times of its connections.

    They come from the rates of listener and broker, or, for rejected connections, from the rate of their address.
    """

    __slots__ = ("_close", "connections", "ip_throttle_time", "throttle_time")

    def __init__(
        self, connections: ConnectionRate, throttle_time: Sensor, ip_throttle_time: Sensor, close: Callable[[], None]
    ) -> None:
        self.connections = connections
        self.throttle_time = throttle_time
        self.ip_throttle_time = ip_throttle_time
        self._close = close

    def close(self) -> None:
        """Removes the sensors of the listener."""
        self._close()


class ConnectionRates:
    """Creates the rates, under Kafka's names.

        broker-connection-accept-rate                              of the broker
        connection-accept-rate              listener=EXTERNAL      of a listener
        connection-accept-rate              ip=192.0.2.7           of an address that has a limit
        connection-accept-throttle-time     listener=EXTERNAL      mean delay of the connections that had one
        ip-connection-accept-throttle-time  listener=EXTERNAL      the same, for the rate of an address

    Has no lock of its own: the registry and the sensors have theirs. Looking up the limit of an address and creating
    its sensor is atomic because `ConnectionQuotas` calls with its lock held.
    """

    def __init__(self, metrics: Metrics, samples: int, window_seconds: int, broker_limit: int) -> None:
        self._metrics = metrics
        self._window = MetricConfig(samples=samples, window_ms=window_seconds * 1_000)
        self.broker = self._rate(_SENSOR, self._name(f"broker-{_METRIC}", {}), broker_limit)

    def listener(self, listener: str, limit: int) -> ListenerRates:
        sensor_name = f"{_SENSOR}-{_LISTENER_TAG}-{listener}"
        tags = {_LISTENER_TAG: listener}
        connections = self._rate(sensor_name, self._name(_METRIC, tags), limit)
        # The registry may still hold a sensor of that name with another limit.
        connections.update(limit)
        throttle_time, ip_throttle_time = (
            self._throttle_time(prefix, listener, self._name(f"{prefix}connection-accept-throttle-time", tags))
            for prefix in ("", "ip-")
        )

        def close() -> None:
            for name in (sensor_name, throttle_time.name, ip_throttle_time.name):
                self._metrics.remove_sensor(name)

        return ListenerRates(connections, throttle_time, ip_throttle_time, close)

    def ip(self, address: str, limit: int) -> ConnectionRate:
        """Returns the rate of an address: a new one with this limit, or the existing one (see `update_ip`)."""
        return self._rate(
            f"{_SENSOR}-{_IP_TAG}-{address}", self._ip_name(address), limit, _IP_SENSOR_EXPIRATION_SECONDS
        )

    def update_ip(self, address: str, limit: int) -> None:
        """Changes the limit of an address that has opened connections under one before."""
        metric = self._metrics.metric(self._ip_name(address))
        if metric is not None:
            metric.reconfigure(self._window.with_quota(Quota(limit)))

    def update_all_ips(self, limit_of: Callable[[str], int]) -> None:
        """Updates the limit of every measured address, after the default limit has changed."""
        for name in self._metrics.metrics:
            if name.name == _METRIC and name.group == METRICS_GROUP and _IP_TAG in name.tags:
                address = name.tags[_IP_TAG]
                self.update_ip(address, limit_of(address))

    def close(self) -> None:
        """Removes the broker's sensor. Those of addresses expire by themselves."""
        self._metrics.remove_sensor(_SENSOR)

    def _rate(
        self, sensor_name: str, metric_name: MetricName, limit: int, expiration_seconds: int | None = None
    ) -> ConnectionRate:
        while True:
            sensor = self._metrics.get_sensor(sensor_name)
            metric = self._metrics.metric(metric_name)
            if sensor is not None and metric is not None:
                return ConnectionRate(sensor, metric, self._window.window_ms)
            config = self._window.with_quota(Quota(limit))
            sensor = self._metrics.sensor(sensor_name, config, expiration_seconds)
            if not sensor.add(metric_name, Rate()):
                # It expired during the lookup: replace it.
                self._metrics.remove_sensor(sensor_name)

    def _throttle_time(self, prefix: str, listener: str, metric_name: MetricName) -> Sensor:
        sensor = self._metrics.sensor(f"{prefix}ConnectionRateThrottleTime-{listener}")
        sensor.add(metric_name, Avg())
        return sensor

    def _ip_name(self, address: str) -> MetricName:
        return self._name(_METRIC, {_IP_TAG: address})

    def _name(self, name: str, tags: Mapping[str, str]) -> MetricName:
        description = (
            "Mean delay of the throttled connections, in milliseconds"
            if name.endswith("throttle-time")
            else "Connections accepted per second"
        )
        return self._metrics.metric_name(name, METRICS_GROUP, tags, description)
