"""The consumer's metrics, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Avg, CumulativeSum, Max, MeasurableStat, Meter, Min, Value, WindowedCount

GROUP: Final = "consumer-metrics"
FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
NODE_GROUP: Final = "consumer-node-metrics"


class KafkaConsumerMetrics:
    """Metrics of the application's calls: how often it polls, and how long it waits in other calls."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._last_poll_ms: int | None = None
        self._poll_started_ms = 0
        self._between_polls_ms = 0
        metrics.add_metric(
            metrics.metric_name("last-poll-seconds-ago", GROUP, description="Seconds since the last poll began."),
            lambda *_: self._seconds_since_poll(),
        )
        self._time_between = metrics.sensor("time-between-poll")
        stats: tuple[tuple[str, MeasurableStat], ...] = (
            ("time-between-poll-avg", Avg()),
            ("time-between-poll-max", Max()),
        )
        for name, stat in stats:
            self._time_between.add(
                metrics.metric_name(name, GROUP, description="Milliseconds from the beginning of a poll to the next."),
                stat,
            )
        self._idle = metrics.sensor("poll-idle-ratio-avg")
        self._idle.add(
            metrics.metric_name(
                "poll-idle-ratio-avg", GROUP, description="The share of its time that the application spends in poll."
            ),
            Avg(),
        )
        self.commit_sync = self._nanoseconds(metrics, "commit-sync", "commit")
        self.committed = self._nanoseconds(metrics, "committed", "committed")

    @staticmethod
    def _nanoseconds(metrics: Metrics, name: str, what: str) -> Sensor:
        full = f"{name}-time-ns-total"
        sensor = metrics.sensor(full)
        description = f"The time in nanoseconds that the application has spent in {what}()."
        sensor.add(metrics.metric_name(full, GROUP, description=description), CumulativeSum())
        return sensor

    def _seconds_since_poll(self) -> float:
        if self._last_poll_ms is None:
            return -1.0
        return (self._clock.hi_res_milliseconds() - self._last_poll_ms) // 1000

    def poll_started(self, now: int) -> None:
        self._between_polls_ms = 0 if self._last_poll_ms is None else now - self._last_poll_ms
        if self._last_poll_ms is not None and self._between_polls_ms:
            self._time_between.record_soon(self._between_polls_ms)
        self._last_poll_ms = self._poll_started_ms = now

    def poll_ended(self, now: int) -> None:
        elapsed_ms = now - self._poll_started_ms
        if elapsed_ms or self._between_polls_ms:
            self._idle.record_soon(elapsed_ms / max(elapsed_ms, self._between_polls_ms))


class FetchedResponse:
    """What has been read of a fetch response, over all of its partitions with records.

    They are read one by one, perhaps in many polls. The size is recorded when the last of them has been read or
    discarded.
    """

    __slots__ = ("left", "topics")

    def __init__(self) -> None:
        self.left = 0
        """The number of partitions that are not read to their end."""
        self.topics: dict[str, list[int]] = {}
        """Bytes and records of each topic."""


class FinishedFetch(Protocol):
    """A consumed partition of a response (see `CompletedFetch`)."""

    partition: TopicPartition
    records_read: int
    bytes_read: int
    response: FetchedResponse | None


