"""The producer's metrics, under Kafka's names."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from barnabas.metrics.metric import Gauge
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import TOGETHER_MS, Sensor
from barnabas.metrics.stats import Avg, CumulativeSum, Max, Meter

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"
NODE_GROUP: Final = "producer-node-metrics"

_Note = TypeVar("_Note")


class KafkaProducerMetrics:
    """How long the application has waited in this producer, by operation, in nanoseconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.flush = self._sensor("flush", "in flush")
        self.init = self._sensor("txn-init", "in init_transactions")
        self.begin = self._sensor("txn-begin", "in begin_transaction")
        self.send_offsets = self._sensor("txn-send-offsets", "in send_offsets_to_transaction")
        self.prepare = self._sensor("txn-prepare", "in prepare_transaction")
        self.commit = self._sensor("txn-commit", "in commit_transaction")
        self.abort = self._sensor("txn-abort", "in abort_transaction")
        self.metadata_wait = self._sensor("metadata-wait", "waiting for metadata of a topic")

    def _sensor(self, name: str, what: str) -> Sensor:
        full = f"{name}-time-ns-total"
        sensor = self._metrics.sensor(full)
        description = f"The time in nanoseconds that the producer has spent {what}."
        sensor.add(self._metrics.metric_name(full, GROUP, description=description), CumulativeSum())
        return sensor


class TopicSensors(NamedTuple):
    """The sensors of a topic."""

    records: Sensor
    bytes: Sensor
    compression_rate: Sensor
    retries: Sensor
    errors: Sensor


BatchNote: TypeAlias = tuple[TopicSensors, int, int, int, int, float]
"""Of a batch: its topic, records, bytes, milliseconds in the queue, bytes of its largest record, compression ratio."""


