"""The broker's side of client telemetry (KIP-714): subscriptions, and pushed metrics."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    ApiError,
    CorruptRecordError,
    Errors,
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from barnabas.common.identifiers import METADATA_TOPIC_ID, ZERO_UUID, Uuid, random_uuid, uuid_to_string
from barnabas.common.log_safety import LimitedLogger
from barnabas.metrics.registry import Metrics
from barnabas.records.batch import CompressionType
from barnabas.records.compression import decompress
from barnabas.server.timer import Timer, TimerClosedError, TimerTask
from barnabas.telemetry.client_metrics_stats import ClientMetricsStats
from barnabas.telemetry.exporter import ClientTelemetryContext, ClientTelemetryExporter, ClientTelemetryPayload
from barnabas.telemetry.subscription_info import ClientSubscription, SubscriptionInfo

if TYPE_CHECKING:
    from barnabas.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
    )
    from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
    from barnabas.telemetry.client_metrics_instance import ClientMetricsInstance
    from barnabas.telemetry.telemetry_client import TelemetryClient

logger = LimitedLogger(logging.getLogger(__name__))

ACCEPTED_COMPRESSION_TYPES: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
"""In order of preference."""
CACHE_MAX_SIZE: Final = 16_384
CACHE_EXPIRY_MS: Final = 60_000
"""The minimum time that an inactive client stays in the cache; three intervals if that is longer."""
CACHE_WARNING_INTERVAL_MS: Final = 5 * 60 * 1000
REAPER_NAME: Final = "client-metrics-reaper"
TIMER_NAME: Final = "client-metrics"
_RESERVED: Final = frozenset({ZERO_UUID, METADATA_TOPIC_ID})
_PREFERENCE: Final = [int(one) for one in ACCEPTED_COMPRESSION_TYPES]
_NEVER: Final = -(2**62)


class ClientMetricsManager:
    """Manages subscriptions and client instances, and handles the two requests of KIP-714::

        client                                              broker
          | GetTelemetrySubscriptions(id 0)        ------->  assigns an ID, matches the subscriptions
          | <-- id, subscription id, metrics, interval P --
          |   waits, for 0.5 P to 1.5 P
          | PushTelemetry(id, subscription id, OTLP) ----->  validates, calls the exporters
          | <---------------------------------- NONE ------
          |   waits for P, pushes again, ...                 a subscription changes
          | PushTelemetry(id, old subscription id)  ------>
          | <------------- UNKNOWN_SUBSCRIPTION_ID --------  the client requests its subscription at once

    Brokers do this independently. A client that connects to another broker keeps its ID, and the subscription ID is the
    same there, so brokers share no state.

    **Memory.** The cache holds at most 16,384 clients, and evicts the least recently active one. A client is also
    removed when its connection ends, and after three intervals without a request (at least a minute). A client that
    returns loses only the state of its rate limiting. If the cache is too small, clients are evicted early, which is
    logged once in five minutes.

    **Changes.** Subscriptions have a version. A client whose subscription has an older version gets a new one with its
    next request of either type.

    **Locks.** `_lock` guards everything here: subscriptions, cache, connections, and the fields of the instances. A
    client sends a request once in minutes, so one lock is enough. Only the timer's lock is taken inside it; payloads
    are decompressed and exported outside.
    """

    def __init__(
        self,
        exporter: ClientTelemetryExporter,
        telemetry_max_bytes: int,
        timer: Timer,
        clock: Clock,
        metrics: Metrics,
        *,
        cache_size: int = CACHE_MAX_SIZE,
        new_id: Callable[[], Uuid] = random_uuid,
    ) -> None:
        """The caller advances and closes `timer`."""
        self._exporter = exporter
        self._max_bytes = telemetry_max_bytes
        self._timer = timer
        self._clock = clock
        self._cache_size = cache_size
        self._new_id = new_id
        self._lock = threading.Lock()
        """See above."""
        self._subscriptions: dict[str, SubscriptionInfo] = {}
        self._version = 0
        self._instances: OrderedDict[Uuid, ClientMetricsInstance] = OrderedDict()
        """Least recently active first."""
        self._connections: dict[str, Uuid] = {}
        self._warned_ms = _NEVER
        self._stats = ClientMetricsStats(metrics, lambda: len(self._instances))

    # -- subscriptions

    def update_subscription(self, name: str, subscription: SubscriptionInfo | None) -> None:
        """Sets a subscription; None deletes it."""
        with self._lock:
            if subscription is not None:
                self._subscriptions[name] = subscription
            elif self._subscriptions.pop(name, None) is None:
                return
            self._version += 1
        logger.info("Metrics subscription %s: %s", name, "deleted" if subscription is None else subscription)

    @property
    def subscriptions(self) -> dict[str, SubscriptionInfo]:
        with self._lock:
            return dict(self._subscriptions)

    @property
    def has_subscriptions(self) -> bool:
        """Whether any subscription exists."""
        return bool(self._subscriptions)

    # -- requests

    def process_get_telemetry_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, client: TelemetryClient
    ) -> GetTelemetrySubscriptionsResponse:
        from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

        now_ms = self._clock.hi_res_milliseconds()
        with self._lock:
            client_instance_id = request.client_instance_id
            if client_instance_id == ZERO_UUID:
                client_instance_id = self._unused_id()
            instance = self._instance(client_instance_id, client)
            evicted = self._evict()
            if accepted := instance.maybe_update_get_request_timestamp(now_ms):
                instance.last_known_error = Errors.NONE
            subscription = instance.subscription
        if evicted is not None:
            self._report_eviction(evicted)
        if not accepted:
            self._stats.record_throttle(client_instance_id)
            logger.debug("%s requests its subscription before its interval has ended", client)
            return GetTelemetrySubscriptionsResponse(error_code=Errors.THROTTLING_QUOTA_EXCEEDED)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=subscription.subscription_id,
            accepted_compression_types=_PREFERENCE,
            push_interval_ms=subscription.push_interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
            requested_metrics=list(subscription.metrics),
        )

    def process_push_telemetry(self, request: PushTelemetryRequest, client: TelemetryClient) -> PushTelemetryResponse:
        from barnabas.protocol.messages.push_telemetry import PushTelemetryResponse

        if request.client_instance_id in _RESERVED:
            logger.debug("%s pushes without a client instance ID", client)
            return PushTelemetryResponse(error_code=Errors.INVALID_REQUEST)
        now_ms = self._clock.hi_res_milliseconds()
        with self._lock:
            instance = self._instance(request.client_instance_id, client)
            evicted = self._evict()
            subscription = instance.subscription
            refusal: ApiError | None = None
            try:
                self._validate_push(request, instance, now_ms)
            except ApiError as error:
                refusal = error
            instance.terminating |= request.terminating
        if evicted is not None:
            self._report_eviction(evicted)
        if refusal is None and request.metrics:
            refusal = self._export(request, client, subscription)
        error_code = Errors.NONE if refusal is None else Errors.for_exception(refusal)
        if refusal is not None:
            logger.debug("Rejecting a push of %s with %s: %s", client, error_code.name, refusal)
        with self._lock:
            instance.last_known_error = error_code
        return PushTelemetryResponse(error_code=error_code)

    def _validate_push(self, request: PushTelemetryRequest, instance: ClientMetricsInstance, now_ms: int) -> None:
        if instance.terminating:
            raise InvalidRequestError("The client has already sent its terminating push.")
        # A terminating client cannot wait, and its last metrics are the most useful.
        if not instance.maybe_update_push_request_timestamp(now_ms) and not request.terminating:
            self._stats.record_throttle(instance.client_instance_id)
            raise ThrottlingQuotaExceededError("The push arrived before the interval has ended.")
        if request.subscription_id != instance.subscription.subscription_id:
            self._stats.record_unknown_subscription()
            raise UnknownSubscriptionIdError(
                f"Unknown subscription ID {request.subscription_id}; the client's is {instance.subscription}."
            )
        if request.compression_type not in CompressionType._value2member_map_:
            raise UnsupportedCompressionTypeError(f"Unknown compression type {request.compression_type}.")
        if len(request.metrics) > self._max_bytes:
            raise TelemetryTooLargeError(f"The metrics have {len(request.metrics)} bytes, more than {self._max_bytes}.")

    def _export(
        self, request: PushTelemetryRequest, client: TelemetryClient, subscription: ClientSubscription
    ) -> ApiError | None:
        """Passes a push to the exporters; returns an error of the push or of an exporter."""
        client_instance_id = request.client_instance_id
        compression = CompressionType(request.compression_type)
        try:
            data = bytes(decompress(compression, request.metrics, self._max_bytes))
        except CorruptRecordError as error:
            if f"larger than {self._max_bytes} bytes when decompressed" in str(error):
                return TelemetryTooLargeError(str(error))
            return InvalidRecordError(f"Cannot decompress the metrics: {error}")
        started_ns = self._clock.nanoseconds()
        try:
            self._exporter.export_metrics(
                ClientTelemetryContext(
                    client, subscription.push_interval_ms, subscription.subscription_id, self._clock.milliseconds()
                ),
                ClientTelemetryPayload(client_instance_id, request.terminating, data, compression),
            )
        except Exception as error:
            self._stats.record_plugin_error(client_instance_id)
            logger.exception("An exporter failed for metrics of client %s", uuid_to_string(client_instance_id))
            return InvalidRecordError(f"An exporter failed: {error}")
        self._stats.record_plugin_export(client_instance_id, (self._clock.nanoseconds() - started_ns) / 1_000_000)
        return None

    # -- instances; with the lock held

    def _unused_id(self) -> Uuid:
        while (client_instance_id := self._new_id()) in self._instances:
            pass
        return client_instance_id

    def _instance(self, client_instance_id: Uuid, client: TelemetryClient) -> ClientMetricsInstance:
        """Returns the instance, created or with an updated subscription; restarts its expiration."""
        from barnabas.telemetry.client_metrics_instance import ClientMetricsInstance

        instance = self._instances.get(client_instance_id)
        if instance is None:
            subscription = self._subscription(client_instance_id, client)
            instance = ClientMetricsInstance(client_instance_id, client.connection_id, subscription, self._version)
            self._instances[client_instance_id] = instance
        else:
            self._instances.move_to_end(client_instance_id)
            if instance.subscription_version < self._version:
                instance.update_subscription(self._subscription(client_instance_id, client), self._version)
            if instance.connection_id != client.connection_id:
                self._connections.pop(instance.connection_id, None)
                instance.connection_id = client.connection_id
        self._connections[client.connection_id] = client_instance_id
        self._restart_expiration(instance)
        return instance

    def _evict(self) -> Uuid | None:
        """Removes the least recently active client, if there are too many; returns its ID."""
        if len(self._instances) <= self._cache_size:
            return None
        client_instance_id, instance = self._instances.popitem(last=False)
        # Its timer would keep it in memory: a client that requests a new ID each time could fill the memory.
        instance.cancel_expiration()
        self._forget_connection(instance)
        return client_instance_id

    def _subscription(self, client_instance_id: Uuid, client: TelemetryClient) -> ClientSubscription:
        return ClientSubscription.of(self._subscriptions.values(), client_instance_id, client)

    def _restart_expiration(self, instance: ClientMetricsInstance) -> None:
        instance.cancel_expiration()
        delay_ms = max(CACHE_EXPIRY_MS, 3 * instance.subscription.push_interval_ms)
        instance.expiration = _Expiration(self, instance, delay_ms)
        try:
            self._timer.add(instance.expiration)
        except TimerClosedError:
            instance.expiration = None  # the broker is shutting down

    # -- removal

    def expired(self, instance: ClientMetricsInstance, task: TimerTask) -> None:
        """Removes a client that was inactive for too long; called by the timer."""
        with self._lock:
            if instance.expiration is not task:
                return  # a request has just arrived
            instance.expiration = None
            del self._instances[instance.client_instance_id]
            self._forget_connection(instance)
        self._stats.forget(instance.client_instance_id)

    def _report_eviction(self, client_instance_id: Uuid) -> None:
        """Removes the metrics of an evicted client, and logs a warning once in a while."""
        with self._lock:
            is_back = client_instance_id in self._instances
            now_ms = self._clock.hi_res_milliseconds()
            warn = now_ms - self._warned_ms > CACHE_WARNING_INTERVAL_MS
            if warn:
                self._warned_ms = now_ms
        if not is_back:
            self._stats.forget(client_instance_id)
        if warn:
            logger.warning(
                "Evicted client %s early: more than %d clients push metrics",
                uuid_to_string(client_instance_id),
                self._cache_size,
            )

    def on_disconnect(self, connection_id: str) -> None:
        """Removes the client of a closed connection: the listener of the socket server."""
        with self._lock:
            client_instance_id = self._connections.pop(connection_id, None)
            if client_instance_id is None:
                return
            instance = self._instances.pop(client_instance_id, None)
            if instance is not None:
                instance.cancel_expiration()
        self._stats.forget(client_instance_id)

    def _forget_connection(self, instance: ClientMetricsInstance) -> None:
        if self._connections.get(instance.connection_id) == instance.client_instance_id:
            del self._connections[instance.connection_id]

    def instance(self, client_instance_id: Uuid) -> ClientMetricsInstance | None:
        """Returns a client in the cache, or None."""
        with self._lock:
            return self._instances.get(client_instance_id)

    @property
    def connections(self) -> dict[str, Uuid]:
        """The clients in the cache, by their connections."""
        with self._lock:
            return dict(self._connections)

    def close(self) -> None:
        """Removes the metrics. The owner of the timer closes it."""
        with self._lock:
            ids = list(self._instances)
            for instance in self._instances.values():
                instance.cancel_expiration()
            self._instances.clear()
            self._connections.clear()
            self._subscriptions.clear()
        for client_instance_id in ids:
            self._stats.forget(client_instance_id)
        self._stats.close()


class _Expiration(TimerTask):
    """Expires a client."""

    __slots__ = ("_instance", "_manager")

    def __init__(self, manager: ClientMetricsManager, instance: ClientMetricsInstance, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._manager = manager
        self._instance = instance

    def run(self) -> None:
        self._manager.expired(self._instance, self)
