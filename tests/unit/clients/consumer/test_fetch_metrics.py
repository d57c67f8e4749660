"""How large responses are, by topic too, and what is shown of partitions: against the metrics of a Java consumer."""

from __future__ import annotations

import pytest

from barnabas.clients.consumer import KafkaConsumer, TopicPartition
from barnabas.clients.consumer.internals.consumer_metrics import FETCH_GROUP, FetchedResponse, FetchMetrics
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors, TopicAuthorizationError
from barnabas.metrics.registry import Metrics
from barnabas.records.batch import HEADER_SIZE

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RECORD = 9
"""The bytes of a record of these: a key and a value of a byte each, and seven numbers."""
PARTS = (
    "fetch-size-avg",
    "fetch-size-max",
    "records-per-request-avg",
    "bytes-consumed-total",
    "records-consumed-total",
)


def cluster_with(a0: int = 0, a1: int = 0, b0: int = 0, nodes: int = 1) -> ConsumerCluster:
    """So many records in each partition."""
    cluster = ConsumerCluster({"a": 2, "b": 1}, nodes=nodes)
    for partition, count in ((A0, a0), (A1, a1), (B0, b0)):
        if count:
            cluster.append(partition.topic, partition.partition, [b"x"] * count)
    return cluster


def assigned(cluster: ConsumerCluster, *partitions: TopicPartition, **settings: object) -> KafkaConsumer:
    consumer = cluster.consumer(**{"auto_offset_reset": "earliest", **settings})
    consumer.assign(partitions)
    return consumer


def poll(cluster: ConsumerCluster, consumer: KafkaConsumer) -> int:
    return len(cluster.run(consumer, lambda: consumer.poll(1_000)))


def sizes(consumer: KafkaConsumer, **tags: str) -> list[float]:
    """What `PARTS` says, bytes in records."""
    found = [consumer.metric(name, FETCH_GROUP, **tags) for name in PARTS]
    return [
        value / RECORD if name.startswith(("fetch", "bytes")) else value
        for name, value in zip(PARTS, found, strict=True)
    ]


def of_partition(consumer: KafkaConsumer, partition: TopicPartition) -> dict[str, object]:
    tags = {"topic": partition.topic, "partition": str(partition.partition), "client-id": consumer.config.client_id}
    return {name.name: metric.value() for name, metric in consumer.metrics().items() if dict(name.tags) == tags}


def test_a_response_counts_once_however_often_it_is_polled() -> None:
    cluster = cluster_with(7, 3, 4)
    consumer = assigned(cluster, A0, A1, B0, max_poll_records=2)
    polled = 0
    for _ in range(9):
        polled += poll(cluster, consumer)
    assert polled == 14
    assert sizes(consumer) == [14, 14, 14, 14, 14]
    assert sizes(consumer, topic="a") == [10, 10, 10, 10, 10]
    assert sizes(consumer, topic="b") == [4, 4, 4, 4, 4]


def test_a_response_that_becomes_a_table() -> None:
    """Its batches are counted with their headers."""
    cluster = cluster_with(7, 3, 4)
    consumer = assigned(cluster, A0, A1, B0)
    rows = 0
    for _ in range(3):
        rows += cluster.run(consumer, lambda: consumer.poll_table(1_000)).num_rows
    assert rows == 14
    for tags, batches, records in (({}, 3, 14), ({"topic": "a"}, 2, 10), ({"topic": "b"}, 1, 4)):
        size = (batches * HEADER_SIZE + records * RECORD) / RECORD
        assert sizes(consumer, **tags) == [size, size, records, size, records]


def test_responses_have_an_average_and_those_with_nothing_in_them_do_not_count() -> None:
    cluster = cluster_with(6)
    consumer = assigned(cluster, A0, B0)
    assert poll(cluster, consumer) == 6
    assert poll(cluster, consumer) == 0
    cluster.append("a", 0, [b"y"] * 2)
    cluster.append("b", 0, [b"y"])
    assert poll(cluster, consumer) == 3
    assert consumer.metric("fetch-total", FETCH_GROUP) > 2
    assert sizes(consumer) == [4.5, 6, 4.5, 9, 9]
    assert sizes(consumer, topic="a") == [4, 6, 4, 8, 8]
    assert sizes(consumer, topic="b") == [1, 1, 1, 1, 1]


def test_errors_are_not_responses_of_no_size() -> None:
    cluster = cluster_with(6)
    cluster.partition_errors[A0] = [Errors.NOT_LEADER_OR_FOLLOWER, Errors.TOPIC_AUTHORIZATION_FAILED]
    consumer = assigned(cluster, A0)
    with pytest.raises(TopicAuthorizationError):
        poll(cluster, consumer)
    assert sum(poll(cluster, consumer) for _ in range(3)) == 6
    assert sizes(consumer) == sizes(consumer, topic="a") == [6] * 5