class SenderMetrics:
    """Metrics of the requests and batches that the I/O thread sends.

    Recorded once for a batch or a request, never for a record. Values of every request are first noted, once for all
    their sensors, and recorded in bulk within a tenth of a second, or when one of their metrics is read: as
    `Sensor.record_soon` does for a single sensor.
    """

    def __init__(self, metrics: Metrics, *, compresses: bool = False) -> None:
        self._metrics = metrics
        self._compresses = compresses
        """Whether batches are compressed; if not, the rate is 1 for each of them."""
        self._topics: dict[str, TopicSensors] = {}
        self._latencies: dict[str, Sensor] = {}
        """By node."""
        # Notes. The I/O thread appends, any thread pops from the left: without a lock.
        self._batches: deque[BatchNote] = deque()
        self._requests: deque[int] = deque()
        """The number of records of each request."""
        self._responses: deque[tuple[Sensor, int]] = deque()
        """For each response: the sensor of its node, and its latency in milliseconds."""
        self._noted_ms = 0
        """The time at which the notes will be recorded."""
        self._begun_ms: int | None = None
        """The same by the monotonic clock, which the I/O thread has already read."""
        self.batch_size = self._avg_max("batch-size", "batch-size", "bytes of a batch")
        self.compression_rate = metrics.sensor("compression-rate")
        self.compression_rate.add(
            self._name("compression-rate-avg", "Compressed by uncompressed size of batches, on average."), Avg()
        )
        self.queue_time = self._avg_max("record-queue-time", "queue-time", "milliseconds that batches waited here")
        self.request_time = self._avg_max("request-latency", "request-time", "milliseconds until a response")
        self.records_per_request = metrics.sensor("records-per-request")
        self._meter(self.records_per_request, "record-send", "records sent")
        self.records_per_request.add(self._name("records-per-request-avg", "Records of a request, on average."), Avg())
        self.retries = metrics.sensor("record-retries")
        self._meter(self.retries, "record-retry", "records sent again")
        self.errors = metrics.sensor("errors")
        self._meter(self.errors, "record-error", "records that failed")
        self.record_size = self._avg_max("record-size", "record-size", "bytes of the largest record of a batch")
        self.batch_split = metrics.sensor("batch-split-rate")
        self._meter(self.batch_split, "batch-split", "batches that were split")
        self.throttle_time = self._avg_max(
            "produce-throttle-time", "produce-throttle-time", "milliseconds that a broker throttled this producer"
        )
        for sensor in (
            self.batch_size,
            self.compression_rate,
            self.queue_time,
            self.request_time,
            self.records_per_request,
            self.record_size,
        ):
            sensor.source = self.catch_up

    def _name(self, name: str, description: str) -> MetricName:
        return self._metrics.metric_name(name, GROUP, description=description)

    def _avg_max(self, name: str, sensor_name: str, what: str) -> Sensor:
        made = self._metrics.sensor(sensor_name)
        metric_name = self._metrics.metric_name
        made.add(metric_name(f"{name}-avg", GROUP, description=f"Average of the {what}."), Avg())
        made.add(metric_name(f"{name}-max", GROUP, description=f"Maximum of the {what}."), Max())
        return made

    def _meter(
        self, sensor: Sensor, name: str, what: str, group: str = GROUP, tags: Mapping[str, str] | None = None
    ) -> None:
        metric_name = self._metrics.metric_name
        sensor.add_compound(
            Meter(
                metric_name(f"{name}-rate", group, tags, f"Rate per second of {what}."),
                metric_name(f"{name}-total", group, tags, f"Total of {what}."),
            )
        )

    def add_gauges(self, requests_in_flight: Gauge, metadata_age_s: Gauge) -> None:
        """Adds gauges of values that are kept elsewhere."""
        metrics = self._metrics
        metrics.add_metric(
            metrics.metric_name("requests-in-flight", GROUP, description="Requests without a response."),
            requests_in_flight,
        )
        metrics.add_metric(
            metrics.metric_name("metadata-age", GROUP, description="The age of the metadata in use, in seconds."),
            metadata_age_s,
        )

    def _topic(self, topic: str) -> TopicSensors:
        return self._topics.get(topic) or self._register_topic(topic)

    def _register_topic(self, topic: str) -> TopicSensors:
        tags = {"topic": topic}
        sensors: list[Sensor] = []
        for kind, name, what in (
            ("records-per-batch", "record-send", "records sent for a topic"),
            ("bytes", "byte", "bytes sent for a topic"),
            ("record-retries", "record-retry", "records of a topic sent again"),
            ("record-errors", "record-error", "records of a topic that failed"),
        ):
            sensors.append(self._metrics.sensor(f"topic.{topic}.{kind}"))
            self._meter(sensors[-1], name, what, TOPIC_GROUP, tags)
        compression = self._metrics.sensor(f"topic.{topic}.compression-rate")
        compression.add(
            self._metrics.metric_name(
                "compression-rate", TOPIC_GROUP, tags, "Compressed by uncompressed size of a topic's batches."
            ),
            Avg(),
        )
        records, size, retries, errors = sensors
        for sensor in (records, size, compression):
            sensor.source = self.catch_up
        found = self._topics[topic] = TopicSensors(records, size, compression, retries, errors)
        return found

    # -- every request, on the I/O thread

    def update_produce_request_metrics(self, batches: Mapping[int, Iterable[ProducerBatch]], now: int) -> None:
        """Notes batches that are about to be sent. ``now`` is the time of the monotonic clock, here and below."""
        if self._begun_ms is None or now - self._begun_ms >= TOGETHER_MS:
            self._begin_notes(now)
        note = self._batches.append
        for node_batches in batches.values():
            records = 0
            for batch in node_batches:
                topic = batch.topic_partition.topic
                count = batch.builder.record_count
                records += count
                note(
                    (
                        self._topics.get(topic) or self._register_topic(topic),
                        count,
                        batch.estimated_size_in_bytes,
                        batch.drained_ms - batch.created_ms,
                        batch.builder.max_record_size,
                        batch.compression_ratio if self._compresses else 1.0,
                    )
                )
            if records:
                self._requests.append(records)

    def record_latency(self, node: str, latency_ms: int, now: int) -> None:
        if self._begun_ms is None or now - self._begun_ms >= TOGETHER_MS:
            self._begin_notes(now)
        self._responses.append((self._latencies.get(node) or self._register_node(node), latency_ms))

    def _begin_notes(self, now: int) -> None:
        self.catch_up()
        self._begun_ms = now
        self._noted_ms = self._metrics.clock.milliseconds()

    def catch_up(self) -> None:
        """Records the notes. Thread-safe, without a lock."""
        batches = _taken(self._batches)
        requests = _taken(self._requests)
        responses = _taken(self._responses)
        noted_ms = self._noted_ms
        if batches:
            topics, counts, sizes, queue_times, record_sizes, ratios = zip(*batches, strict=True)
            self.batch_size.record_all(sizes, noted_ms)
            self.queue_time.record_all(queue_times, noted_ms)
            self.record_size.record_all(record_sizes, noted_ms)
            self.compression_rate.record_all(ratios if self._compresses else (1.0,), noted_ms)
            if topics.count(topics[0]) == len(topics):
                self._record_topic(topics[0], counts, sizes, ratios, noted_ms)
            else:
                self._record_topics(batches, noted_ms)
        if requests:
            self.records_per_request.record_all(requests, noted_ms)
        if responses:
            self.request_time.record_all([latency_ms for _, latency_ms in responses], noted_ms)
            by_node: dict[Sensor, list[int]] = {}
            for sensor, latency_ms in responses:
                of_node = by_node.get(sensor)
                if of_node is None:
                    by_node[sensor] = [latency_ms]
                else:
                    of_node.append(latency_ms)
            for sensor, latencies in by_node.items():
                sensor.record_all(latencies, noted_ms)

    def _record_topics(self, batches: Sequence[BatchNote], noted_ms: int) -> None:
        by_topic: dict[TopicSensors, list[BatchNote]] = {}
        for note in batches:
            by_topic.setdefault(note[0], []).append(note)
        for topic, notes in by_topic.items():
            _, counts, sizes, _, _, ratios = zip(*notes, strict=True)
            self._record_topic(topic, counts, sizes, ratios, noted_ms)

    def _record_topic(
        self,
        topic: TopicSensors,
        counts: Sequence[int],
        sizes: Sequence[int],
        ratios: Sequence[float],
        noted_ms: int,
    ) -> None:
        """Records a topic's notes; values that add up are recorded as one sum."""
        topic.records.record_unchecked(sum(counts), noted_ms)
        topic.bytes.record_unchecked(sum(sizes), noted_ms)
        topic.compression_rate.record_all(ratios if self._compresses else (1.0,), noted_ms)

    def record_retries(self, topic: str, count: int) -> None:
        self.retries.record_unchecked(count)
        self._topic(topic).retries.record_unchecked(count)

    def record_errors(self, topic: str, count: int) -> None:
        self.errors.record_unchecked(count)
        self._topic(topic).errors.record_unchecked(count)

    def _register_node(self, node: str) -> Sensor:
        sensor = self._latencies[node] = self._metrics.sensor(f"node-{node}.latency")
        tags = {"node-id": f"node-{node}"}
        name = self._metrics.metric_name
        sensor.add(name("request-latency-avg", NODE_GROUP, tags, "Milliseconds until a response of a node."), Avg())
        sensor.add(name("request-latency-max", NODE_GROUP, tags, "The same, at most."), Max())
        sensor.source = self.catch_up
        return sensor


def _taken(notes: deque[_Note]) -> list[_Note]:
    """Takes out all notes. Other threads may do so at the same time, and the I/O thread may add more."""
    taken: list[_Note] = []
    with suppress(IndexError):  # another thread took the rest
        taken.extend(islice(iter(notes.popleft, None), len(notes)))
    return taken