class FetchMetrics:
    """Metrics of fetching. Recorded once for each poll, or response and partition, never for a record."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.fetch_latency = metrics.sensor("fetch-latency")
        self._avg_max(self.fetch_latency, "fetch-latency", "milliseconds that a fetch request took")
        self._meter(self.fetch_latency, "fetch", "fetch requests", count=True)
        self.throttle_time = metrics.sensor("fetch-throttle-time")
        self._avg_max(self.throttle_time, "fetch-throttle-time", "milliseconds that a broker throttled this consumer")
        self._sizes = metrics.sensor("bytes-fetched")
        self._avg_max(self._sizes, "fetch-size", "bytes of a response")
        self._counts = metrics.sensor("records-fetched")
        self._counts.add(self._name("records-per-request-avg", "Records of a response, on average."), Avg())
        self._bytes = metrics.sensor("bytes-consumed")
        self._meter(self._bytes, "bytes-consumed", "bytes consumed")
        self._records = metrics.sensor("records-consumed")
        self._meter(self._records, "records-consumed", "records consumed")
        self._lag = metrics.sensor("records-lag")
        self._lag.add(self._name("records-lag-max", "The largest lag of any partition, in records."), Max())
        self._lead = metrics.sensor("records-lead")
        self._lead.add(self._name("records-lead-min", "The smallest lead of any partition, in records."), Min())
        self._of_node: dict[str, Sensor] = {}
        self._of_topic: dict[str, tuple[Sensor, Sensor, Sensor, Sensor]] = {}
        self._of_partition: dict[TopicPartition, tuple[Sensor, Sensor]] = {}
        self._assigned: dict[TopicPartition, MetricName] = {}
        """The names of their `preferred-read-replica` metrics. Owned by the background thread."""

    def _name(self, name: str, description: str, tags: dict[str, str] | None = None) -> MetricName:
        return self._metrics.metric_name(name, FETCH_GROUP, tags, description)

    def _avg_max(self, sensor: Sensor, name: str, what: str, tags: dict[str, str] | None = None) -> None:
        sensor.add(self._name(f"{name}-avg", f"Average of the {what}.", tags), Avg())
        sensor.add(self._name(f"{name}-max", f"Maximum of the {what}.", tags), Max())

    def _meter(
        self, sensor: Sensor, name: str, what: str, tags: dict[str, str] | None = None, *, count: bool = False
    ) -> None:
        rate = self._name(f"{name}-rate", f"Rate per second of {what}.", tags)
        total = self._name(f"{name}-total", f"Total of {what}.", tags)
        sensor.add_compound(Meter(rate, total, stat=WindowedCount() if count else None))

    def record_response(self, node: str, latency_ms: int) -> None:
        """Records a fetch response."""
        time_ms = self._metrics.clock.milliseconds()
        self.fetch_latency.record_soon(latency_ms, time_ms)
        sensor = self._of_node.get(node) or self._node(node)
        sensor.record_soon(latency_ms, time_ms)

    def _node(self, node: str) -> Sensor:
        made = self._metrics.sensor(f"node-{node}.latency")
        tags, name = {"node-id": f"node-{node}"}, self._metrics.metric_name
        made.add(name("request-latency-avg", NODE_GROUP, tags, "Milliseconds until a node responds."), Avg())
        made.add(name("request-latency-max", NODE_GROUP, tags, "The same, at most."), Max())
        self._of_node[node] = made
        return made

    def record_finished(
        self, finished: Sequence[FinishedFetch], lags_and_leads: Sequence[tuple[int | None, int | None] | None]
    ) -> None:
        """Records the responses consumed in one poll, and lag and lead of their partitions; None if no longer assigned.

        Values of all partitions together are recorded once. A table covers all partitions of a response, and recording
        each separately would take about as long as decoding a hundred records.
        """
        time_ms = self._metrics.clock.milliseconds()
        notes: list[tuple[Sensor, float]] = []
        topics: dict[str, list[int]] = {}
        ended: list[FetchedResponse] = []
        largest_lag: int | None = None
        smallest_lead: int | None = None
        for fetch, known in zip(finished, lags_and_leads, strict=True):
            records, size, partition, response = fetch.records_read, fetch.bytes_read, fetch.partition, fetch.response
            if response is not None:
                of_topics = response.topics
                if partition.topic in of_topics:
                    row = of_topics[partition.topic]
                    row[0] += size
                    row[1] += records
                else:
                    of_topics[partition.topic] = [size, records]
                response.left -= 1
                if not response.left:
                    ended += (response,)
            if known is None:
                continue
            if records or size:
                topic = topics.get(partition.topic)
                if topic is None:
                    topics[partition.topic] = [size, records]
                else:
                    topic[0] += size
                    topic[1] += records
            lag, lead = known
            if lag is None and lead is None:
                continue
            of_lag, of_lead = self._of_partition.get(partition) or self._partition(partition)
            if lag is not None:
                notes += ((of_lag, lag),)
                if largest_lag is None or lag > largest_lag:
                    largest_lag = lag
            if lead is not None:
                notes += ((of_lead, lead),)
                if smallest_lead is None or lead < smallest_lead:
                    smallest_lead = lead
        if topics:
            all_bytes = all_records = 0
            for name, (size, records) in topics.items():
                by_bytes, by_records, _, _ = self._of_topic.get(name) or self._topic(name)
                notes += ((by_bytes, size), (by_records, records))
                all_bytes += size
                all_records += records
            notes += ((self._bytes, all_bytes), (self._records, all_records))
        for response in ended:
            all_bytes = all_records = 0
            for name, (size, records) in response.topics.items():
                _, _, sizes, counts = self._of_topic.get(name) or self._topic(name)
                notes += ((sizes, size), (counts, records))
                all_bytes += size
                all_records += records
            notes += ((self._sizes, all_bytes), (self._counts, all_records))
        if largest_lag is not None:
            notes += ((self._lag, largest_lag),)
        if smallest_lead is not None:
            notes += ((self._lead, smallest_lead),)
        Sensor.record_each_soon(notes, time_ms)

    def record_dropped(self, dropped: Sequence[FinishedFetch]) -> None:
        """Records discarded responses: the part that was read counts."""
        self.record_finished(dropped, [(None, None)] * len(dropped))

    def _topic(self, topic: str) -> tuple[Sensor, Sensor, Sensor, Sensor]:
        tags = {"topic": topic}
        made = (
            self._metrics.sensor(f"topic.{topic}.bytes-consumed"),
            self._metrics.sensor(f"topic.{topic}.records-consumed"),
            self._metrics.sensor(f"topic.{topic}.bytes-fetched"),
            self._metrics.sensor(f"topic.{topic}.records-fetched"),
        )
        self._meter(made[0], "bytes-consumed", "bytes consumed of the topic", tags)
        self._meter(made[1], "records-consumed", "records consumed of the topic", tags)
        self._avg_max(made[2], "fetch-size", "bytes of the topic in a response", tags)
        made[3].add(
            self._name("records-per-request-avg", "Records of the topic in a response, on average.", tags), Avg()
        )
        self._of_topic[topic] = made
        return made

    def _partition(self, partition: TopicPartition) -> tuple[Sensor, Sensor]:
        tags = {"topic": partition.topic, "partition": str(partition.partition)}
        made = (self._metrics.sensor(f"{partition}.records-lag"), self._metrics.sensor(f"{partition}.records-lead"))
        made[0].add(self._name("records-lag", "The lag of the partition, in records.", tags), Value())
        made[0].add(self._name("records-lag-avg", "Its average.", tags), Avg())
        made[0].add(self._name("records-lag-max", "Its maximum.", tags), Max())
        made[1].add(self._name("records-lead", "The lead of the partition, in records.", tags), Value())
        made[1].add(self._name("records-lead-avg", "Its average.", tags), Avg())
        made[1].add(self._name("records-lead-min", "Its minimum.", tags), Min())
        self._of_partition[partition] = made
        return made

    def update_assignment(
        self, wanted: set[TopicPartition], replica: Callable[[TopicPartition, int], int | None]
    ) -> None:
        """Adds and removes the metrics of partitions for a new assignment. Called by the background thread.

        ``replica`` returns the preferred read replica of a partition at a time.
        """
        for partition in wanted - self._assigned.keys():
            name = self._assigned[partition] = self._name(
                "preferred-read-replica",
                "The replica that the partition is read from, or -1 for its leader.",
                {"topic": partition.topic, "partition": str(partition.partition)},
            )
            # At time 0 none has expired; the fetcher checks expiry.
            self._metrics.add_metric(
                name,
                lambda *_, partition=partition: -1 if (found := replica(partition, 0)) is None else found,
            )
        for partition in self._assigned.keys() - wanted:
            self._metrics.remove_metric(self._assigned.pop(partition))
        # Copy the keys in one step: the application thread may be adding some.
        for partition in list(self._of_partition):
            if partition not in wanted:
                del self._of_partition[partition]
                self._metrics.remove_sensor(f"{partition}.records-lag")
                self._metrics.remove_sensor(f"{partition}.records-lead")
