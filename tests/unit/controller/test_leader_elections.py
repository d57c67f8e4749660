"""ElectLeaders, and elections that nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.protocol.internal.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from unit.controller.harness import CONTEXT, Harness

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.add_brokers(1, 2, 3)
    made.create("a", assignments=[[1, 2], [2, 1]])
    made.mark()
    return made


def without_elr(**settings: Any) -> Harness:
    levels = {"eligible.leader.replicas.version": 0}
    return Harness(bootstrap=BootstrapMetadata.for_version(levels=levels), **settings)


def unclean_elections(harness: Harness) -> int:
    meter = harness.metrics.get(MBeanName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec"))
    assert isinstance(meter, Meter)
    return meter.count


def elect(harness: Harness, kind: int, partitions: dict[str, list[int]] | None) -> dict[str, list[tuple[int, Errors]]]:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if partitions is None
        else [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in partitions.items()],
    )
    response = harness.result(harness.controller.elect_leaders(CONTEXT, request))
    return {
        result.topic: [(each.partition_id, Errors(each.error_code)) for each in result.partition_result]
        for result in response.replica_election_results
    }


def test_leadership_goes_back_to_the_preferred_replica(harness: Harness) -> None:
    harness.fence(1)
    harness.unfence(1)
    rejoin(harness, 1)
    assert harness.partition("a").leader == 2
    harness.mark()
    found = elect(harness, PREFERRED, {"a": [0, 1, 7], "nope": [0]})
    assert found == {
        "a": [(0, Errors.NONE), (1, Errors.ELECTION_NOT_NEEDED), (7, Errors.UNKNOWN_TOPIC_OR_PARTITION)],
        "nope": [(0, Errors.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    assert harness.written() == [PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, leader=1)]
    assert not harness.managers.replication.imbalanced


def test_all_partitions_can_be_asked_for_and_only_those_with_something_to_do_are_listed(harness: Harness) -> None:
    harness.create("b", assignments=[[3]])
    assert elect(harness, PREFERRED, None) == {"a": [], "b": []}
    harness.fence(1)
    assert elect(harness, PREFERRED, None) == {"a": [(0, Errors.PREFERRED_LEADER_NOT_AVAILABLE)], "b": []}


def test_an_unclean_election_needs_somebody_who_lives(harness: Harness) -> None:
    assert elect(harness, UNCLEAN, {"a": [0]}) == {"a": [(0, Errors.ELECTION_NOT_NEEDED)]}
    harness.fence(1, 2)
    assert elect(harness, UNCLEAN, {"a": [0]}) == {"a": [(0, Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE)]}


def test_an_unclean_election_makes_anyone_lead() -> None:
    harness = without_elr()
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    harness.fence(2)
    harness.fence(1)
    assert harness.partition("a").isr == (1,)
    harness.unfence(2)
    assert harness.partition("a").leader == -1
    assert unclean_elections(harness) == 0
    assert elect(harness, UNCLEAN, {"a": [0]}) == {"a": [(0, Errors.NONE)]}
    assert unclean_elections(harness) == 1
    after = harness.partition("a")
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_there_are_two_kinds_of_elections(harness: Harness) -> None:
    request = ElectLeadersRequest(election_type=5, topic_partitions=None)
    assert isinstance(harness.error(harness.controller.elect_leaders(CONTEXT, request)), InvalidRequestError)
    # Without partitions there is no election, and nobody looks at its type.
    request.topic_partitions = []
    assert harness.result(harness.controller.elect_leaders(CONTEXT, request)).error_code == 0


# -- because brokers come and go


def test_fencing_moves_leaderships_and_shrinks_isrs_before_the_broker_is_fenced(harness: Harness) -> None:
    harness.fence(1)
    topic_id = harness.topic_id("a")
    assert harness.written() == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2, isr=[2]),
        PartitionChangeRecord(topic_id=topic_id, partition_id=1, isr=[2]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=harness.epoch(1), fenced=1),
    ]
    assert set(harness.managers.replication.imbalanced) == {(topic_id, 0)}


def test_a_broker_that_comes_back_leads_what_nobody_leads(harness: Harness) -> None:
    harness.fence(1)
    harness.fence(2)
    assert [harness.partition("a", number).leader for number in (0, 1)] == [-1, -1]
    harness.mark()
    harness.unfence(2)
    topic_id = harness.topic_id("a")
    assert harness.written() == [
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=harness.epoch(2), fenced=-1),
        *(
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=number,
                leader=2,
                isr=[2],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for number in (0, 1)
        ),
    ]


def test_without_elr_the_last_replica_stays_in_the_isr() -> None:
    harness = without_elr()
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    harness.fence(1)
    harness.fence(2)
    before = harness.partition("a")
    assert (before.leader, before.isr) == (-1, (2,))
    harness.unfence(1)
    assert harness.partition("a").leader == -1
    harness.unfence(2)
    assert harness.partition("a").leader == 2


def test_a_topic_that_permits_it_gets_an_unclean_leader_at_once() -> None:
    harness = without_elr()
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    harness.fence(1)
    harness.fence(2)
    assert harness.partition("a").leader == -1
    harness.unfence(1)
    after = harness.partition("a")
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), 1)


# -- by the clock


def test_leaders_are_balanced_now_and_then() -> None:
    harness = Harness(leader_imbalance_check_interval_ms=300_000, session_timeout_ms=10**9)
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    harness.fence(1)
    harness.unfence(1)
    rejoin(harness, 1)
    harness.mark()
    harness.advance(299_999)
    assert harness.written() == []
    harness.advance(1)
    assert harness.written() == [PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, leader=1)]


def test_unclean_leaders_are_elected_now_and_then_where_it_is_permitted() -> None:
    from barnabas.protocol.messages import incremental_alter_configs as messages

    harness = without_elr(session_timeout_ms=10**9)
    harness.add_brokers(1, 2)
    for name in ("strict", "lax"):
        harness.create(name, assignments=[[1, 2]])
    harness.fence(2)
    harness.fence(1)
    harness.unfence(2)
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.AlterConfigsResource(
                resource_type=2,
                resource_name="lax",
                configs=[messages.AlterableConfig(name="unclean.leader.election.enable", value="true")],
            )
        ]
    )
    harness.result(harness.controller.incremental_alter_configs(CONTEXT, request))
    assert harness.partition("lax").leader == -1
    harness.advance(300_000)
    assert (harness.partition("lax").leader, harness.partition("strict").leader) == (2, -1)


def test_a_task_comes_back_for_what_it_could_not_do_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(leader_imbalance_check_interval_ms=1_000, session_timeout_ms=10**9)
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]] * 5)
    harness.fence(1)
    harness.unfence(1)
    rejoin(harness, 1, 5)
    monkeypatch.setattr(harness.managers.elections, "_max_elections_per_run", 2)
    harness.advance(1_000)
    assert len(harness.managers.replication.imbalanced) == 3
    harness.advance(10)
    harness.advance(10)
    assert len(harness.managers.replication.imbalanced) == 0


def rejoin(harness: Harness, broker_id: int, partitions: int = 1) -> None:
    """The leader takes a broker back into the ISR."""
    from barnabas.protocol.messages import alter_partition as messages

    data = []
    for number in range(partitions):
        partition = harness.partition("a", number)
        members = [*partition.isr, broker_id]
        data.append(
            messages.RequestPartitionData(
                partition_index=number,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr=members,
                new_isr_with_epochs=[messages.BrokerState(broker_id=member) for member in members],
            )
        )
    leader = harness.partition("a").leader
    request = messages.AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=harness.epoch(leader),
        topics=[messages.RequestTopicData(topic_id=harness.topic_id("a"), partitions=data)],
    )
    response = harness.result(harness.controller.alter_partition(CONTEXT, request))
    assert all(each.error_code == 0 for each in response.topics[0].partitions)
