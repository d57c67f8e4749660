"""The lookups of a batch take one round of requests, however many partitions there are (S13)."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.common.topic_partition import TopicPartition
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.offset_ranges import OffsetRange, ReadTask
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.source_batch import BatchReader
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.source_stream import StreamReader
from barnabas.spark.starting_points import EARLIEST_POINT, LATEST_POINT

pytestmark = pytest.mark.mechanism("S13")

PARTITIONS = 60


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap_servers) as client:
            asked = CreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
            made: Any = client.send(CreateTopicsRequest(topics=[asked], timeout_ms=30_000))
            assert made.topics[0].error_code == 0
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in range(PARTITIONS):
                producer.send("many", b"x" * 100, partition=partition, timestamp_ms=1_700_000_000_000)
        yield broker.bootstrap_servers


class Lookups(OffsetReader):
    """An offset reader that counts the requests of its client."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, new_client=self._counting)
        self.requests: Counter[str] = Counter()

    def _counting(self, settings: ClientSettings) -> ClusterClient:
        requests = self.requests

        class CountingClient(ClusterClient):
            def post(self, body: Any, *arguments: Any) -> Any:
                requests[type(body).__name__] += 1
                return super().post(body, *arguments)

        return CountingClient(settings)

    def taken(self) -> dict[str, int]:
        found = dict(self.requests)
        self.requests.clear()
        return found


def options(bootstrap: str, **more: str) -> SourceOptions:
    return SourceOptions.of({"kafka.bootstrap.servers": bootstrap, "subscribe": "many", **more})


def tasks(found: Any) -> list[ReadTask]:
    assert all(isinstance(one, ReadTask) for one in found)
    return list(found)


def test_a_batch_query(bootstrap: str) -> None:
    given = options(bootstrap, targetPartitions="3")
    lookups = Lookups(given)
    found = tasks(BatchReader(given, offsets=lookups).partitions())
    # First offsets and ends are two requests, sent at once, as a request names a partition once.
    assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 2}
    assert [one.size for one in found] == [20, 20, 20]
    for one in found:
        assert one.leaders.keys() == {wanted.topic_partition for wanted in one.ranges}
        assert pickle.loads(pickle.dumps(one)).leaders == one.leaders


def test_a_batch_query_samples_sizes_with_one_request(bootstrap: str) -> None:
    given = options(bootstrap)
    lookups = Lookups(given)
    assert sum(one.size for one in tasks(BatchReader(given, offsets=lookups).partitions())) == PARTITIONS
    assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 2, "FetchRequest": 1}


def test_times(bootstrap: str) -> None:
    given = options(
        bootstrap,
        startingTimestamp="1700000000001",
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="1600000000000",
    )
    lookups = Lookups(given)
    starts, ends = lookups.resolve(*(point for point in (given.start, given.end) if point is not None))
    lookups.close()
    assert set(starts.values()) == {1}
    assert set(ends.values()) == {0}
    # One more, for the ends of partitions without a record that is new enough.
    assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 3}


def test_micro_batches(bootstrap: str) -> None:
    given = options(bootstrap, startingOffsets="earliest", groupId="shown", targetPartitions="2")
    lookups = Lookups(given)
    reader = StreamReader(given, offsets=lookups)
    try:
        start = reader.initialOffset()
        assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 1}
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(reader.partitions(start, end)) == 2
        assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 1}
        # The next batch, which commits the end of this one to the group.
        reader.latestOffset(end, reader.getDefaultReadLimit())
        taken = lookups.taken()
        assert taken.pop("FindCoordinatorRequest") >= 1  # repeated until the offsets topic exists
        assert taken == {"MetadataRequest": 1, "ListOffsetsRequest": 1, "OffsetCommitRequest": 1}
    finally:
        reader.stop()


def test_a_limit_in_bytes_samples_with_one_request(bootstrap: str) -> None:
    given = options(bootstrap, startingOffsets="earliest", maxBytesPerTrigger="1000")
    lookups = Lookups(given)
    reader = StreamReader(given, offsets=lookups)
    try:
        start = reader.initialOffset()
        lookups.taken()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert lookups.taken() == {"MetadataRequest": 1, "ListOffsetsRequest": 1, "FetchRequest": 1}
        assert end["many"]["0"] == 1
    finally:
        reader.stop()


def test_sizes_of_records(bootstrap: str) -> None:
    lookups = Lookups(options(bootstrap))
    starts, ends = lookups.resolve(EARLIEST_POINT, LATEST_POINT)
    sizes = lookups.bytes_per_offset([OffsetRange(*one, starts[one], end) for one, end in ends.items()])
    lookups.close()
    assert sizes.keys() == {TopicPartition("many", number) for number in range(PARTITIONS)}
    assert all(150 < size < 250 for size in sizes.values())
