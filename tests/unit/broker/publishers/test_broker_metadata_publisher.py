"""What a broker does when the metadata change, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from barnabas.broker.publishers.broker_metadata_publisher import BrokerMetadataPublisher
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.protocol.internal.metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

BROKER = 1
STATE = "__group_state"
STATE_ID, OTHER_ID = Uuid(bytes(15) + b"1"), Uuid(bytes(15) + b"2")


class Bench:
    """A publisher whose collaborators write down what they are told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.faults: list[str] = []
        self.cache = MetadataCache()
        self.image: MetadataImage = EMPTY_IMAGE
        self.fail: set[str] = set()
        self.led_late: Callable[[TopicPartition, int], object]
        self.publisher = BrokerMetadataPublisher(
            BROKER,
            self.cache,
            Logs(self),
            Replicas(self),
            [Coordinator(self)],
            on_fault=lambda what, _error: self.faults.append(what),
            on_fatal_fault=lambda what, _error: self.faults.append(f"fatal: {what}"),
        )

    def tell(self, what: str, *details: object) -> None:
        self.told.append((what, *details) if details else what)
        if what in self.fail:
            raise RuntimeError(what)

    def publish(self, *records: object) -> list[object]:
        """What they are told by these records."""
        self.told.clear()
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        provenance = MetadataProvenance(self.image.offset + 1, 1, 0, True)
        self.image = delta.apply(provenance)
        self.publisher.on_metadata_update(delta, self.image, SnapshotManifest(provenance, 0))
        return self.told


class Logs:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def startup(
        self,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        replica_for: Callable[[Uuid, int], TopicPartition | None] | None = None,
    ) -> None:
        assert is_stray is not None
        assert replica_for is not None
        assert self._bench.cache.image is self._bench.image, "the cache comes first"
        self._bench.tell("logs start")


class Replicas:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def startup(self) -> None:
        self._bench.tell("replicas start")

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None:
        assert self._bench.cache.image is new_image
        self._bench.tell("replicas")

    def listen_to_late_leaders(self, listener: Callable[[TopicPartition, int], object]) -> None:
        self._bench.led_late = listener


class Coordinator:
    topic = STATE

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def startup(self) -> None:
        self._bench.tell("coordinator starts")

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self._bench.tell("elected", partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        self._bench.tell("resigned", partition, leader_epoch)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        self._bench.tell("deleted", sorted(map(str, partitions)))

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._bench.tell("image")


def topic(topic_id: Uuid, name: str, leader: int = BROKER) -> list[object]:
    partition = PartitionRecord(
        topic_id=topic_id, partition_id=0, replicas=[BROKER, 2], isr=[BROKER, 2], leader=leader, leader_epoch=3
    )
    return [TopicRecord(name=name, topic_id=topic_id), partition]


def test_the_first_metadata_start_the_managers() -> None:
    bench = Bench()
    assert not bench.publisher.first_publish_future.done()
    assert bench.publish() == ["logs start", "replicas start", "coordinator starts", "image"]
    assert bench.publisher.first_publish_future.result(0) is None
    assert bench.publish() == ["image"], "and that once"


def test_replicas_hear_of_topics_before_coordinators_do() -> None:
    bench = Bench()
    bench.publish()
    assert bench.publish(*topic(STATE_ID, STATE)) == ["replicas", ("elected", 0, 3), "image"]
    assert bench.publish(*topic(OTHER_ID, "orders")) == ["replicas", "image"], "not of its topic"
    change = PartitionChangeRecord(topic_id=STATE_ID, partition_id=0, leader=2)
    assert bench.publish(change) == ["replicas", ("resigned", 0, 4), "image"]


def test_a_deleted_topic_is_resigned_from_and_all_are_told() -> None:
    bench = Bench()
    bench.publish()
    bench.publish(*topic(STATE_ID, STATE), *topic(OTHER_ID, "orders"))
    told = bench.publish(RemoveTopicRecord(topic_id=STATE_ID), RemoveTopicRecord(topic_id=OTHER_ID))
    assert told == ["replicas", ("resigned", 0, None), ("deleted", [f"{STATE}-0", "orders-0"]), "image"]


def test_a_part_that_fails_does_not_keep_the_news_from_the_others() -> None:
    bench = Bench()
    bench.publish()
    bench.fail = {"replicas", "elected"}
    assert bench.publish(*topic(STATE_ID, STATE)) == ["replicas", ("elected", 0, 3), "image"]
    assert bench.faults == [
        "applying changes of topics",
        f"telling the coordinator of {STATE} who leads",
    ]


def test_what_fails_at_the_start_is_the_end() -> None:
    bench = Bench()
    bench.fail = {"logs start"}
    with pytest.raises(RuntimeError):
        bench.publish()
    assert bench.faults == ["fatal: starting the managers of logs, replicas and groups"]
    assert isinstance(bench.publisher.first_publish_future.exception(0), RuntimeError)


def test_a_partition_whose_log_is_opened_late_is_loaded_then() -> None:
    bench = Bench()
    bench.publish(*topic(STATE_ID, STATE), *topic(OTHER_ID, "other"))
    bench.told.clear()
    bench.led_late(TopicPartition("other", 0), 3)
    assert bench.told == []
    bench.led_late(TopicPartition(STATE, 0), 3)
    assert bench.told == [("elected", 0, 3)]
    bench.fail.add("elected")
    bench.led_late(TopicPartition(STATE, 0), 3)
    assert bench.faults == [f"telling the coordinator of {STATE} who leads"]
