"""Request metrics: the timeline of each request as histograms per API.

The names are Kafka's, ``kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Produce``, so that its dashboards
work. A fetch counts twice: as Fetch, and as FetchConsumer or FetchFollower, because a consumer that waits for data is
normal and a follower that waits is a problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas._kernels import timeline
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.metrics.yammer.meter import EventCount, Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.server.response import AnyResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.server.request import Request

TimelineRecorder = timeline.TimelineRecorder

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
_UNSUPPORTED = -1
"""Stands for all versions that are not supported."""

CompletionListener = Callable[["Request", AnyResponse, int], None]
"""Called for requests that have ended, with the end time. The recorder skips the next `untold` requests."""


class ApiMetrics:
    """The metrics of one API, or of one kind of fetch."""

    __slots__ = ("_errors", "_group", "_tags", "_versions", "counts", "histograms", "rates", "table")

    def __init__(self, group: KafkaMetricsGroup, name: str, versions: VersionRange) -> None:
        self._group = group
        self._versions = versions
        self._tags = {"request": name}
        self.histograms = group.new_histogram_set((*TIMES, "RequestBytes"), tags=self._tags, divisor=_NS_PER_MS)
        self.table = self.histograms.table
        self.rates: dict[int, Meter] = {}
        self.counts: dict[int, EventCount] = {}
        """The event counts behind the rates, by version."""
        self._errors: dict[Errors, Meter] = {}

    def rate(self, version: int) -> Meter:
        """Returns the request rate of one version, which shows operators whether old clients are still in use."""
        meter = self.rates.get(version)
        if meter is None:
            tags = {**self._tags, "version": "unsupported" if version == _UNSUPPORTED else str(version)}
            meter = self.rates[version] = self._group.new_meter("RequestsPerSec", "requests", tags=tags)
        return meter

    def new_count(self, version: int) -> EventCount:
        if version not in self._versions:
            # ApiVersions is served in any version, and a client can choose from 65,536: they share one count.
            return self.rate(_UNSUPPORTED).events
        count = self.counts[version] = self.rate(version).events
        return count

    def mark_error(self, error: Errors, count: int = 1) -> None:
        meter = self._errors.get(error)
        if meter is None:
            tags = {**self._tags, "error": error.name}
            meter = self._errors[error] = self._group.new_meter("ErrorsPerSec", "requests", tags=tags)
        meter.mark(count)


class RequestTimes(TimelineRecorder):
    """Records the timelines of finished requests."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self._api_metrics: dict[ApiKey, ApiMetrics] = {}
        super().__init__(clock.nanoseconds, self._api_metrics, self.of, FETCH, self._metrics_of_reader)
        self._group = KafkaMetricsGroup(registry, "kafka.network", "RequestMetrics")
        self._lock = threading.Lock()
        """Guards the creation of an API's metrics on its first request: most APIs are never called."""
        self.consumer_fetch = ApiMetrics(self._group, CONSUMER_FETCH, FETCH.versions)
        self.follower_fetch = ApiMetrics(self._group, FOLLOWER_FETCH, FETCH.versions)

    def of(self, api_key: ApiKey) -> ApiMetrics:
        """Returns the metrics of an API; creates them if there are none."""
        found = self._api_metrics.get(api_key)
        if found is None:
            with self._lock:
                found = self._api_metrics.get(api_key)
                if found is None:
                    found = self._api_metrics[api_key] = ApiMetrics(self._group, api_key.title, api_key.versions)
        return found

    def _metrics_of_reader(self, request: Request) -> ApiMetrics:
        """Returns the metrics of a fetch by its reader. One that could not be decoded counts as a consumer's."""
        body: Any = request._body
        if body is None:
            return self.consumer_fetch
        state = body.replica_state
        replica_id: int = body.replica_id if state is None else state.replica_id
        return self.consumer_fetch if replica_id < 0 else self.follower_fetch
