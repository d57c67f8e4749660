"""Whatever is done, the log says it all: replaying the records gives the same state, here and in an image."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.common.errors import ApiError, NotControllerError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.directory_id import is_reserved
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.topics import TopicImage
from barnabas.metadata.writer import BatchWriter
from barnabas.protocol.internal.metadata import BeginTransactionRecord, EndTransactionRecord
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
    update_features,
)
from barnabas.raft.client import ApiMessageAndVersion, OffsetAndEpoch
from unit.controller.harness import CONTEXT, NODE, Harness, directory, topic

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "e"])
NUMBERS = st.integers(0, 3)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=3, unique=True)
OTHER_NODE = 9


class ControllerMachine(RuleBasedStateMachine):
    """Does anything to a controller, commits now and then, and takes leadership away in between."""

    @initialize(elr=st.booleans())
    def begin(self, elr: bool) -> None:
        levels = {"eligible.leader.replicas.version": int(elr)}
        self.harness = Harness(
            auto_commit=False, default_num_partitions=2, bootstrap=BootstrapMetadata.for_version(levels=levels)
        )
        self.lives: dict[int, int] = {}
        self.pending: list[Future[Any]] = []
        for broker_id in (1, 2, 3):
            self.start_broker(broker_id, clean=False)
            self.harness.heartbeat(broker_id)
            self.harness.step()

    def do(self, call: Callable[[], Future[Any]]) -> None:
        self.pending.append(call())
        self.harness.step()

    def image(self) -> MetadataImage:
        """What brokers make of the log, by other code."""
        delta = MetadataDelta()
        for batch in self.harness.raft.log.batches:
            for message, _ in batch.decode(self.harness.raft._types).records:
                if not isinstance(message, (BeginTransactionRecord, EndTransactionRecord)):
                    delta.replay(message)
        return delta.apply(MetadataProvenance(self.harness.raft.log_end_offset - 1, 1, 0, True))

    # -- brokers

    @rule(broker_id=BROKERS, clean=st.booleans())
    def start_broker(self, broker_id: int, clean: bool) -> None:
        life = self.lives[broker_id] = self.lives.get(broker_id, -1) + 1
        previous = self.harness.managers.cluster.broker(broker_id)
        directories = [directory(broker_id, number) for number in range(1 + broker_id % 2)]
        epoch = previous.epoch if clean and previous is not None else -1
        self.do(lambda: self.harness.register(broker_id, life=life, previous_epoch=epoch, directories=directories))

    @rule(
        broker_id=BROKERS,
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        offline=st.lists(st.integers(0, 1), max_size=1),
        cordoned=st.one_of(st.none(), st.lists(st.integers(0, 1), max_size=2, unique=True)),
    )
    def heartbeat(
        self,
        broker_id: int,
        want_fence: bool,
        want_shut_down: bool,
        offline: list[int],
        cordoned: list[int] | None,
    ) -> None:
        if self.harness.managers.cluster.broker(broker_id) is None:
            return
        self.do(
            lambda: self.harness.heartbeat(
                broker_id,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=[directory(broker_id, number) for number in offline],
                cordoned_log_dirs=None if cordoned is None else [directory(broker_id, each) for each in cordoned],
            )
        )

    @rule(broker_id=BROKERS)
    def plain_heartbeat(self, broker_id: int) -> None:
        if self.harness.managers.cluster.broker(broker_id) is not None:
            self.do(lambda: self.harness.heartbeat(broker_id))

    @rule(milliseconds=st.sampled_from([10, 2_000, 10_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.harness.advance(milliseconds)

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        request = unregister_broker.UnregisterBrokerRequest(broker_id=broker_id)
        self.do(lambda: self.harness.controller.unregister_broker(CONTEXT, request))

    # -- topics

    @rule(name=NAMES, partitions=st.integers(-1, 3), factor=st.integers(-1, 3), unclean=st.booleans())
    def create(self, name: str, partitions: int, factor: int, unclean: bool) -> None:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "2"} if unclean else {}
        request = create_topics.CreateTopicsRequest(topics=[topic(name, partitions, factor, configs=configs)])
        self.do(lambda: self.harness.controller.create_topics(CONTEXT, request))

    @rule(name=NAMES, assignments=st.lists(REPLICAS, min_size=1, max_size=3))
    def create_by_hand(self, name: str, assignments: list[list[int]]) -> None:
        request = create_topics.CreateTopicsRequest(topics=[topic(name, assignments=assignments)])
        self.do(lambda: self.harness.controller.create_topics(CONTEXT, request))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        request = delete_topics.DeleteTopicsRequest(topic_names=[name])
        self.do(lambda: self.harness.controller.delete_topics(CONTEXT, request))

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        wanted = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[wanted])
        self.do(lambda: self.harness.controller.create_partitions(CONTEXT, request))

    @rule(name=NAMES, number=NUMBERS, isr=REPLICAS, recovering=st.booleans())
    def alter_isr(self, name: str, number: int, isr: list[int], recovering: bool) -> None:
        found = self.harness.managers.replication.topic_named(name)
        partition = None if found is None else found.partitions.get(number)
        if found is None or partition is None or not partition.has_leader:
            return
        members = [partition.leader, *(each for each in isr if each != partition.leader)]
        data = alter_partition.RequestPartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=int(recovering),
            new_isr_with_epochs=[alter_partition.BrokerState(broker_id=each) for each in members],
        )
        request = alter_partition.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.harness.epoch(partition.leader),
            topics=[alter_partition.RequestTopicData(topic_id=found.id, partitions=[data])],
        )
        self.do(lambda: self.harness.controller.alter_partition(CONTEXT, request))

    @rule(name=NAMES, number=NUMBERS, replicas=st.one_of(st.none(), REPLICAS))
    def reassign(self, name: str, number: int, replicas: list[int] | None) -> None:
        partition = alter_partition_reassignments.ReassignablePartition(partition_index=number, replicas=replicas)
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[alter_partition_reassignments.ReassignableTopic(name=name, partitions=[partition])]
        )
        self.do(lambda: self.harness.controller.alter_partition_reassignments(CONTEXT, request))

    @rule(kind=st.integers(0, 1))
    def elect(self, kind: int) -> None:
        request = elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.do(lambda: self.harness.controller.elect_leaders(CONTEXT, request))

    @rule(broker_id=BROKERS, number=st.integers(0, 2), name=NAMES, partition=NUMBERS)
    def assign_directory(self, broker_id: int, number: int, name: str, partition: int) -> None:
        found = self.harness.managers.replication.topic_named(name)
        if found is None or self.harness.managers.cluster.broker(broker_id) is None:
            return
        request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.harness.epoch(broker_id),
            directories=[
                assign_replicas_to_dirs.RequestDirectoryData(
                    id=directory(broker_id, number),
                    topics=[
                        assign_replicas_to_dirs.RequestTopicData(
                            topic_id=found.id,
                            partitions=[assign_replicas_to_dirs.RequestPartitionData(partition_index=partition)],
                        )
                    ],
                )
            ],
        )
        self.do(lambda: self.harness.controller.assign_replicas_to_dirs(CONTEXT, request))

    # -- the rest

    @rule(
        kind=st.sampled_from([2, 4, 32]),
        name=st.sampled_from(["a", "b", "", "1"]),
        key=st.sampled_from(["min.insync.replicas", "unclean.leader.election.enable", "x"]),
        value=st.sampled_from(["1", "2", None]),
    )
    def configure(self, kind: int, name: str, key: str, value: str | None) -> None:
        if key.startswith("unclean"):
            value = None if value is None else "true"
        config = incremental_alter_configs.AlterableConfig(
            name=key, config_operation=1 if value is None else 0, value=value
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
            ]
        )
        self.do(lambda: self.harness.controller.incremental_alter_configs(CONTEXT, request))

    @rule(user=st.sampled_from([None, "u"]), value=st.sampled_from([None, 1.0, 2.0]))
    def quota(self, user: str | None, value: float | None) -> None:
        operation = alter_client_quotas.OpData(key="producer_byte_rate", value=value or 0.0, remove=value is None)
        request = alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.RequestEntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name=user)], ops=[operation]
                )
            ]
        )
        self.do(lambda: self.harness.controller.alter_client_quotas(CONTEXT, request))

    @rule(
        name=st.sampled_from(["group.version", "transaction.version", "eligible.leader.replicas.version"]),
        level=st.integers(0, 2),
        kind=st.integers(1, 2),
    )
    def feature(self, name: str, level: int, kind: int) -> None:
        request = update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)]
        )
        self.do(lambda: self.harness.controller.update_features(CONTEXT, request))

    @rule(broker_id=BROKERS)
    def producer_ids(self, broker_id: int) -> None:
        broker = self.harness.managers.cluster.broker(broker_id)
        request = allocate_producer_ids.AllocateProducerIdsRequest(
            broker_id=broker_id, broker_epoch=-1 if broker is None else broker.epoch
        )
        self.do(lambda: self.harness.controller.allocate_producer_ids(CONTEXT, request))

    @rule(name=st.sampled_from(["t", "u"]), add=st.booleans())
    def acl(self, name: str, add: bool) -> None:
        if add:
            creation = create_acls.AclCreation(
                resource_type=2,
                resource_name=name,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
            request = create_acls.CreateAclsRequest(creations=[creation])
            self.do(lambda: self.harness.controller.create_acls(CONTEXT, request))
        else:
            wanted = delete_acls.DeleteAclsFilter(
                resource_type_filter=1,
                resource_name_filter=name,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            removal = delete_acls.DeleteAclsRequest(filters=[wanted])
            self.do(lambda: self.harness.controller.delete_acls(CONTEXT, removal))

    @rule(mechanism=st.integers(1, 2), add=st.booleans())
    def credential(self, mechanism: int, add: bool) -> None:
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest()
        if add:
            request.upsertions = [
                alter_user_scram_credentials.ScramCredentialUpsertion(
                    name="u", mechanism=mechanism, iterations=4096, salt=b"s", salted_password=b"p"
                )
            ]
        else:
            request.deletions = [alter_user_scram_credentials.ScramCredentialDeletion(name="u", mechanism=mechanism)]
        self.do(lambda: self.harness.controller.alter_user_scram_credentials(CONTEXT, request))

    # -- the quorum

    @rule()
    def commit(self) -> None:
        self.harness.commit()
        assert all(future.done() for future in self.pending)
        for future in self.pending:
            error = future.exception(0)
            assert error is None or isinstance(error, ApiError)
        self.pending.clear()

    @precondition(lambda self: len(self.pending) > 0)
    @rule()
    def leadership_is_lost_and_won_back(self) -> None:
        """The state goes back to what is committed: that of a controller that knows the committed log only."""
        waiting = [future for future in self.pending if not future.done()]
        self.harness.raft.elect(OTHER_NODE)
        self.harness.step()
        for future in waiting:
            assert isinstance(future.exception(0), NotControllerError)
        self.pending.clear()
        assert not self.harness.active()
        assert self.harness.state() == restarted(self.harness).state()
        self.harness.raft.elect(NODE)
        self.harness.commit()

    @invariant()
    def the_indexes_agree_with_the_partitions(self) -> None:
        state = self.harness.state()
        expected: dict[str, dict[Any, set[Any]]] = {name: {} for name in ("leaders", "isr", "elr", "directories")}
        reassigning, imbalanced = set(), set()
        for topic_id, partitions in state["topics"].values():
            for number, partition in partitions.items():
                key = (topic_id, number)
                expected["leaders"].setdefault(partition.leader, set()).add(key)
                for name, members in (("isr", partition.isr), ("elr", partition.elr)):
                    for member in members:
                        expected[name].setdefault(member, set()).add(key)
                for each in partition.directories:
                    if not is_reserved(each):
                        expected["directories"].setdefault(each, set()).add(key)
                if partition.is_reassigning:
                    reassigning.add(key)
                if not partition.has_preferred_leader:
                    imbalanced.add(key)
        for name, index in expected.items():
            assert state[name] == index, name
        assert state["reassigning"] == reassigning
        assert state["imbalanced"] == imbalanced

    @invariant()
    def partitions_make_sense(self) -> None:
        state = self.harness.state()
        for _, partitions in state["topics"].values():
            assert sorted(partitions) == list(range(len(partitions)))
            for partition in partitions.values():
                replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
                assert len(replicas) == len(partition.replicas) == len(partition.directories)
                assert isr <= replicas
                assert not isr & elr
                assert set(partition.adding_replicas) <= replicas
                assert set(partition.removing_replicas) <= replicas
                if partition.has_leader:
                    assert partition.leader in isr
                    leader = state["brokers"][partition.leader]
                    assert not leader.fenced, partition

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.commit()
        expected = self.harness.state()
        assert restarted(self.harness).state() == expected
        image = self.image()
        assert image_state(image) == {part: expected[part] for part in image_state(image)}
        assert from_snapshot(self.harness, image).state() == {
            **expected,
            "registration offsets": dict.fromkeys(expected["brokers"], self.harness.raft.log_end_offset - 1),
        }


def restarted(harness: Harness) -> Harness:
    """A controller that has read the committed log and does not lead."""
    again = Harness(node_id=8, log=harness.raft.log, start=False)
    again.raft.commit(up_to=(harness.raft.high_watermark or 0) - 1)
    again.step()
    return again


def from_snapshot(harness: Harness, image: MetadataImage) -> Harness:
    """A controller that has read nothing but a snapshot of the image."""
    writer = harness.raft.create_snapshot(OffsetAndEpoch(harness.raft.log_end_offset, 1), 0)
    assert writer is not None

    def append(batch: list[Any]) -> None:
        writer.append([ApiMessageAndVersion(*each) for each in batch])

    image.write(BatchWriter(append, lambda complete: writer.freeze() if complete else None))
    again = Harness(log=harness.raft.log, start=False)
    again.raft.commit()
    again.step()
    return again


def image_state(image: MetadataImage) -> dict[str, Any]:
    """The parts of an image that a controller has in the same form."""
    levels = dict(image.features.finalized.items())
    if image.features.metadata_version is not None:
        levels["metadata.version"] = image.features.metadata_version.value
    return {
        "topics": {found.name: (found.id, dict(found.partitions)) for found in topics_of(image)},
        "names": {found.name: found.id for found in topics_of(image)},
        "brokers": dict(image.cluster.brokers.items()),
        "configs": {resource: dict(each) for resource, each in image.configs.resources.items()},
        "quotas": {entity: dict(limits) for entity, limits in image.client_quotas.entities.items()},
        "features": levels,
        "producer ids": max(image.producer_ids.next_producer_id, 0),
        "acls": dict(image.acls.entries.items()),
        "scram": dict(image.scram.credentials.items()),
    }


def topics_of(image: MetadataImage) -> list[TopicImage]:
    return [found for name in image.topics.sorted_names if (found := image.topics.topic(name)) is not None]


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
