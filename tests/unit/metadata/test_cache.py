"""The cache: lookups, features, and readers while images are swapped."""

from __future__ import annotations

import threading

import pytest

from barnabas.common.identifiers import ZERO_UUID
from barnabas.metadata.cache import FinalizedFeatures, MetadataCache
from barnabas.metadata.configs import ConfigResource
from barnabas.metadata.endpoint import NO_NODE, Node
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from unit.metadata.samples import LISTENER, broker, image_of, metadata_version, partition, provenance, topic, uid

pytestmark = pytest.mark.mechanism("R08")

ORDERS = uid(1)


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache(kraft_version=lambda: 1, choose=lambda ids: ids[-1])
    cache.set_image(
        image_of(
            [
                metadata_version(),
                FeatureLevelRecord(name="group.version", feature_level=1),
                broker(1, rack="r1"),
                broker(2, listeners=["SSL"]),
                broker(3, fenced=True),
                *topic("orders", ORDERS, partitions=2, replicas=[1, 2, 3]),
                TopicRecord(name="edge", topic_id=uid(2)),
                partition(uid(2), 0, replicas=[2]),
                partition(uid(2), 1, replicas=[9]),
                partition(uid(2), 2, replicas=[3], leader=-1),
                ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1"),
                ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value="2"),
            ],
            offset=41,
        )
    )
    return cache


def test_topics(cache: MetadataCache) -> None:
    assert cache.all_topics == ("edge", "orders")
    assert cache.topic_id("orders") == ORDERS
    assert cache.topic_id("unknown") == ZERO_UUID
    assert cache.topic_name(ORDERS) == "orders"
    assert cache.topic_name(uid(9)) is None
    assert cache.num_partitions("orders") == 2
    assert cache.num_partitions("unknown") is None
    assert cache.contains("orders")
    assert cache.contains("orders", 1)
    assert not cache.contains("orders", 2)
    assert not cache.contains("unknown")
    assert not cache.contains("unknown", 0)


def test_a_partition(cache: MetadataCache) -> None:
    found = cache.partition("orders", 1)
    assert found is not None
    assert (found.leader, found.isr, found.leader_epoch) == (1, (1, 2, 3), 0)
    assert cache.partition("orders", 2) is None
    assert cache.partition("unknown", 0) is None


def test_where_a_partition_is_led(cache: MetadataCache) -> None:
    assert cache.partition_leader_endpoint("orders", 0, LISTENER) == Node(1, "plaintext-1", 9092, "r1")
    assert cache.partition_leader_endpoint("edge", 0, LISTENER) == NO_NODE  # the leader is on another listener
    assert cache.partition_leader_endpoint("edge", 0, "SSL") == Node(2, "ssl-2", 9092)
    assert cache.partition_leader_endpoint("edge", 1, LISTENER) is None  # nobody knows the leader
    assert cache.partition_leader_endpoint("edge", 2, LISTENER) is None  # there is no leader
    assert cache.partition_leader_endpoint("edge", 3, LISTENER) is None
    assert cache.partition_leader_endpoint("unknown", 0, LISTENER) is None


def test_where_replicas_are(cache: MetadataCache) -> None:
    assert cache.partition_replica_endpoints("orders", 0, LISTENER) == {1: Node(1, "plaintext-1", 9092, "r1")}
    assert cache.partition_replica_endpoints("orders", 0, "SSL") == {2: Node(2, "ssl-2", 9092)}
    assert cache.partition_replica_endpoints("edge", 1, LISTENER) == {}
    assert cache.partition_replica_endpoints("orders", 7, LISTENER) == {}
    assert cache.partition_replica_endpoints("unknown", 0, LISTENER) == {}


def test_brokers(cache: MetadataCache) -> None:
    assert [cache.has_alive_broker(broker_id) for broker_id in (1, 2, 3, 4)] == [True, True, False, False]
    assert [cache.alive_broker_epoch(broker_id) for broker_id in (1, 3, 4)] == [101, None, None]
    assert cache.alive_broker_node(1, LISTENER) == Node(1, "plaintext-1", 9092, "r1")
    assert cache.alive_broker_node(2, LISTENER) is None
    assert cache.alive_broker_node(3, LISTENER) is None
    assert cache.alive_broker_node(4, LISTENER) is None
    assert cache.alive_broker_nodes(LISTENER) == [Node(1, "plaintext-1", 9092, "r1")]
    assert cache.alive_broker_ids() == [1, 2]
    assert cache.random_alive_broker_id() == 2
    assert MetadataCache().random_alive_broker_id() is None