def test_two_responses_in_one_poll() -> None:
    cluster = cluster_with(6, 2, nodes=2)
    consumer = assigned(cluster, A0, A1)
    consumer._core.subscriptions.positions.seek_validated(A0, FetchPosition(0))
    consumer._core.subscriptions.positions.seek_validated(A1, FetchPosition(0))
    cluster.turn_until(consumer, lambda: consumer.metric("fetch-total", FETCH_GROUP) >= 2)
    assert poll(cluster, consumer) == 8
    assert sizes(consumer) == [4, 6, 4, 8, 8]
    assert sizes(consumer, topic="a") == [4, 6, 4, 8, 8]


@pytest.mark.parametrize("way", ["seek", "pause and seek", "assign", "unsubscribe", "error"])
def test_a_response_that_is_not_read_to_its_end(way: str) -> None:
    """What has been read of it counts, also the part of a partition that was being read."""
    cluster = cluster_with(5, 4)
    if way == "error":
        cluster.partition_errors[A1] = [Errors.NOT_LEADER_OR_FOLLOWER] * 100
    consumer = assigned(cluster, A0, A1, max_poll_records=3)
    assert poll(cluster, consumer) == 3
    if way == "assign":
        consumer.assign([B0])
    elif way == "unsubscribe":
        consumer.unsubscribe()
    elif way != "error":
        if way != "seek":
            consumer.pause(A1)
            assert poll(cluster, consumer) == 2
            consumer.resume(A1)
        consumer.seek(A0, 5)
        consumer.seek(A1, 4)
    if way != "unsubscribe":
        poll(cluster, consumer)
    read = 5 if way in {"error", "pause and seek"} else 3
    assert sizes(consumer) == [read] * 5
    assert sizes(consumer, topic="a") == [read] * 5


def test_metrics_of_partitions_come_and_go_with_them() -> None:
    cluster = cluster_with(5, 4)
    consumer = assigned(cluster, A0, A1)
    poll(cluster, consumer)
    assert of_partition(consumer, A0) == {
        "preferred-read-replica": -1,
        **dict.fromkeys(("records-lag", "records-lag-avg", "records-lag-max"), 0),
        **dict.fromkeys(("records-lead", "records-lead-avg", "records-lead-min"), 5),
    }
    assert of_partition(consumer, A1).keys() == of_partition(consumer, A0).keys()
    consumer.assign([A1, B0])
    poll(cluster, consumer)
    assert not of_partition(consumer, A0)
    assert len(of_partition(consumer, A1)) == 7
    assert of_partition(consumer, B0) == {"preferred-read-replica": -1}, "nothing has been read of it"
    consumer.assign([A0, A1])
    consumer.seek(A0, 1)
    poll(cluster, consumer)
    assert of_partition(consumer, A0)["records-lead"] == 5
    consumer.unsubscribe()
    consumer.network_thread.run_once()
    assert not of_partition(consumer, A0)
    assert not of_partition(consumer, A1)
    assert sizes(consumer, topic="a")[-1] == 13, "those of a topic stay"


def test_the_preferred_read_replica_is_shown() -> None:
    cluster = cluster_with(5, nodes=2)
    cluster.log("a").preferred_read_replica = 2
    consumer = assigned(cluster, A0, client_rack="r", metadata_max_age_ms=60_000)
    assert sum(poll(cluster, consumer) for _ in range(3)) == 5
    assert of_partition(consumer, A0)["preferred-read-replica"] == 2
    cluster.clock.advance(60_001)
    assert of_partition(consumer, A0)["preferred-read-replica"] == 2, "until it is found out by a fetch"


class Fetched:
    def __init__(self, partition: TopicPartition, records: int, size: int) -> None:
        self.partition = partition
        self.records_read = records
        self.bytes_read = size
        self.response: FetchedResponse | None = None


def test_metrics_of_the_responses_of_a_poll() -> None:
    metrics = Metrics(clock=MockClock())
    made = FetchMetrics(metrics)
    a0, a1, b0, b1, b2 = A0, A1, *(TopicPartition("b", number) for number in range(3))
    made.record_finished(
        [Fetched(a0, 3, 30), Fetched(a1, 4, 40), Fetched(b0, 5, 50), Fetched(b1, 100, 1000), Fetched(b2, 0, 0)],
        [(7, 2), (9, 1), (None, None), None, (None, 8)],
    )

    def value(name: str, **tags: str) -> object:
        found = metrics.metric(metrics.metric_name(name, FETCH_GROUP, tags))
        return None if found is None else found.value()

    assert (value("records-consumed-total"), value("bytes-consumed-total")) == (12, 120)
    assert (value("records-consumed-total", topic="a"), value("bytes-consumed-total", topic="b")) == (7, 50)
    assert (value("records-lag-max"), value("records-lead-min")) == (9, 1)
    assert [value("records-lag", topic="a", partition=str(n)) for n in range(3)] == [7, 9, None]
    assert [value("records-lead", topic="a", partition=str(n)) for n in range(2)] == [2, 1]
    assert value("records-lead", topic="b", partition="2") == 8
    assert value("records-lead", topic="b", partition="1") is None, "it is no longer this consumer's"
