"""Limits in the metadata log reach those who enforce them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.publishers.client_quota_metadata_manager import DynamicClientQuotaPublisher, quota_entity
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.network.server.connection_limits import UNLIMITED
from barnabas.network.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from barnabas.protocol.internal.metadata import ClientQuotaRecord, EntityData, PartitionRecord, TopicRecord
from barnabas.protocol.message import Struct
from barnabas.quota.client_quota_manager import NO_LIMIT
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from quota_fixtures import QuotaBench, quota_bench
from unit.quota.test_quota_factory import ByTeam

PROVENANCE = MetadataProvenance(5, 1, 0, True)


class World:
    """A node with quotas, and the publisher that keeps them up to date."""

    def __init__(self, bench: QuotaBench) -> None:
        self.bench = bench
        self.managers = bench.managers
        self.connections = ConnectionQuotas(ConnectionLimits(), bench.clock, bench.metrics)
        self.faults: list[tuple[str, BaseException]] = []
        self.image: MetadataImage = EMPTY_IMAGE
        self.publisher = DynamicClientQuotaPublisher(
            1,
            "broker",
            "cluster",
            self.managers,
            self.connections,
            on_fault=lambda what, error: self.faults.append((what, error)),
        )

    def publish(self, *records: Struct) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        self.image = delta.apply(PROVENANCE)
        self.publisher.on_metadata_update(delta, self.image, SnapshotManifest(PROVENANCE, 0))


def limit(key: str, value: float | None, **entity: str | None) -> ClientQuotaRecord:
    """A limit of an entity; no value takes it away. A name of None is the default."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


@pytest.fixture
def world() -> Iterator[World]:
    with quota_bench() as bench:
        yield World(bench)


@pytest.mark.mechanism("Q10")
def test_each_key_goes_to_its_manager(world: World) -> None:
    world.publish(
        limit("producer_byte_rate", 1.0, user="alice"),
        limit("consumer_byte_rate", 2.0, user="alice"),
        limit("request_percentage", 3.5, user="alice"),
        limit("controller_mutation_rate", 4.5, user="alice"),
    )
    managers = world.managers
    assert [manager.quota("alice", "") for manager in (managers.produce, managers.fetch)] == [1.0, 2.0]
    assert [manager.quota("alice", "") for manager in (managers.request, managers.controller_mutation)] == [3.5, 4.5]


@pytest.mark.mechanism("Q10")
@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ({"user": "alice"}, QuotaEntity("alice")),
        ({"user": None}, QuotaEntity(DEFAULT)),
        ({"client-id": "billing"}, QuotaEntity(None, "billing")),
        ({"client-id": None}, QuotaEntity(None, DEFAULT)),
        ({"user": "alice", "client-id": "billing"}, QuotaEntity("alice", "billing")),
        ({"user": "alice", "client-id": None}, QuotaEntity("alice", DEFAULT)),
        ({"user": None, "client-id": "billing"}, QuotaEntity(DEFAULT, "billing")),
        ({"user": None, "client-id": None}, QuotaEntity(DEFAULT, DEFAULT)),
    ],
)
def test_no_name_is_the_default_and_no_part_is_none(parts: dict[str, str | None], entity: QuotaEntity) -> None:
    assert quota_entity(parts) == entity


@pytest.mark.mechanism("Q10")
def test_a_limit_changes_and_goes_while_clients_are_at_work_and_usage_stays(world: World) -> None:
    produce = world.bench.produce
    world.publish(limit("producer_byte_rate", 1_000.0, client_id=None))
    assert produce(15_000) == 5_000
    world.publish(limit("producer_byte_rate", 5_000.0, client_id=None))
    assert produce(0) == 0
    world.publish(limit("producer_byte_rate", 1_000.0, client_id="client"))
    assert produce(0) == 5_000, "of what it has used, nothing is forgotten"
    world.publish(
        limit("producer_byte_rate", None, client_id="client"), limit("producer_byte_rate", None, client_id=None)
    )
    assert produce(1e9) == 0
    assert not world.managers.produce.is_enabled
    assert world.managers.produce.quota("", "client") == NO_LIMIT


@pytest.mark.mechanism("Q10")
def test_addresses_go_to_the_connection_quotas(world: World) -> None:
    world.publish(limit("connection_creation_rate", 10.0, ip="192.0.2.7"))
    world.publish(limit("connection_creation_rate", 5.0, ip=None))
    assert world.connections.connection_rate_for_ip("192.0.2.7") == 10
    assert world.connections.connection_rate_for_ip("192.0.2.8") == 5
    world.publish(limit("connection_creation_rate", None, ip="192.0.2.7"))
    assert world.connections.connection_rate_for_ip("192.0.2.7") == 5
    world.publish(limit("connection_creation_rate", None, ip=None))
    assert world.connections.connection_rate_for_ip("192.0.2.7") == UNLIMITED


def test_what_makes_no_sense_is_told_and_keeps_nothing_else_from_being_applied(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.publish(
        limit("producer_byte_rate", 1.0, ip="192.0.2.7"),
        limit("connection_creation_rate", 1.0, ip="no address"),
        limit("bytes_per_fortnight", 1.0, user="alice"),
        limit("producer_byte_rate", 1.0, planet="mars"),
        limit("producer_byte_rate", 7.0, user="alice"),
    )
    assert world.managers.produce.quota("alice", "") == 7.0
    assert len([record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]) == 4
    assert not world.faults


@pytest.mark.mechanism("Q11")
def test_a_callback_hears_of_partitions_and_their_leaders() -> None:
    callback = ByTeam()
    with quota_bench(callback=callback) as bench:
        world = World(bench)
        topic_id = Uuid(bytes(15) + b"t")
        world.publish(
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1),
            PartitionRecord(topic_id=topic_id, partition_id=1, replicas=[1], isr=[1], leader=-1),
        )
        ((cluster,),) = callback.told
        assert cluster.cluster_id == "cluster"  # type: ignore[attr-defined]
        assert cluster.leaders == {  # type: ignore[attr-defined]
            TopicPartition("t", 0): 1,
            TopicPartition("t", 1): None,
        }


def test_a_callback_that_fails_is_a_fault_and_not_the_end() -> None:
    class Broken(ByTeam):
        def update_cluster_metadata(self, cluster: object) -> bool:
            raise RuntimeError("no")

    with quota_bench(callback=Broken()) as bench:
        world = World(bench)
        world.publish(TopicRecord(name="t", topic_id=Uuid(bytes(15) + b"t")))
        assert [what for what, _ in world.faults] == ["applying client quotas up to offset 5"]


def test_the_name_tells_roles_of_one_node_apart(world: World) -> None:
    assert world.publisher.name == "DynamicClientQuotaPublisher broker id=1"
