"""The metrics of a producer, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.metric import Gauge
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Avg, CumulativeSum, Max, Meter

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"
NODE_GROUP: Final = "producer-node-metrics"


class KafkaProducerMetrics:
    """How long the application has waited in this producer, by what for, in nanoseconds."""

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
    """What is kept for a topic."""

    records: Sensor
    bytes: Sensor
    compression_rate: Sensor
    retries: Sensor
    errors: Sensor


class SenderMetrics:
    """What the I/O thread sends, and how that goes.

    Recorded once for a batch or a request, never for a record; and what belongs to every request is only noted down at
    that time (`Sensor.record_soon`).
    """

    def __init__(self, metrics: Metrics, *, compresses: bool = False) -> None:
        self._metrics = metrics
        self._compresses = compresses
        """Whether batches are compressed at all; without, the rate is 1 for each of them."""
        self._topics: dict[str, TopicSensors] = {}
        self._latencies: dict[str, Sensor] = {}
        """By node."""
        self.batch_size = self._avg_max("batch-size", "batch-size", "bytes of a batch")
        self.compression_rate = metrics.sensor("compression-rate")
        self.compression_rate.add(
            self._name("compression-rate-avg", "Compressed by uncompressed size of batches, on average."), Avg()
        )
        self.queue_time = self._avg_max("record-queue-time", "queue-time", "milliseconds that batches waited here")
        self.request_time = self._avg_max("request-latency", "request-time", "milliseconds until an answer")
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
        """Values that are kept elsewhere."""
        metrics = self._metrics
        metrics.add_metric(
            metrics.metric_name("requests-in-flight", GROUP, description="Requests without an answer."),
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
        found = self._topics[topic] = TopicSensors(records, size, compression, retries, errors)
        return found

    def update_produce_request_metrics(self, batches: Mapping[int, Iterable[ProducerBatch]], now_ms: int) -> None:
        """Batches are about to be sent."""
        # What adds up is noted once for all batches of a topic, and the rest once for all batches of this turn.
        topics: dict[str, list[int]] = {}
        sizes: list[int] = []
        queue_times: list[int] = []
        record_sizes: list[int] = []
        for node_batches in batches.values():
            records = 0
            for batch in node_batches:
                topic = batch.topic_partition.topic
                count = batch.builder.record_count
                size = batch.estimated_size_in_bytes
                sums = topics.get(topic)
                if sums is None:
                    sums = topics[topic] = [0, 0]
                sums[0] += count
                sums[1] += size
                sizes.append(size)
                queue_times.append(batch.drained_ms - batch.created_ms)
                record_sizes.append(batch.max_record_size)
                if self._compresses:
                    self.compression_rate.record_soon(batch.compression_ratio, now_ms)
                    self._topic(topic).compression_rate.record_soon(batch.compression_ratio, now_ms)
                records += count
            if records:
                self.records_per_request.record_soon(records, now_ms)
        if not sizes:
            return
        self.batch_size.record_all_soon(sizes, now_ms)
        self.queue_time.record_all_soon(queue_times, now_ms)
        self.record_size.record_all_soon(record_sizes, now_ms)
        for topic, (count, size) in topics.items():
            sensors = self._topics.get(topic) or self._register_topic(topic)
            sensors.records.record_soon(count, now_ms)
            sensors.bytes.record_soon(size, now_ms)
            if not self._compresses:
                self.compression_rate.record_soon(1.0, now_ms)
                sensors.compression_rate.record_soon(1.0, now_ms)

    def record_retries(self, topic: str, count: int) -> None:
        self.retries.record_unchecked(count)
        self._topic(topic).retries.record_unchecked(count)

    def record_errors(self, topic: str, count: int) -> None:
        self.errors.record_unchecked(count)
        self._topic(topic).errors.record_unchecked(count)

    def record_latency(self, node: str, latency_ms: int, now_ms: int) -> None:
        self.request_time.record_soon(latency_ms, now_ms)
        (self._latencies.get(node) or self._register_node(node)).record_soon(latency_ms, now_ms)

    def _register_node(self, node: str) -> Sensor:
        sensor = self._latencies[node] = self._metrics.sensor(f"node-{node}.latency")
        tags = {"node-id": f"node-{node}"}
        name = self._metrics.metric_name
        sensor.add(name("request-latency-avg", NODE_GROUP, tags, "Milliseconds until an answer of a node."), Avg())
        sensor.add(name("request-latency-max", NODE_GROUP, tags, "The same, at most."), Max())
        return sensor
