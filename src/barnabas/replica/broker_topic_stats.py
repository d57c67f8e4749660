"""Kafka's ``BrokerTopicMetrics``: traffic of each topic, and of all topics together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

MESSAGES_IN: Final = "MessagesInPerSec"
BYTES_IN: Final = "BytesInPerSec"
BYTES_OUT: Final = "BytesOutPerSec"
BYTES_REJECTED: Final = "BytesRejectedPerSec"
FAILED_PRODUCE_REQUESTS: Final = "FailedProduceRequestsPerSec"
FAILED_FETCH_REQUESTS: Final = "FailedFetchRequestsPerSec"
TOTAL_PRODUCE_REQUESTS: Final = "TotalProduceRequestsPerSec"
TOTAL_FETCH_REQUESTS: Final = "TotalFetchRequestsPerSec"
PRODUCE_MESSAGE_CONVERSIONS: Final = "ProduceMessageConversionsPerSec"
FETCH_MESSAGE_CONVERSIONS: Final = "FetchMessageConversionsPerSec"
REPLICATION_BYTES_IN: Final = "ReplicationBytesInPerSec"
REPLICATION_BYTES_OUT: Final = "ReplicationBytesOutPerSec"
REASSIGNMENT_BYTES_IN: Final = "ReassignmentBytesInPerSec"
REASSIGNMENT_BYTES_OUT: Final = "ReassignmentBytesOutPerSec"

_TOPIC_METERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        MESSAGES_IN: "messages",
        BYTES_IN: "bytes",
        BYTES_OUT: "bytes",
        BYTES_REJECTED: "bytes",
        FAILED_PRODUCE_REQUESTS: "requests",
        FAILED_FETCH_REQUESTS: "requests",
        TOTAL_PRODUCE_REQUESTS: "requests",
        TOTAL_FETCH_REQUESTS: "requests",
        PRODUCE_MESSAGE_CONVERSIONS: "requests",
        FETCH_MESSAGE_CONVERSIONS: "requests",
    }
)
_BROKER_METERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        REPLICATION_BYTES_IN: "bytes",
        REPLICATION_BYTES_OUT: "bytes",
        REASSIGNMENT_BYTES_IN: "bytes",
        REASSIGNMENT_BYTES_OUT: "bytes",
    }
)
"""The meters that exist only for all topics together."""

HAND_OVER_NS: Final = 1_000_000_000


class _CollectedMeter(Meter):
    """A meter that collects pending counts before it is read."""

    __slots__ = ("_collect",)

    def __init__(self, clock: Clock, event_type: str, collect: Callable[[], object]) -> None:
        super().__init__(clock, event_type, TimeUnit.SECONDS)
        self._collect = collect

    @property
    def count(self) -> int:
        self._collect()
        return self._count

    @property
    def mean_rate(self) -> float:
        self._collect()
        return super().mean_rate

    def _rate(self, average: Any) -> float:
        self._collect()
        return super()._rate(average)


class TopicMetrics:
    """The counts of one topic.

    A produce request marks six meters, three for the topic and three for all topics. Each takes a lock and reads the
    clock, together as expensive as all other work of the broker except the append. So frequent events are added to
    plain numbers, under one lock, and transferred to the meters once a second, or when a meter is read.
    """

    __slots__ = (
        "_bytes_in",
        "_bytes_out",
        "_fetch_requests",
        "_lock",
        "_messages_in",
        "_meters",
        "_produce_requests",
        "_since_ns",
        "_stats",
        "topic",
    )

    def __init__(self, topic: str, stats: BrokerTopicStats) -> None:
        self.topic = topic
        self._stats = stats
        self._lock = threading.Lock()
        """Guards all fields below. The locks of the meters and of the registry are taken inside it."""
        self._meters: dict[str, Meter] = {}
        """The meters with events, created on demand: most topics need few of them."""
        self._since_ns = -HAND_OVER_NS
        """When the second of the counts below began."""
        self._produce_requests = 0
        self._messages_in = 0
        self._bytes_in = 0
        self._fetch_requests = 0
        self._bytes_out = 0

    def record_append(self, size: int, messages: int, now_ns: int, appends: int = 1) -> None:
        """Counts a successful produce request, for `appends` partitions."""
        with self._lock:
            if now_ns - self._since_ns >= HAND_OVER_NS:
                self._begin(now_ns)
            self._produce_requests += appends
            self._bytes_in += size
            self._messages_in += messages

    def record_produce_request(self, now_ns: int) -> None:
        """Counts a produce request that failed."""
        with self._lock:
            if now_ns - self._since_ns >= HAND_OVER_NS:
                self._begin(now_ns)
            self._produce_requests += 1

    def record_fetch_request(self, now_ns: int, requests: int = 1) -> None:
        """Counts a fetch request, for `requests` partitions."""
        with self._lock:
            if now_ns - self._since_ns >= HAND_OVER_NS:
                self._begin(now_ns)
            self._fetch_requests += requests

    def record_bytes_out(self, size: int, now_ns: int) -> None:
        with self._lock:
            if now_ns - self._since_ns >= HAND_OVER_NS:
                self._begin(now_ns)
            self._bytes_out += size

    def mark(self, name: str, events: int = 1) -> None:
        """Counts infrequent events."""
        with self._lock:
            self._mark(name, events, None)

    def collect(self) -> None:
        """Transfers the pending counts to the meters."""
        with self._lock:
            self._hand_over()

    def _begin(self, now_ns: int) -> None:
        self._hand_over()
        self._since_ns = now_ns

    def _hand_over(self) -> None:
        # Mark the events at the time when they happened: the topic may have been idle since.
        at_ns = self._since_ns
        if self._produce_requests:
            self._mark(TOTAL_PRODUCE_REQUESTS, self._produce_requests, at_ns)
            self._produce_requests = 0
        if self._messages_in:
            self._mark(MESSAGES_IN, self._messages_in, at_ns)
            self._messages_in = 0
        if self._bytes_in:
            self._mark(BYTES_IN, self._bytes_in, at_ns)
            self._bytes_in = 0
        if self._fetch_requests:
            self._mark(TOTAL_FETCH_REQUESTS, self._fetch_requests, at_ns)
            self._fetch_requests = 0
        if self._bytes_out:
            self._mark(BYTES_OUT, self._bytes_out, at_ns)
            self._bytes_out = 0

    def _mark(self, name: str, events: int, now_ns: int | None) -> None:
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = self._stats.new_topic_meter(name, self)
        meter.mark(events, now_ns)
        self._stats.all_topics[name].mark(events, now_ns)


class BrokerTopicStats:
    """The counts of all topics, under Kafka's names.

    >>> from barnabas.metrics.yammer.registry import MetricsRegistry
    >>> stats = BrokerTopicStats(MetricsRegistry())
    >>> stats.topic_stats("orders").record_append(1000, 10, now_ns=5)
    >>> stats.all_topics[MESSAGES_IN].count
    10
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.server", "BrokerTopicMetrics")
        self._clock = registry.clock
        self._lock = threading.Lock()
        """Guards changes of the table of topics. The lock of a topic is not taken inside it."""
        self._topics: dict[str, TopicMetrics] = {}
        self.all_topics: dict[str, Meter] = {
            name: self._new_meter(name, event_type, None, self._collect_all)
            for name, event_type in {**_TOPIC_METERS, **_BROKER_METERS}.items()
        }

    def topic_stats(self, topic: str) -> TopicMetrics:
        """Returns the counts of a topic. Callers must not keep them: deleting the topic removes its counts."""
        found = self._topics.get(topic)
        if found is None:
            with self._lock:
                found = self._topics.setdefault(topic, TopicMetrics(topic, self))
        return found

    def update_replication_bytes_out(self, size: int, *, is_reassignment: bool = False) -> None:
        """Counts the bytes of records sent to a follower."""
        if is_reassignment:
            self.all_topics[REASSIGNMENT_BYTES_OUT].mark(size)
        self.all_topics[REPLICATION_BYTES_OUT].mark(size)

    def update_replication_bytes_in(self, size: int, *, is_reassignment: bool = False) -> None:
        if is_reassignment:
            self.all_topics[REASSIGNMENT_BYTES_IN].mark(size)
        self.all_topics[REPLICATION_BYTES_IN].mark(size)

    def remove_metrics(self, topic: str) -> None:
        """Removes the metrics of a topic that has no partition on this broker any more."""
        with self._lock:
            found = self._topics.pop(topic, None)
        if found is not None:
            found.collect()
            for name in _TOPIC_METERS:
                self._group.registry.remove(self._group.metric_name(name, {"topic": topic}))

    def close(self) -> None:
        for topic in list(self._topics.copy()):
            self.remove_metrics(topic)
        for name in self.all_topics:
            self._group.registry.remove(self._group.metric_name(name))

    def new_topic_meter(self, name: str, topic: TopicMetrics) -> Meter:
        return self._new_meter(name, _TOPIC_METERS[name], {"topic": topic.topic}, topic.collect)

    def _new_meter(
        self, name: str, event_type: str, tags: Mapping[str, str] | None, collect: Callable[[], object]
    ) -> Meter:
        return self._group.registry.get_or_add(
            self._group.metric_name(name, tags), Meter, lambda: _CollectedMeter(self._clock, event_type, collect)
        )

    def _collect_all(self) -> None:
        for topic in self._topics.copy().values():
            topic.collect()
