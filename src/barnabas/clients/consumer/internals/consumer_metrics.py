"""The metrics of a consumer, under Kafka's names."""

from __future__ import annotations

from typing import Final

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
    """How the application treats the consumer: how often it polls, and how long it waits in other calls."""

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


class Finished:
    """The answers that were consumed in one poll: bytes and records of each topic, the largest lag, the smallest lead.

    What is measured of all partitions together is recorded once for all of them. A table is made of an answer's
    partitions, and to record each by itself would take about as long as to decode a hundred records.
    """

    __slots__ = ("lag", "lead", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {}
        self.lag: int | None = None
        self.lead: int | None = None


class FetchMetrics:
    """What is fetched and consumed. Recorded once for each poll, or answer and partition, never for a record."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.fetch_latency = metrics.sensor("fetch-latency")
        self._avg_max(self.fetch_latency, "fetch-latency", "milliseconds that a fetch request took")
        self._meter(self.fetch_latency, "fetch", "fetch requests", count=True)
        self.throttle_time = metrics.sensor("fetch-throttle-time")
        self._avg_max(self.throttle_time, "fetch-throttle-time", "milliseconds that a broker throttled this consumer")
        self.bytes_fetched = metrics.sensor("bytes-fetched")
        self._avg_max(self.bytes_fetched, "fetch-size", "bytes of an answer")
        self._bytes = metrics.sensor("bytes-consumed")
        self._meter(self._bytes, "bytes-consumed", "bytes consumed")
        self._records = metrics.sensor("records-consumed")
        self._meter(self._records, "records-consumed", "records consumed")
        self._records.add(self._name("records-per-request-avg", "Records of an answer, on average."), Avg())
        self._lag = metrics.sensor("records-lag")
        self._lag.add(self._name("records-lag-max", "The largest lag of any partition, in records."), Max())
        self._lead = metrics.sensor("records-lead")
        self._lead.add(self._name("records-lead-min", "The smallest lead of any partition, in records."), Min())
        self._of_topic: dict[str, tuple[Sensor, Sensor]] = {}
        self._of_partition: dict[TopicPartition, tuple[Sensor, Sensor]] = {}

    def _name(self, name: str, description: str, tags: dict[str, str] | None = None) -> MetricName:
        return self._metrics.metric_name(name, FETCH_GROUP, tags, description)

    def _avg_max(self, sensor: Sensor, name: str, what: str) -> None:
        sensor.add(self._name(f"{name}-avg", f"Average of the {what}."), Avg())
        sensor.add(self._name(f"{name}-max", f"Maximum of the {what}."), Max())

    def _meter(
        self, sensor: Sensor, name: str, what: str, tags: dict[str, str] | None = None, *, count: bool = False
    ) -> None:
        rate = self._name(f"{name}-rate", f"Rate per second of {what}.", tags)
        total = self._name(f"{name}-total", f"Total of {what}.", tags)
        sensor.add_compound(Meter(rate, total, stat=WindowedCount() if count else None))

    def record_latency(self, node: str, latency_ms: int) -> None:
        """A fetch request was answered."""
        self.fetch_latency.record_soon(latency_ms)
        sensor = self._metrics.get_sensor(f"node-{node}.latency")
        if sensor is None:
            sensor = self._metrics.sensor(f"node-{node}.latency")
            tags, name = {"node-id": f"node-{node}"}, self._metrics.metric_name
            sensor.add(name("request-latency-avg", NODE_GROUP, tags, "Milliseconds until a node answers."), Avg())
            sensor.add(name("request-latency-max", NODE_GROUP, tags, "The same, at most."), Max())
        sensor.record_soon(latency_ms)

    def record_fetched(
        self,
        finished: Finished,
        partition: TopicPartition,
        records: int,
        size: int,
        *,
        lag: int | None,
        lead: int | None,
    ) -> None:
        """An answer for a partition has been consumed; what is not the partition's own is added up in ``finished``."""
        if records or size:
            topic = finished.topics.get(partition.topic)
            if topic is None:
                finished.topics[partition.topic] = [size, records]
            else:
                topic[0] += size
                topic[1] += records
        if lag is not None or lead is not None:
            of_lag, of_lead = self._partition(partition)
            if lag is not None:
                of_lag.record_soon(lag)
                if finished.lag is None or lag > finished.lag:
                    finished.lag = lag
            if lead is not None:
                of_lead.record_soon(lead)
                if finished.lead is None or lead < finished.lead:
                    finished.lead = lead

    def record_finished(self, finished: Finished) -> None:
        """The poll is over in which these answers have been consumed."""
        if finished.topics:
            self._bytes.record_soon(sum([size for size, _ in finished.topics.values()]))
            self._records.record_soon(sum([records for _, records in finished.topics.values()]))
            for topic, (size, records) in finished.topics.items():
                by_bytes, by_records = self._topic(topic)
                by_bytes.record_soon(size)
                by_records.record_soon(records)
        if finished.lag is not None:
            self._lag.record_soon(finished.lag)
        if finished.lead is not None:
            self._lead.record_soon(finished.lead)

    def _topic(self, topic: str) -> tuple[Sensor, Sensor]:
        made = self._of_topic.get(topic)
        if made is None:
            tags = {"topic": topic}
            made = (
                self._metrics.sensor(f"topic.{topic}.bytes-consumed"),
                self._metrics.sensor(f"topic.{topic}.records-consumed"),
            )
            self._meter(made[0], "bytes-consumed", "bytes consumed of the topic", tags)
            self._meter(made[1], "records-consumed", "records consumed of the topic", tags)
            self._of_topic[topic] = made
        return made

    def _partition(self, partition: TopicPartition) -> tuple[Sensor, Sensor]:
        made = self._of_partition.get(partition)
        if made is None:
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

    def retain(self, partitions: set[TopicPartition]) -> None:
        """Lets go of the metrics of partitions that this consumer has no more."""
        for partition in [known for known in self._of_partition if known not in partitions]:
            del self._of_partition[partition]
            self._metrics.remove_sensor(f"{partition}.records-lag")
            self._metrics.remove_sensor(f"{partition}.records-lead")
