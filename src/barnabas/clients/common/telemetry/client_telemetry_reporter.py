"""Client telemetry (KIP-714): the state machine, without I/O."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.clients.common.telemetry.client_telemetry_state import ClientTelemetryState
from barnabas.clients.common.telemetry.metrics_collector import MetricsCollector
from barnabas.common.clock import Clock
from barnabas.common.errors import ApiError, BarnabasError, Errors, KafkaTimeoutError, UnsupportedVersionError
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_to_string
from barnabas.metrics.registry import Metrics
from barnabas.network.client.inflight import FOREVER
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.records.batch import CompressionType
from barnabas.records.compression import compress

log = logging.getLogger(__name__)

DEFAULT_PUSH_INTERVAL_MS: Final = 5 * 60 * 1000
"""Used after a missing response, or one without an interval."""
INITIAL_PUSH_JITTER: Final = (0.5, 1.5)
"""The first push comes after this fraction of the interval, so that clients started together do not push together."""

State = ClientTelemetryState
_SUBSCRIPTION_NEEDED: Final = State.SUBSCRIPTION_NEEDED
_PUSH_NEEDED: Final = State.PUSH_NEEDED

_AT_ONCE: Final = frozenset({Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors after which the subscription is requested again at once."""
_NEXT_INTERVAL: Final = frozenset({Errors.TELEMETRY_TOO_LARGE, Errors.THROTTLING_QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class ClientTelemetrySubscription:
    """The metrics that the broker has subscribed to."""

    client_instance_id: Uuid
    subscription_id: int
    push_interval_ms: int
    accepted_compression_types: Sequence[CompressionType]
    delta_temporality: bool
    requested_metrics: Sequence[str]

    @property
    def wants_nothing(self) -> bool:
        return not self.requested_metrics

    def selects(self, name: str) -> bool:
        if len(self.requested_metrics) == 1 and self.requested_metrics[0] == "*":
            return True
        return name.startswith(tuple(self.requested_metrics))


class ClientTelemetryReporter:
    """Decides when to request the subscription, when and what to push, and handles the responses.

    It does no I/O. The caller (`TelemetrySender`) checks `time_to_next_update`, sends the result of `create_request`,
    and calls `handle_response`, or `handle_failed_request` if there was none. Producer, consumer and admin client use
    it alike; they differ in their metrics and labels.

    ==============================  ================================================================================
    the broker says                 the client
    ==============================  ================================================================================
    a subscription                  pushes after 0.5 to 1.5 intervals, then once an interval
    an empty subscription           asks again after the interval
    UNKNOWN_SUBSCRIPTION_ID         asks again at once
    UNSUPPORTED_COMPRESSION_TYPE    the same, and does not use that type again
    TELEMETRY_TOO_LARGE             asks again after the interval
    THROTTLING_QUOTA_EXCEEDED       the same
    nothing, the connection breaks  asks again after five minutes
    it does not know the request    stops, without a log message
    any other error                 stops
    ==============================  ================================================================================

    The client instance id, which the broker assigns with the first subscription, stays the same for the client's
    lifetime.

    When the client is closed, a *terminating* push sends the metrics since the last push, without waiting for the
    interval.
    """

    def __init__(self, kind: str, metrics: Metrics, labels: Mapping[str, str], clock: Clock, random: Random) -> None:
        """``kind`` names the client in the log, such as ``producer``; empty labels are ignored."""
        self.kind = kind
        self._collector = MetricsCollector(metrics, clock)
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        """Guards the fields below, which the I/O thread and the closing thread change. Only the locks of the registry
        and its sensors are taken inside it."""
        self._changed = threading.Condition(self._lock)
        """Notified of a subscription."""
        self._labels = {key: text for key, text in labels.items() if text}
        self._state = State.SUBSCRIPTION_NEEDED
        self._subscription: ClientTelemetrySubscription | None = None
        self._refused_types: set[CompressionType] = set()
        self._pushed_type = CompressionType.NONE
        self._enabled = True
        self._last_request_ms: int | None = None
        self._interval_ms = 0

    @property
    def state(self) -> ClientTelemetryState:
        return self._state

    @property
    def is_enabled(self) -> bool:
        return self._enabled

    @property
    def subscription(self) -> ClientTelemetrySubscription | None:
        return self._subscription

    @property
    def has_last_push(self) -> bool:
        """Whether the client is closed and its last push has not been sent."""
        return self._enabled and self._state is State.TERMINATING_PUSH_NEEDED

    def update_labels(self, labels: Mapping[str, str]) -> None:
        """Adds labels, such as the member id in the group."""
        with self._lock:
            self._labels = {**self._labels, **labels}

    # -- decisions

    def time_to_next_update(self, request_timeout_ms: int, now: int) -> int:
        """Returns how long there is nothing to send; 0: call `create_request`. ``now`` is monotonic time."""
        with self._lock:
            if not self._enabled:
                return FOREVER
            state = self._state
            # Not with sets: hashing an enum member is a call, and this runs in every I/O iteration.
            if state is not _SUBSCRIPTION_NEEDED and state is not _PUSH_NEEDED:
                if state is State.TERMINATING_PUSH_IN_PROGRESS or state is State.TERMINATED:
                    return FOREVER
                return 0 if state is State.TERMINATING_PUSH_NEEDED else request_timeout_ms
            last_ms = self._last_request_ms
            return 0 if last_ms is None else max(last_ms + self._interval_ms - now, 0)

    def create_request(self) -> Request | None:
        """Returns the request to send now, if any."""
        with self._lock:
            subscription = self._subscription
            if self._state is State.SUBSCRIPTION_NEEDED:
                self._become(State.SUBSCRIPTION_IN_PROGRESS)
                known = ZERO_UUID if subscription is None else subscription.client_instance_id
                return GetTelemetrySubscriptionsRequest(client_instance_id=known)
            if subscription is None or self._state not in {State.PUSH_NEEDED, State.TERMINATING_PUSH_NEEDED}:
                return None
            terminating = self._state is State.TERMINATING_PUSH_NEEDED
            self._become(State.TERMINATING_PUSH_IN_PROGRESS if terminating else State.PUSH_IN_PROGRESS)
            labels = self._labels
        payload = self._collector.collect(subscription.selects, labels, delta=subscription.delta_temporality)
        compression = self._preferred_compression(subscription)
        self._pushed_type = compression
        return PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=compression,
            metrics=payload if compression is CompressionType.NONE else bytes(compress(compression, payload)),
        )

    def _preferred_compression(self, subscription: ClientTelemetrySubscription) -> CompressionType:
        for accepted in subscription.accepted_compression_types:
            if accepted not in self._refused_types:
                return accepted
        return CompressionType.NONE

    # -- outcome

    def handle_response(self, response: Response) -> None:
        if isinstance(response, GetTelemetrySubscriptionsResponse):
            self._handle_subscription(response)
        elif isinstance(response, PushTelemetryResponse):
            self._handle_push(response)
        else:
            raise TypeError(f"{response!r} is no response to a request of telemetry")

    def _handle_subscription(self, response: GetTelemetrySubscriptionsResponse) -> None:
        error = Errors.for_code(response.error_code)
        with self._lock:
            if self._state.is_terminating:
                return
            if error is not Errors.NONE:
                self._handle_error(error)
                return
            before = self._subscription
            known = response.client_instance_id
            if known == ZERO_UUID:
                self._stop("the broker has given it no id")
                return
            subscription = ClientTelemetrySubscription(
                known,
                response.subscription_id,
                response.push_interval_ms if response.push_interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS,
                _compression_types(response.accepted_compression_types),
                response.delta_temporality,
                tuple(response.requested_metrics),
            )
            if before is not None and before.delta_temporality != subscription.delta_temporality:
                self._collector.reset()
            self._subscription = subscription
            self._last_request_ms = self._clock.hi_res_milliseconds()
            self._interval_ms = subscription.push_interval_ms
            if subscription.wants_nothing:
                self._become(State.SUBSCRIPTION_NEEDED)
            else:
                self._become(State.PUSH_NEEDED)
                self._interval_ms = round(self._interval_ms * self._random.uniform(*INITIAL_PUSH_JITTER))
            log.debug("The %s is %s to the cluster: %r", self.kind, uuid_to_string(known), subscription)
            self._changed.notify_all()

    def _handle_push(self, response: PushTelemetryResponse) -> None:
        error = Errors.for_code(response.error_code)
        with self._lock:
            if self._state is State.TERMINATING_PUSH_IN_PROGRESS:
                self._become(State.TERMINATED)
            if error is Errors.NONE:
                self._collector.pushed()
            else:
                self._collector.refused()
            if self._state.is_terminating:
                return
            if error is not Errors.NONE:
                if error is Errors.UNSUPPORTED_COMPRESSION_TYPE:
                    self._refused_types.add(self._pushed_type)
                self._handle_error(error)
                return
            assert self._subscription is not None
            self._become(State.PUSH_NEEDED)
            self._last_request_ms = self._clock.hi_res_milliseconds()
            self._interval_ms = self._subscription.push_interval_ms

    def _handle_error(self, error: Errors) -> None:
        """Handles an error code. The lock must be held."""
        self._become(State.SUBSCRIPTION_NEEDED)
        if error in _AT_ONCE:
            self._wait(0)
        elif error in _NEXT_INTERVAL:
            subscription = self._subscription
            self._wait(DEFAULT_PUSH_INTERVAL_MS if subscription is None else subscription.push_interval_ms)
        else:
            self._stop(f"the broker says {error.name}")

    def handle_failed_request(self, error: BarnabasError | None) -> None:
        """Handles a missing response: the connection broke, or, with an error, the request could not be sent."""
        with self._lock:
            # It may have arrived. Counting once too little is better than twice.
            self._collector.pushed()
            if self._state.is_terminating:
                if self._state is not State.TERMINATED:
                    self._become(State.TERMINATED)
                return
            self._become(State.SUBSCRIPTION_NEEDED)
            if error is None or (isinstance(error, ApiError) and error.retriable):
                self._wait(DEFAULT_PUSH_INTERVAL_MS)
            elif isinstance(error, UnsupportedVersionError):
                # Most clusters have no metrics receiver, so this is no reason to warn.
                log.debug("The cluster takes no metrics of clients")
                self._disable()
            else:
                self._stop(str(error))

    def _wait(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._last_request_ms = self._clock.hi_res_milliseconds()

    def _stop(self, reason: str) -> None:
        log.warning("The %s sends no metrics any more: %s", self.kind, reason)
        self._disable()

    def _disable(self) -> None:
        self._enabled = False
        self._changed.notify_all()

    def _become(self, state: ClientTelemetryState) -> None:
        if not self._state.may_become(state):
            raise RuntimeError(f"telemetry that is {self._state.value} cannot become {state.value}")
        self._state = state

    # -- close

    def initiate_close(self) -> None:
        """Starts closing: one more push, if there is a subscription."""
        with self._lock:
            if self._state.is_terminating:
                return
            subscription = self._subscription
            if self._state is State.SUBSCRIPTION_NEEDED or subscription is None or subscription.wants_nothing:
                self._become(State.TERMINATED)
            else:
                self._become(State.TERMINATING_PUSH_NEEDED)

    def close(self) -> None:
        """Stops telemetry."""
        with self._lock:
            if self._state is not State.TERMINATED:
                self._become(State.TERMINATED)
            self._changed.notify_all()

    # -- identity

    def client_instance_id(self, timeout: float) -> Uuid:
        """Returns the client instance id. Blocks for at most ``timeout`` seconds until the cluster has assigned it."""
        if timeout < 0:
            raise ValueError("The timeout cannot be negative.")
        deadline_ms = self._clock.hi_res_milliseconds() + timeout * 1000
        with self._lock:
            while self._subscription is None:
                remaining_ms = deadline_ms - self._clock.hi_res_milliseconds()
                if remaining_ms <= 0 or self._state is State.TERMINATED or not self._enabled:
                    raise KafkaTimeoutError(f"The cluster has given this {self.kind} no id within {timeout} s")
                self._clock.wait(self._changed, remaining_ms)
            return self._subscription.client_instance_id

    def __repr__(self) -> str:
        return f"ClientTelemetryReporter({self.kind}, {self._state.value}{'' if self._enabled else ', silent'})"


def _compression_types(accepted: Sequence[int]) -> Sequence[CompressionType]:
    """Returns the types that this client supports."""
    known = {int(one) for one in CompressionType}
    return tuple(CompressionType(number) for number in accepted if number in known)
