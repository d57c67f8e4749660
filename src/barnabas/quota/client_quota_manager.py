"""The base of client quotas: measures usage, looks up limits and throttles clients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.stats import Avg, CumulativeSum, Rate
from barnabas.metrics.throttle import throttle_time
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import QuotaEntity, QuotaLevel, QuotaTags
from barnabas.quota.quota_limits import QuotaLimits
from barnabas.quota.quota_type import QuotaType
from barnabas.quota.sanitizer import sanitize
from barnabas.quota.throttled_channel import DelayQueue, ThrottledChannel, ThrottledChannelReaper
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.server.request import Request
from barnabas.server.throttling import ThrottleCallback

if TYPE_CHECKING:
    from barnabas.quota.client_quota_callback import ClientQuotaCallback

logger = logging.getLogger(__name__)

INACTIVE_SENSOR_EXPIRATION_SECONDS: Final = 3_600
"""The sensors of a client expire after an idle hour (Q11). If it returns, its usage starts at zero."""

NO_LIMIT: Final = float(2**63 - 1)
MAX_THROTTLE_MS: Final = 2**31 - 1
"""The maximum of ``throttle_time_ms``: 24 days."""

_SINGLE_LEVELS: Final = frozenset(
    level.value for level in (QuotaLevel.NONE, QuotaLevel.CLIENT_ID, QuotaLevel.USER, QuotaLevel.USER_CLIENT_ID)
)
_CACHE_SWEEP: Final = 1_024


class ClientSensors(NamedTuple):
    """The sensors of the clients that share a quota."""

    key: Hashable
    """The key of the limit."""
    tags: Mapping[str, str]
    quota_sensor: Sensor
    throttle_time_sensor: Sensor


class ClientQuotaManager:
    """Measures the usage of clients, and throttles those that exceed their quota.

    Each group of clients that share a quota has one sensor. The level at which their limit was found determines the
    group (`QuotaLimits`). The sensor's metric has the limit in its configuration and the usage in its windows. So a new
    limit is a new configuration of the metric, and the past usage stays (Q10).

    The path of a request, with ``producer_byte_rate`` = 1,000,000 for the user alice and 11 windows of one second:

    1. After it was handled, it is charged: 300,000 bytes, 10.5 seconds after the first. They go to the sensor of all
       clients of alice, which has recorded 10,350,000 bytes before.
    2. The rate is now 10,650,000 / 10.5 s, which is 1,014,286 and exceeds the limit.
    3. The throttle time is (1,014,286 - 1,000,000) / 1,000,000 x 10.5 s = 150 ms. If everything had taken that much
       longer, the rate would be at the limit (Q04).
    4. The response is sent at once with ``throttle_time_ms`` = 150, for a client that obeys it. For one that does not,
       its connection is muted and put into the delay queue (`throttle`), and unmuted by the reaper (Q05).

    Without any quota this costs reading one number (Q03).

    **Locks.** `_lock` guards the limits and the creation of sensors, so that a sensor is never created with an outdated
    limit. The locks of the registry and of sensors are taken inside it. Recording takes only the sensor's lock.
    """

    def __init__(
        self,
        windows: QuotaWindows,
        metrics: Metrics,
        quota_type: QuotaType,
        clock: Clock,
        *,
        thread_name_prefix: str = "",
        callback: ClientQuotaCallback | None = None,
    ) -> None:
        self.windows = windows
        self.quota_type = quota_type
        self._client_type = quota_type.client_quota_type
        self._metrics = metrics
        self._clock = clock
        self._config = windows.metric_config
        self._callback = callback
        self._limits = QuotaLimits()
        if callback is not None:
            self._limits.levels = QuotaLevel.CUSTOM.value
        self.is_enabled = callback is not None
        """Whether any such quota exists. Stored, because every request reads it."""
        self._lock = threading.RLock()
        """See above. Re-entrant, because a callback may be called with it held and call back."""
        self._sensors: dict[Hashable, ClientSensors] = {}
        """Only complete entries, so that reads need no lock. Some may have expired: see `sensors_of`."""
        self._sweep_at = _CACHE_SWEEP
        self._on_enabled: Callable[[bool], object] | None = None

        self._queue_size = metrics.sensor(f"{quota_type}-delayQueue")
        self._queue_size.add(
            metrics.metric_name("queue-size", str(quota_type), description="The number of throttled connections"),
            CumulativeSum(),
        )
        self._delay_queue = DelayQueue(clock)
        self._reaper = ThrottledChannelReaper(
            f"{thread_name_prefix}ThrottledChannelReaper-{quota_type}", self._delay_queue, self._queue_size, clock
        )

    # -- request path

    @property
    def levels(self) -> QuotaLevel:
        """The levels that have limits."""
        return QuotaLevel(self._limits.levels)

    def record_and_get_throttle_time_ms(
        self, principal: KafkaPrincipal | None, client_id: str | None, value: float, now_ms: int
    ) -> int:
        """Charges a client; returns its throttle time, or 0."""
        sensor = self.sensors_of(principal, client_id).quota_sensor
        try:
            sensor.record(value, now_ms)
        except QuotaViolationError as violation:
            delay_ms = min(self._throttle_time(violation, now_ms), MAX_THROTTLE_MS)
            logger.debug("%s: throttle time %d ms", violation, delay_ms)
            return delay_ms
        return 0

    def record_no_throttle(self, principal: KafkaPrincipal | None, client_id: str | None, value: float) -> None:
        """Charges a client for usage that is known too late to throttle it. Its next request is throttled."""
        sensor = self.sensors_of(principal, client_id).quota_sensor
        sensor.record(value, self._clock.milliseconds(), check_quotas=False)

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        """Mutes a client now, and unmutes it after that time."""
        if throttle_time_ms <= 0:
            return
        sensors = self.sensors_of(principal_of(request), request.client_id)
        sensors.throttle_time_sensor.record(throttle_time_ms)
        self._delay(throttle_time_ms, callback)

    def _delay(self, throttle_time_ms: int, callback: ThrottleCallback) -> None:
        channel = ThrottledChannel(self._clock, throttle_time_ms, callback)
        # Counted before the reaper can remove it, so that the size is never negative.
        self._queue_size.record()
        self._delay_queue.add(channel)
        self._reaper.start_once()

    def _throttle_time(self, violation: QuotaViolationError, now_ms: int) -> int:
        return throttle_time(violation, now_ms)

    # -- sensors

    def sensors_of(self, principal: KafkaPrincipal | None, client_id: str | None) -> ClientSensors:
        """Returns the sensors of a client, and creates them if needed."""
        callback = self._callback
        key: Hashable
        if callback is None:
            name = ANONYMOUS.name if principal is None else principal.name
            key = self._limits.tags_of(name, client_id or "")
        else:
            tags = callback.quota_metric_tags(self._client_type, principal or ANONYMOUS, client_id or "")
            key = tuple(tags.items())
        sensors = self._sensors.get(key)
        if sensors is None or not self._is_registered(sensors):
            sensors = self._make_sensors(key)
        if callback is not None and callback.quota_reset_required(self._client_type):
            self.update_quota_metric_configs()
        return sensors

    def _is_registered(self, sensors: ClientSensors) -> bool:
        """Returns whether both sensors are still registered."""
        get = self._metrics.get_sensor
        quota, throttle = sensors.quota_sensor, sensors.throttle_time_sensor
        return get(quota.name) is quota and get(throttle.name) is throttle

    def _make_sensors(self, key: Hashable) -> ClientSensors:
        tags = _metric_tags(key)
        suffix = ":".join(tags.values())
        with self._lock:
            sensors = ClientSensors(
                key,
                tags,
                self._sensor(f"{self.quota_type}-{suffix}", lambda sensor: self._add_quota_metrics(sensor, key, tags)),
                self._sensor(
                    f"{self.quota_type}ThrottleTime-{suffix}",
                    lambda sensor: sensor.add(self.throttle_metric_name(tags), Avg()),
                ),
            )
            if len(self._sensors) >= self._sweep_at:
                self._sensors = {key: known for key, known in self._sensors.items() if self._is_registered(known)}
                self._sweep_at = max(_CACHE_SWEEP, 2 * len(self._sensors))
            self._sensors[key] = sensors
            return sensors

    def _sensor(
        self,
        name: str,
        add_metrics: Callable[[Sensor], bool],
        expiration_seconds: int | None = INACTIVE_SENSOR_EXPIRATION_SECONDS,
    ) -> Sensor:
        while True:
            sensor = self._metrics.sensor(name, inactive_sensor_expiration_seconds=expiration_seconds)
            if add_metrics(sensor):
                return sensor
            self._metrics.remove_sensor(name)  # it has expired but is not removed yet

    def _add_quota_metrics(self, sensor: Sensor, key: Hashable, tags: Mapping[str, str]) -> bool:
        return sensor.add(self.quota_metric_name(tags), Rate(), self._quota_config(self._limit(key)))

    def _quota_config(self, limit: float) -> MetricConfig:
        return self._config.with_quota(Quota(limit))

    def quota_metric_name(self, tags: Mapping[str, str]) -> MetricName:
        """The metric with the limit and the usage."""
        return self._metrics.metric_name("byte-rate", str(self.quota_type), tags, "Bytes per second of these clients")

    def throttle_metric_name(self, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(
            "throttle-time", str(self.quota_type), tags, "Mean throttle time of these clients, in ms"
        )

    # -- limits

    def quota(self, user: str, client_id: str) -> float:
        """Returns the limit of a client."""
        if self._callback is None:
            return self._limit(self._limits.tags_of(user, client_id))
        principal = KafkaPrincipal(ANONYMOUS.type, user)
        return self._limit(tuple(self._callback.quota_metric_tags(self._client_type, principal, client_id).items()))

    def _limit(self, key: Hashable) -> float:
        limit = self._known_limit(key)
        return NO_LIMIT if limit is None else limit

    def _known_limit(self, key: Hashable) -> float | None:
        if self._callback is not None:
            return self._callback.quota_limit(self._client_type, _metric_tags(key))
        assert isinstance(key, QuotaTags)
        return self._limits.limit_of(key)

    def update_quota(self, entity: QuotaEntity, limit: float | None) -> None:
        """Sets the limit of an entity; None removes it. It applies from the next request on, and resets nothing."""
        was_enabled = self.is_enabled
        with self._lock:
            if self._callback is not None:
                if limit is None:
                    self._callback.remove_quota(self._client_type, entity)
                else:
                    self._callback.update_quota(self._client_type, entity, limit)
            elif limit is None:
                self._limits.remove(entity)
            else:
                self._limits.update(entity, limit)
            self.is_enabled = self._limits.levels != 0
            logger.info(
                "%s quota of %s %s", self.quota_type, entity, "removed" if limit is None else f"set to {limit:g}"
            )
            self.update_quota_metric_configs(entity)
        if self._on_enabled is not None and was_enabled != self.is_enabled:
            self._on_enabled(self.is_enabled)

    def when_enabled(self, listener: Callable[[bool], object]) -> None:
        """Calls a listener with whether quotas exist, now and at every change."""
        self._on_enabled = listener
        listener(self.is_enabled)

    def update_quota_metric_configs(self, entity: QuotaEntity | None = None) -> None:
        """Looks up limits again: of one entity if only that can have changed, else of all clients."""
        with self._lock:
            if entity is None or entity.has_default or self._limits.levels not in _SINGLE_LEVELS:
                affected = list(self._sensors.values())
            else:
                found = self._sensors.get(QuotaTags(str(entity.user or ""), str(entity.client_id or "")))
                affected = [] if found is None else [found]
            for sensors in affected:
                metric = self.metric(sensors)
                if metric is None:
                    continue
                limit = self._limit(sensors.key)
                if metric.config.quota is None or metric.config.quota.bound != limit:
                    metric.reconfigure(self._quota_config(limit))

    def metric(self, sensors: ClientSensors) -> KafkaMetric | None:
        """Returns the metric with the limit and the usage; None if it has expired."""
        return self._metrics.metric(self.quota_metric_name(sensors.tags))

    def all_sensors(self) -> list[ClientSensors]:
        """Returns the sensors of all clients that are or were recently active."""
        with self._lock:
            return [sensors for sensors in self._sensors.values() if self._is_registered(sensors)]

    def throttle_time_metric(self, sensors: ClientSensors) -> KafkaMetric | None:
        return self._metrics.metric(self.throttle_metric_name(sensors.tags))

    @property
    def throttled_channels(self) -> int:
        """The number of connections in the delay queue."""
        return len(self._delay_queue)

    # -- shutdown

    def initiate_shutdown(self) -> None:
        self._reaper.initiate_shutdown()

    def shutdown(self) -> None:
        self.initiate_shutdown()
        self._reaper.await_shutdown()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.quota_type}, {self.levels!r}, {len(self._sensors)} groups of clients)"


def principal_of(request: Request) -> KafkaPrincipal | None:
    """Returns the principal of a request; for a forwarded one, that of the original client."""
    if request.envelope is not None:
        return request.request_context.principal
    principal: KafkaPrincipal | None = request.context.principal
    return principal


def _metric_tags(key: Hashable) -> Mapping[str, str]:
    if isinstance(key, QuotaTags):
        return {"user": sanitize(key.user), "client-id": key.client_id}
    assert isinstance(key, tuple)
    return dict(key)
