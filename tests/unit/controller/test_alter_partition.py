"""AlterPartition: proposals of leaders, and the fences around them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors, StaleBrokerEpochError
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from unit.controller.harness import Harness, UuidSource

V2, V3 = ControllerRequestContext(request_version=2), ControllerRequestContext(request_version=3)


@pytest.fixture
def harness() -> Harness:
    """Topic "a" with replicas 1, 2, 3; leader 1, of which 3 has fallen out of sync."""
    made = Harness()
    made.add_brokers(1, 2, 3)
    made.create("a", assignments=[[1, 2, 3]])
    assert alter(made, 1, [1, 2]).error_code == 0
    made.mark()
    return made


def alter(harness: Harness, sender: int, isr: list[int], **fields: Any) -> ResponsePartitionData:
    number = fields.pop("number", 0)
    context = fields.pop("context", V3)
    topic_id = fields.pop("topic_id", harness.topic_id("a"))
    epochs = fields.pop("epochs", {})
    current = harness.managers.replication.partition(harness.topic_id("a"), 0)
    assert current is not None
    data = RequestPartitionData(
        partition_index=number,
        leader_epoch=fields.pop("leader_epoch", current.leader_epoch),
        partition_epoch=fields.pop("partition_epoch", current.partition_epoch),
        **fields,
    )
    if context is V3:
        data.new_isr_with_epochs = [
            BrokerState(broker_id=broker_id, broker_epoch=epochs.get(broker_id, -1)) for broker_id in isr
        ]
    else:
        data.new_isr = isr
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=harness.epoch(sender),
        topics=[RequestTopicData(topic_id=topic_id, partitions=[data])],
    )
    response = harness.result(harness.controller.alter_partition(context, request))
    assert response.error_code == 0
    return response.topics[0].partitions[0]


def test_the_isr_grows_and_shrinks(harness: Harness) -> None:
    grown = alter(harness, 1, [1, 2, 3], epochs={3: harness.epoch(3)})
    assert grown == ResponsePartitionData(
        partition_index=0, leader_id=1, leader_epoch=0, isr=[1, 2, 3], partition_epoch=2
    )
    shrunk = alter(harness, 1, [1], context=V2)
    assert (shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == ([1], 3, 0)
    topic_id = harness.topic_id("a")
    assert harness.written() == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1, 2, 3]),
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1]),
    ]


def test_a_proposal_that_changes_nothing_is_accepted_and_not_written(harness: Harness) -> None:
    same = alter(harness, 1, [1, 2])
    assert (same.error_code, same.isr, same.partition_epoch) == (0, [1, 2], 1)
    assert harness.written() == []


@pytest.mark.parametrize(
    ("sender", "isr", "fields", "error"),
    [
        (1, [1, 2, 3], {"leader_epoch": 1}, Errors.NOT_CONTROLLER),
        (1, [1, 2, 3], {"partition_epoch": 2}, Errors.NOT_CONTROLLER),
        (1, [1, 2, 3], {"leader_epoch": -1}, Errors.FENCED_LEADER_EPOCH),
        (2, [1, 2, 3], {}, Errors.INVALID_REQUEST),
        (1, [1, 2, 3], {"partition_epoch": 0}, Errors.INVALID_UPDATE_VERSION),
        (1, [1, 2, 9], {}, Errors.INVALID_REQUEST),
        (1, [1, 2, 2], {}, Errors.INVALID_REQUEST),
        (1, [2, 3], {}, Errors.INVALID_REQUEST),
        (1, [], {}, Errors.INVALID_REQUEST),
        (1, [1, 2], {"leader_recovery_state": 1}, Errors.INVALID_REQUEST),
        (1, [1], {"leader_recovery_state": 1}, Errors.INVALID_REQUEST),
        (1, [1], {"leader_recovery_state": 7}, Errors.INVALID_REQUEST),
        (1, [1, 2, 3], {"epochs": {3: 1}}, Errors.INELIGIBLE_REPLICA),
        (1, [1, 2], {"number": 4}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (1, [1, 2], {"topic_id": UuidSource(99)()}, Errors.UNKNOWN_TOPIC_ID),
    ],
)
def test_proposals_that_cannot_stand(
    harness: Harness, sender: int, isr: list[int], fields: dict[str, Any], error: Errors
) -> None:
    assert Errors(alter(harness, sender, isr, **fields).error_code) is error
    assert harness.written() == []


def test_a_fenced_or_leaving_broker_cannot_come_into_sync(harness: Harness) -> None:
    harness.fence(3)
    assert Errors(alter(harness, 1, [1, 2, 3]).error_code) is Errors.INELIGIBLE_REPLICA
    harness.unfence(3)
    harness.create("b", assignments=[[3]])
    harness.result(harness.heartbeat(3, want_shut_down=True))
    assert harness.broker(3).in_controlled_shutdown
    assert Errors(alter(harness, 1, [1, 2, 3]).error_code) is Errors.INELIGIBLE_REPLICA


def test_a_sender_of_an_earlier_life_is_refused_as_a_whole(harness: Harness) -> None:
    topics = [RequestTopicData(topic_id=harness.topic_id("a"))]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=harness.epoch(1) - 1, topics=topics)
    assert isinstance(harness.error(harness.controller.alter_partition(V3, request)), StaleBrokerEpochError)
    empty = AlterPartitionRequest(broker_id=1, broker_epoch=harness.epoch(1) - 1)
    assert harness.result(harness.controller.alter_partition(V3, empty)).error_code == Errors.NONE


def test_a_leader_reports_that_it_has_recovered(harness: Harness) -> None:
    elect_unclean(harness)
    assert harness.partition("a").leader_recovery_state == 1
    leader = harness.partition("a").leader
    still = alter(harness, leader, [leader], leader_recovery_state=1)
    assert (still.error_code, still.leader_recovery_state) == (0, 1)
    done = alter(harness, leader, [leader], leader_recovery_state=0)
    assert (done.error_code, done.leader_recovery_state) == (0, 0)
    assert harness.partition("a").leader_recovery_state == 0


def test_a_change_that_costs_the_sender_its_leadership_is_made_and_refused_with_an_error(harness: Harness) -> None:
    from barnabas.protocol.messages import alter_partition_reassignments as messages

    request = messages.AlterPartitionReassignmentsRequest(
        topics=[
            messages.ReassignableTopic(
                name="a", partitions=[messages.ReassignablePartition(partition_index=0, replicas=[2, 3])]
            )
        ]
    )
    harness.result(harness.controller.alter_partition_reassignments(V3, request))
    assert harness.partition("a").removing_replicas == (1,)
    answer = alter(harness, 1, [1, 2, 3])
    assert Errors(answer.error_code) is Errors.NEW_LEADER_ELECTED
    after = harness.partition("a")
    assert (after.replicas, after.leader, after.isr, after.leader_epoch) == ((2, 3), 2, (2, 3), 1)


def elect_unclean(harness: Harness) -> None:
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    harness.fence(1, 2)
    request = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="a", partitions=[0])])
    response = harness.result(harness.controller.elect_leaders(V3, request))
    assert response.replica_election_results[0].partition_result[0].error_code == 0
