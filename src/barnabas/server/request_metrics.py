"""Request metrics: the timeline of each request as histograms per API.

The names are Kafka's, ``kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Produce``, so that its dashboards
work. A fetch counts twice: as Fetch, and as FetchConsumer or FetchFollower, because a consumer that waits for data is
well and a follower that waits is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.response import AnyResponse
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from barnabas.server.request import Request

FETCH = ApiKey.FETCH
CONSUMER_FETCH = "FetchConsumer"
FOLLOWER_FETCH = "FetchFollower"
TIMES = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)
_NS_PER_MS = 1_000_000

CompletionListener = Callable[["Request", AnyResponse, int], None]
"""Told of each request that has ended, with the time of its end."""


class ApiMetrics:
    """The metrics of one API, or of one kind of fetch."""

    __slots__ = ("_errors", "_group", "_tags", "histograms", "rates")

    def __init__(self, group: KafkaMetricsGroup, name: str) -> None:
        self._group = group
        self._tags = {"request": name}
        self.histograms = group.new_histogram_set((*TIMES, "RequestBytes"), tags=self._tags, divisor=_NS_PER_MS)
        self.rates: dict[int, Meter] = {}
        self._errors: dict[Errors, Meter] = {}

    def rate(self, version: int) -> Meter:
        """Requests per second of one version: what tells an operator which old clients are still there."""
        meter = self.rates.get(version)
        if meter is None:
            tags = {**self._tags, "version": str(version)}
            meter = self.rates[version] = self._group.new_meter("RequestsPerSec", "requests", tags=tags)
        return meter

    def mark_error(self, error: Errors, count: int = 1) -> None:
        meter = self._errors.get(error)
        if meter is None:
            tags = {**self._tags, "error": error.name}
            meter = self._errors[error] = self._group.new_meter("ErrorsPerSec", "requests", tags=tags)
        meter.mark(count)


class RequestTimes:
    """Writes the timelines of finished requests."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.network", "RequestMetrics")
        self._now = clock.nanoseconds
        self._lock = threading.Lock()
        """Guards the making of an API's metrics: most APIs are never called, and have none."""
        self._by_api: dict[ApiKey, ApiMetrics] = {}
        self.consumer_fetch = ApiMetrics(self._group, CONSUMER_FETCH)
        self.follower_fetch = ApiMetrics(self._group, FOLLOWER_FETCH)
        self.listener: CompletionListener | None = None

    def of(self, api_key: ApiKey) -> ApiMetrics:
        found = self._by_api.get(api_key)
        if found is None:
            with self._lock:
                found = self._by_api.get(api_key)
                if found is None:
                    found = self._by_api[api_key] = ApiMetrics(self._group, api_key.title)
        return found

    def record(self, request: Request, response: AnyResponse) -> None:
        """Turns six moments into seven durations.

        A moment may be missing: a handler writes T2 after it has handed the answer over, and the answer may be out by
        then. The part that is missing then counts as no time.
        """
        now = self._now()
        start = request.start_time_ns
        dequeued = request.request_dequeue_time_ns
        local = request.api_local_complete_time_ns
        answered = request.response_complete_time_ns
        taken = request.response_dequeue_time_ns
        if dequeued < 0 or local < 0 or local > answered or taken < answered:
            dequeued = max(dequeued, start)
            answered = now if answered < 0 else max(answered, dequeued)
            local = answered if local < 0 else min(max(local, dequeued), answered)
            taken = max(taken, answered)
        if request.callback_request_dequeue_time_ns >= 0 and request.callback_request_complete_time_ns >= 0:
            # Work that went on after a wait counts as local work, not as waiting: as if it had been done before.
            callback = request.callback_request_complete_time_ns - request.callback_request_dequeue_time_ns
            local = min(local + callback, answered)
        metrics = self._by_api.get(request.api_key) or self.of(request.api_key)
        throttled, size, version = request.api_throttle_time_ms, request.size, request.api_version
        metrics.histograms.update_moments(start, dequeued, local, answered, taken, throttled, size, now)
        (metrics.rates.get(version) or metrics.rate(version)).mark(1, now)
        if request.api_key is FETCH:
            kind = self.follower_fetch if _is_from_follower(request) else self.consumer_fetch
            kind.histograms.update_moments(start, dequeued, local, answered, taken, throttled, size, now)
            kind.rate(version).mark(1, now)
        if self.listener is not None:
            self.listener(request, response, now)


def _is_from_follower(request: Request) -> bool:
    body: Any = request._body
    if body is None:
        return False
    state = body.replica_state
    replica_id: int = body.replica_id if state is None else state.replica_id
    return replica_id >= 0
