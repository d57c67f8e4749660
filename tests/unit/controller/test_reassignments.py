"""AlterPartitionReassignments, ListPartitionReassignments, AssignReplicasToDirs."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors, StaleBrokerEpochError, UnsupportedVersionError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from barnabas.protocol.messages import alter_partition, assign_replicas_to_dirs
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from unit.controller.harness import CONTEXT, Harness, UuidSource, directory


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.add_brokers(1, 2, 3, 4)
    made.create("a", assignments=[[1, 2], [2, 1]])
    made.mark()
    return made


def reassign(
    harness: Harness, target: list[int] | None, *, name: str = "a", number: int = 0, allow_change: bool = True
) -> Errors:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_change,
        topics=[
            ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=number, replicas=target)])
        ],
    )
    response = harness.result(harness.controller.alter_partition_reassignments(CONTEXT, request))
    assert response.error_code == 0
    return Errors(response.responses[0].partitions[0].error_code)


def ongoing(
    harness: Harness, topics: dict[str, list[int]] | None = None
) -> list[tuple[str, int, list[int], list[int]]]:
    request = ListPartitionReassignmentsRequest(
        topics=None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()
        ]
    )
    response = harness.result(harness.controller.list_partition_reassignments(CONTEXT, request))
    return [
        (topic.name, each.partition_index, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def set_isr(harness: Harness, isr: list[int], number: int = 0) -> Errors:
    partition = harness.partition("a", number)
    request = alter_partition.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=harness.epoch(partition.leader),
        topics=[
            alter_partition.RequestTopicData(
                topic_id=harness.topic_id("a"),
                partitions=[
                    alter_partition.RequestPartitionData(
                        partition_index=number,
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=partition.partition_epoch,
                        new_isr_with_epochs=[alter_partition.BrokerState(broker_id=each) for each in isr],
                    )
                ],
            )
        ],
    )
    response = harness.result(harness.controller.alter_partition(ControllerRequestContext(request_version=3), request))
    return Errors(response.topics[0].partitions[0].error_code)


def test_a_partition_moves(harness: Harness) -> None:
    assert reassign(harness, [3, 4]) is Errors.NONE
    under_way = harness.partition("a")
    assert (under_way.replicas, under_way.leader) == ((3, 4, 1, 2), 1)
    assert ongoing(harness) == [("a", 0, [3, 4], [1, 2])]
    assert set_isr(harness, [1, 2, 3]) is Errors.NONE
    assert ongoing(harness) == [("a", 0, [3, 4], [1, 2])]
    assert set_isr(harness, [1, 2, 3, 4]) is Errors.NEW_LEADER_ELECTED
    done = harness.partition("a")
    assert (done.replicas, done.isr, done.leader) == ((3, 4), (3, 4), 3)
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert ongoing(harness) == []


def test_a_move_that_needs_no_copying_is_done_at_once(harness: Harness) -> None:
    assert reassign(harness, [2, 1]) is Errors.NONE
    assert harness.partition("a").replicas == (2, 1)
    assert reassign(harness, [2]) is Errors.NONE
    after = harness.partition("a")
    assert (after.replicas, after.isr, after.leader) == ((2,), (2,), 2)
    assert ongoing(harness) == []


def test_asking_for_what_is_writes_nothing(harness: Harness) -> None:
    assert reassign(harness, [1, 2]) is Errors.NONE
    assert harness.written() == []
    reassign(harness, [3, 4])
    harness.mark()
    assert reassign(harness, [3, 4]) is Errors.NONE
    assert harness.written() == []


def test_on_one_node_a_partition_can_only_stay() -> None:
    harness = Harness()
    harness.add_brokers(1)
    harness.create("a", 1)
    harness.mark()
    assert reassign(harness, [1]) is Errors.NONE
    assert reassign(harness, [2]) is Errors.INVALID_REPLICA_ASSIGNMENT
    assert reassign(harness, None) is Errors.NO_REASSIGNMENT_IN_PROGRESS
    assert (harness.written(), ongoing(harness)) == ([], [])


def test_a_move_can_be_cancelled(harness: Harness) -> None:
    reassign(harness, [3, 4])
    set_isr(harness, [1, 2, 3])
    assert reassign(harness, None) is Errors.NONE
    back = harness.partition("a")
    assert (back.replicas, back.isr, back.leader) == ((1, 2), (1, 2), 1)
    assert not back.is_reassigning
    assert reassign(harness, None) is Errors.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_whose_old_replicas_are_gone_is_not_cancelled_unless_it_is_permitted(harness: Harness) -> None:
    reassign(harness, [3, 4])
    set_isr(harness, [1, 2, 3])
    harness.fence(1)
    harness.fence(2)
    assert harness.partition("a").isr == (3,)
    assert reassign(harness, None) is Errors.INVALID_REPLICA_ASSIGNMENT


def test_a_move_can_be_replaced(harness: Harness) -> None:
    reassign(harness, [3])
    assert reassign(harness, [4]) is Errors.NONE
    assert harness.partition("a").replicas == (4, 1, 2, 3)
    assert ongoing(harness) == [("a", 0, [4], [1, 2, 3])]


@pytest.mark.parametrize(
    ("target", "where", "error"),
    [
        ([], {}, Errors.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, Errors.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], {}, Errors.INVALID_REPLICA_ASSIGNMENT),
        ([1], {"name": "nope"}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"number": 7}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"allow_change": False}, Errors.INVALID_REPLICATION_FACTOR),
        ([], {"allow_change": False}, Errors.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2, 9], {"allow_change": False}, Errors.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(
    harness: Harness, target: list[int], where: dict[str, object], error: Errors
) -> None:
    assert reassign(harness, target, **where) is error  # type: ignore[arg-type]
    assert harness.written() == []


def test_the_replication_factor_counts_what_will_be(harness: Harness) -> None:
    reassign(harness, [3, 4])
    assert reassign(harness, [4, 3], allow_change=False) is Errors.NONE
    assert reassign(harness, [1, 2, 3, 4], allow_change=False) is Errors.INVALID_REPLICATION_FACTOR


def test_a_list_can_be_asked_for_some_partitions(harness: Harness) -> None:
    reassign(harness, [3, 4])
    reassign(harness, [3, 4], number=1)
    assert len(ongoing(harness)) == 2
    assert ongoing(harness, {"a": [1, 5], "nope": [0]}) == [("a", 1, [3, 4], [1, 2])]
    assert ongoing(harness, {}) == []


def test_a_list_shows_what_is_committed() -> None:
    first = Harness()
    first.add_brokers(1, 2)
    first.create("a", assignments=[[1]])
    harness = Harness(log=first.raft.log, auto_commit=False, clock=first.clock)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="a", partitions=[ReassignablePartition(partition_index=0, replicas=[2])])]
    )
    harness.controller.alter_partition_reassignments(CONTEXT, request)
    harness.step()
    assert harness.partition("a").is_reassigning
    assert ongoing(harness) == []
    harness.commit()
    assert len(ongoing(harness)) == 1


# -- log directories


def assign(harness: Harness, broker_id: int, where: bytes, *partitions: tuple[bytes, int]) -> list[Errors]:
    request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=harness.epoch(broker_id),
        directories=[
            assign_replicas_to_dirs.RequestDirectoryData(
                id=where,  # type: ignore[arg-type]
                topics=[
                    assign_replicas_to_dirs.RequestTopicData(
                        topic_id=topic_id,  # type: ignore[arg-type]
                        partitions=[assign_replicas_to_dirs.RequestPartitionData(partition_index=number)],
                    )
                    for topic_id, number in partitions
                ],
            )
        ],
    )
    response = harness.result(harness.controller.assign_replicas_to_dirs(CONTEXT, request))
    return [
        Errors(partition.error_code)
        for each in response.directories
        for topic in each.topics
        for partition in topic.partitions
    ]


def test_a_broker_tells_where_its_replicas_are(harness: Harness) -> None:
    harness.result(harness.register(1, directories=[directory(1, 0), directory(1, 1)]))
    harness.mark()
    topic_id = harness.topic_id("a")
    found = assign(harness, 1, directory(1, 1), (topic_id, 0), (topic_id, 9), (UuidSource(99)(), 0), (topic_id, 1))
    assert found == [Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID, Errors.NONE]
    assert harness.written() == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(1, 1), directory(2)]),
        PartitionChangeRecord(topic_id=topic_id, partition_id=1, directories=[directory(2), directory(1, 1)]),
    ]
    assert harness.state()["directories"][directory(1, 1)] == {(topic_id, 0), (topic_id, 1)}
    assert assign(harness, 3, directory(3), (topic_id, 0)) == [Errors.NOT_LEADER_OR_FOLLOWER]


def test_a_replica_in_a_failed_directory_counts_as_gone(harness: Harness) -> None:
    topic_id = harness.topic_id("a")
    assert assign(harness, 1, directory(1, 7), (topic_id, 0)) == [Errors.NONE]
    after = harness.partition("a")
    assert (after.directories[0], after.leader, after.isr) == (directory(1, 7), 2, (2,))


def test_the_sender_must_be_who_it_says_and_the_cluster_new_enough(harness: Harness) -> None:
    request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1)
    future = harness.controller.assign_replicas_to_dirs(CONTEXT, request)
    assert isinstance(harness.error(future), StaleBrokerEpochError)
    old = Harness(bootstrap=BootstrapMetadata.for_version(MetadataVersion.IBP_3_6_IV2, "a test"))
    future = old.controller.assign_replicas_to_dirs(CONTEXT, request)
    assert isinstance(old.error(future), UnsupportedVersionError)
