"""The lookups of a batch take one round of requests, however many partitions there are (S13)."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.clients.common.topic_reader import ClusterState, Leader
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.common.clock import MockClock
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.embedded import EmbeddedBroker
from barnabas.network.client.node import Node
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.offset_ranges import OffsetRange, ReadTask
from barnabas.spark.offset_reader import OffsetReader, SubscriptionError
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


class SleeplessClock(MockClock):
    """Nobody waits: a sleep moves the time."""

    def sleep(self, milliseconds: float) -> None:
        self.advance(milliseconds)


class Restarted:
    """A client of a cluster whose only broker is away for a while."""

    def __init__(self, clock: MockClock) -> None:
        self.reader = self
        self.settings = None
        self._clock = clock
        self._back_at_ms = 0.0
        self.asked = 0

    def goes_away(self, milliseconds: float) -> None:
        self._back_at_ms = self._clock.hi_res_milliseconds() + milliseconds
        self.asked = 0

    def describe(self, _topics: Any) -> ClusterState:
        self.asked += 1
        if self._clock.hi_res_milliseconds() < self._back_at_ms:
            raise ClientError("no broker")
        node = Node(1, "127.0.0.1", 1)
        return ClusterState({1: node}, {TopicPartition("many", 0): Leader(node, ZERO_UUID, 0)}, frozenset())

    def list_offsets(self, wanted: Any, _state: ClusterState) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(wanted, 7)

    def list_several(self, wanted: Any, state: ClusterState) -> list[dict[TopicPartition, int | None]]:
        return [self.list_offsets(one, state) for one in wanted]


@pytest.fixture
def clock() -> SleeplessClock:
    return SleeplessClock()


@pytest.fixture
def cluster(clock: SleeplessClock) -> Restarted:
    return Restarted(clock)


def lookups_of(cluster: Restarted, clock: SleeplessClock, **more: str) -> OffsetReader:
    given = options("127.0.0.1:1", **more)
    return OffsetReader(given, clock=clock, new_client=lambda _: cast("ClusterClient", cluster))


@pytest.mark.mechanism("S03")
def test_a_query_outlives_a_restart_of_the_broker(cluster: Restarted, clock: SleeplessClock) -> None:
    lookups = lookups_of(cluster, clock)
    assert lookups.latest({}) == {TopicPartition("many", 0): 7}
    cluster.goes_away(50_000)
    assert lookups.latest({}) == {TopicPartition("many", 0): 7}
    cluster.goes_away(100_000)
    with pytest.raises(ClientError, match="no broker"):
        lookups.latest({})
    assert cluster.asked == 61  # for 60 seconds


@pytest.mark.mechanism("S03")
def test_a_wrong_address_is_reported_soon(cluster: Restarted, clock: SleeplessClock) -> None:
    cluster.goes_away(50_000)
    with pytest.raises(ClientError, match="no broker"):
        lookups_of(cluster, clock).latest({})
    assert cluster.asked == 4


@pytest.mark.mechanism("S03")
def test_a_topic_that_does_not_exist_is_reported_soon(cluster: Restarted, clock: SleeplessClock) -> None:
    lookups = lookups_of(cluster, clock, subscribe="many,none")
    lookups.latest({})
    cluster.goes_away(0)
    with pytest.raises(SubscriptionError, match="subscribe names topics that do not exist: none"):
        lookups.resolve(LATEST_POINT)
    assert cluster.asked == 4


class Moved(Restarted):
    """A client of a cluster whose first broker is gone for good, and whose second one has taken over."""

    def __init__(self, clock: MockClock) -> None:
        super().__init__(clock)
        self.leader = Node(1, "127.0.0.1", 1)
        self.fetched_from: list[int] = []

    def describe(self, _topics: Any) -> ClusterState:
        self.asked += 1
        return ClusterState({}, {TopicPartition("many", 0): Leader(self.leader, ZERO_UUID, 0)}, frozenset())

    def post_fetch(self, node: Node, _wanted: Any, **_limits: Any) -> Any:
        self.fetched_from.append(node.id)
        if node != self.leader:
            raise ClientError("no such broker")

    def wait(self, _posted: Any) -> Any:
        return {TopicPartition("many", 0): PartitionData(records=None)}


@pytest.mark.mechanism("S03")
def test_a_sample_is_taken_from_the_next_leader(clock: SleeplessClock) -> None:
    """The leader dies between the lookup of the end offsets and the sample of the same batch."""
    cluster = Moved(clock)
    lookups = lookups_of(cluster, clock)
    lookups.latest({})
    cluster.leader = Node(2, "127.0.0.1", 2)
    assert lookups.bytes_per_offset([OffsetRange("many", 0, 0, 7)]) == {}
    assert (cluster.fetched_from, cluster.asked) == ([1, 2], 2)