def test_configurations(cache: MetadataCache) -> None:
    assert cache.topic_config("orders") == {"retention.ms": "1"}
    assert cache.topic_config("edge") == {}
    assert cache.config(ConfigResource.broker(1)) == {"log.retention.ms": "2"}


def test_features(cache: MetadataCache) -> None:
    assert cache.metadata_version is MetadataVersion.IBP_4_3_IV0
    assert cache.features() == FinalizedFeatures(
        MetadataVersion.IBP_4_3_IV0, {"metadata.version": 30, "group.version": 1, "kraft.version": 1}, 41
    )
    # Level 0 is told by not being told.
    assert MetadataCache().features() == FinalizedFeatures(None, {}, -1)
    assert "kraft.version" not in cache.image.features.finalized


def test_the_controller_to_name_is_a_broker_that_serves() -> None:
    """Any of them, by chance; the real test is that all get their turn and no other does."""
    cache = MetadataCache()
    cache.set_image(image_of([metadata_version(), broker(1), broker(2), broker(3, fenced=True), broker(4)]))
    request = MetadataRequest(topics=[])
    named = {cache.metadata_response(request, 12, LISTENER, "c").controller_id for _ in range(200)}
    assert named == {1, 2, 4}


def test_readers_never_see_two_images_at_once() -> None:
    """All brokers and all topics of an image are at the same generation; so must be every response.

    The responses kept with topics and brokers are made and thrown away all the time meanwhile.
    """
    topics, partitions = 20, 4
    cache = MetadataCache()
    base = image_of(
        [
            metadata_version(),
            broker(1),
            broker(2),
            *(record for n in range(topics) for record in topic(f"t{n}", uid(n + 1), partitions, replicas=[1, 2])),
        ],
        offset=0,
    )
    cache.set_image(base)
    problems: list[str] = []
    done = threading.Event()
    turns = [0] * 3

    def read(reader: int) -> None:
        request = MetadataRequest(topics=None)
        while not done.is_set() or turns[reader] < 5:
            turns[reader] += 1
            answer = cache.metadata_response(request, 12, LISTENER, "c")
            epochs = {partition.leader_epoch for topic in answer.topics for partition in topic.partitions}
            leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
            hosts = {broker.rack for broker in answer.brokers}
            (epoch,) = epochs if len(epochs) == 1 else (None,)
            if epoch is None or len(answer.topics) != topics or leaders != {1 + epoch % 2}:
                problems.append(f"{epochs} {leaders} {len(answer.topics)}")
            elif hosts != {f"generation-{epoch}"} and epoch:
                problems.append(f"{hosts} at {epoch}")

    def next_image(image: MetadataImage, generation: int) -> MetadataImage:
        return image_of(
            [
                broker(1, rack=f"generation-{generation}"),
                broker(2, rack=f"generation-{generation}"),
                *(
                    PartitionChangeRecord(topic_id=uid(n + 1), partition_id=p, leader=1 + generation % 2)
                    for n in range(topics)
                    for p in range(partitions)
                ),
            ],
            image,
            offset=generation,
        )

    readers = [threading.Thread(target=read, args=(reader,)) for reader in range(len(turns))]
    for thread in readers:
        thread.start()
    try:
        for generation in range(1, 150):
            cache.set_image(next_image(cache.image, generation))
    finally:
        done.set()
        for thread in readers:
            thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in readers)
    assert problems == []
    assert min(turns) >= 5
    assert cache.image.offset == 149
    assert base.topics.by_name["t0"].partitions[0].leader_epoch == 0  # the first is as it was


def test_a_reader_keeps_its_image(cache: MetadataCache) -> None:
    before = cache.image
    cache.set_image(image_of([PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=2)], before))
    assert before.topics.by_name["orders"].partitions[0].leader == 1
    assert cache.partition("orders", 0) is not None
    assert before.provenance == provenance(41)
