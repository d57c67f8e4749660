"""The metrics of a member of a group: what counts as a heartbeat, a commit, a rebalance, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer import ConsumerRebalanceListener, TopicPartition
from barnabas.clients.consumer.internals.consumer_heartbeat_request_manager import ConsumerHeartbeatRequestManager
from barnabas.clients.consumer.internals.consumer_member_state import MemberState
from barnabas.clients.consumer.internals.group_events import RebalanceCallback, RebalanceListenerEvent
from barnabas.clients.consumer.internals.group_metrics import COORDINATOR_GROUP
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.metrics.names import MetricName
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from unit.clients.consumer.group_simulation import SimulatedMember, Simulation
from unit.clients.consumer.test_group_simulation import KINDS

ONE = TopicPartition("t", 0)


def value(member: SimulatedMember, name: str) -> float:
    metric = member.metrics.metric(MetricName(name, COORDINATOR_GROUP))
    assert metric is not None, name
    found: float = metric.value()
    return found


def count(member: SimulatedMember, kind: type[Any]) -> int:
    return sum(isinstance(one, kind) for one in member.sent)


def names(member: SimulatedMember) -> set[str]:
    return {name.name for name in member.metrics.metrics if name.group == COORDINATOR_GROUP}


def manual(kind: str) -> dict[str, Any]:
    return {**KINDS[kind], "enable.auto.commit": False}


def test_before_anything_has_happened() -> None:
    member = Simulation(0).member(**KINDS["consumer"])
    assert [value(member, f"last-{what}-seconds-ago") for what in ("heartbeat", "rebalance")] == [-1.0, -1.0]
    assert math.isnan(value(member, "rebalance-latency-avg"))
    assert [value(member, name) for name in ("heartbeat-total", "rebalance-total", "assigned-partitions")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "request_type"), [("consumer", ConsumerGroupHeartbeatRequest), ("eager", HeartbeatRequest)]
)
def test_heartbeats(kind: str, request_type: type[Any]) -> None:
    simulation = Simulation(0)
    member = simulation.member(**manual(kind))
    simulation.settle()
    simulation.run(20_000)
    sent = count(member, request_type)
    assert sent >= 4
    assert sent - 1 <= value(member, "heartbeat-total") <= sent
    assert 0 <= value(member, "heartbeat-response-time-max") < 1_000
    assert 0 < value(member, "heartbeat-rate") < 1
    member.frozen = True
    before = value(member, "last-heartbeat-seconds-ago")
    simulation.run(30_000, 1_000)
    assert value(member, "last-heartbeat-seconds-ago") - before == 30


def test_a_heartbeat_without_a_response_is_none() -> None:
    simulation = Simulation(0)
    member = simulation.member(**manual("consumer"))
    simulation.settle()
    simulation.run(200)
    answered = value(member, "heartbeat-total")
    simulation.cluster.faults.lost_answer = 1.0
    simulation.run(10_000)
    assert value(member, "heartbeat-total") == answered
    assert value(member, "last-heartbeat-seconds-ago") < 10


@pytest.mark.parametrize("kind", ["consumer", "eager"])
def test_commits(kind: str) -> None:
    """Refused ones as well, and each attempt by itself."""
    simulation = Simulation(0)
    member = simulation.member(**manual(kind))
    simulation.settle()
    first = member.group.commit({ONE: OffsetAndMetadata(5)}, simulation.cluster.now + 30_000)
    simulation.run_until(first.done)
    assert value(member, "commit-total") == 1
    simulation.cluster.move_coordinator()
    second = member.group.commit({ONE: OffsetAndMetadata(6)}, simulation.cluster.now + 30_000)
    simulation.run_until(second.done)
    assert second.exception() is None
    assert value(member, "commit-total") == count(member, OffsetCommitRequest) == 3
    assert 0 < value(member, "commit-latency-avg") <= value(member, "commit-latency-max") < 1_000
    assert value(member, "commit-rate") == pytest.approx(3 / 30, rel=0.5)


@pytest.mark.parametrize("kind", ["consumer", "eager", "cooperative"])
def test_rebalances(kind: str) -> None:
    simulation = Simulation(0)
    first = simulation.member(**manual(kind))
    simulation.settle()
    assert value(first, "assigned-partitions") == 4
    assert value(first, "rebalance-total") == 1
    assert value(first, "rebalance-latency-total") == value(first, "rebalance-latency-max") >= 0
    assert value(first, "rebalance-rate-per-hour") == pytest.approx(3_600 / 30, rel=0.2)
    simulation.member(**manual(kind))
    simulation.settle()
    simulation.run(1_000)
    assert value(first, "assigned-partitions") == 2
    assert value(first, "rebalance-total") >= 2
    rebalances, took = value(first, "rebalance-total"), value(first, "rebalance-latency-total")
    assert value(first, "rebalance-latency-avg") == pytest.approx(took / rebalances)
    ago = value(first, "last-rebalance-seconds-ago")
    simulation.run(5_000)
    assert value(first, "last-rebalance-seconds-ago") == ago + 5
    assert value(first, "rebalance-total") == rebalances


def test_the_time_of_a_rebalance_has_that_of_the_listener_in_it() -> None:
    """In the newer protocol: it is not over before it is acknowledged."""
    simulation = Simulation(0)
    simulation.cluster.faults.slow_listener = 1.0
    member = simulation.member(**manual("consumer"))
    simulation.run_until(lambda: member.listener.calls)
    busy_ms = member._busy_until - simulation.cluster.now
    simulation.run_until(lambda: value(member, "rebalance-total"))
    assert busy_ms > 0
    assert value(member, "rebalance-latency-max") >= busy_ms


def test_a_rebalance_that_is_refused_has_failed() -> None:
    simulation = Simulation(0)
    member = simulation.member(**manual("consumer"))
    simulation.settle()
    simulation.run(500)
    simulation.cluster.move_coordinator()
    simulation.run(10_000)
    assert value(member, "failed-rebalance-total") == 0, "there was none under way"
    simulation.member(**manual("consumer"))
    manager = member.group.membership
    assert isinstance(manager, ConsumerHeartbeatRequestManager)

    def without_its_application(milliseconds: int) -> None:
        for _ in range(milliseconds // 20):
            simulation.cluster.box.advance(20)
            member.background_step()
            simulation.members[1].background_step()
            simulation.members[1].application_step()

    while manager.member.state is not MemberState.RECONCILING:
        without_its_application(100)
    simulation.cluster.move_coordinator()
    without_its_application(6_000)
    assert value(member, "failed-rebalance-total") == 1
    assert value(member, "failed-rebalance-rate-per-hour") > 0
    assert value(member, "rebalance-total") == 1
    simulation.settle()
    simulation.run(200)
    assert value(member, "rebalance-total") == 2
    assert value(member, "rebalance-latency-max") >= 6_000


def test_joins_and_syncs_of_the_classic_protocol() -> None:
    """The first attempt is refused: the coordinator gives out the member id with that."""
    simulation = Simulation(0)
    member = simulation.member(**manual("eager"))
    simulation.settle()
    assert count(member, JoinGroupRequest) == 2
    assert (value(member, "join-total"), value(member, "sync-total")) == (1, 1)
    assert value(member, "failed-rebalance-total") == 1
    assert value(member, "rebalance-total") == 1
    assert value(member, "join-time-max") >= value(member, "join-time-avg") > 0
    assert value(member, "sync-time-max") >= value(member, "sync-time-avg") >= 0
    assert value(member, "join-rate") > 0 < value(member, "sync-rate")
    assert value(member, "rebalance-latency-max") >= value(member, "join-time-max") + value(member, "sync-time-max")


def test_a_lost_connection_fails_an_attempt_and_the_whole_takes_its_time() -> None:
    simulation = Simulation(0)
    member = simulation.member(**manual("eager"))
    simulation.run_until(lambda: count(member, SyncGroupRequest))
    failed = value(member, "failed-rebalance-total")
    simulation.cluster.faults.lost_answer = 1.0
    simulation.run(3_000)
    assert value(member, "failed-rebalance-total") > failed
    assert value(member, "rebalance-total") == 0
    simulation.cluster.faults.lost_answer = 0.0
    simulation.settle()
    assert value(member, "rebalance-total") == 1
    assert value(member, "rebalance-latency-total") >= 3_000, "from the first attempt on"


def test_joins_are_there_where_they_are_made() -> None:
    joins = {f"{what}-{of}" for what in ("join", "sync") for of in ("time-avg", "time-max", "rate", "total")}
    simulation = Simulation(0)
    newer, classic = simulation.member(**KINDS["consumer"]), Simulation(0).member(**KINDS["eager"])
    assert names(classic) - names(newer) == joins
    simulation.cluster.has_consumer_protocol = False
    fallen_back = simulation.member()
    assert not joins & names(fallen_back)
    simulation.run_until(lambda: fallen_back.owned)
    assert names(fallen_back) == names(classic)
    assert value(fallen_back, "join-total") == 1


class _Slow(ConsumerRebalanceListener):
    def __init__(self, cluster: ConsumerCluster, milliseconds: int, error: Exception | None = None) -> None:
        self._cluster = cluster
        self._milliseconds = milliseconds
        self._error = error

    def _take_time(self, partitions: Sequence[TopicPartition]) -> None:
        self._cluster.clock.advance(self._milliseconds)
        if self._error is not None:
            raise self._error

    on_partitions_assigned = on_partitions_revoked = on_partitions_lost = _take_time


@pytest.mark.parametrize("kind", RebalanceCallback)
def test_how_long_a_listener_takes(kind: RebalanceCallback) -> None:
    cluster = ConsumerCluster({"t": 1})
    consumer = cluster.consumer(group_id="g")
    core = consumer._core
    for number, (milliseconds, error) in enumerate([(30, None), (10, None), (500, ValueError("no"))]):
        listener = _Slow(cluster, milliseconds, error)
        core.parts.background_events.put(RebalanceListenerEvent(number, kind, (ONE,), listener))
    with pytest.raises(ValueError, match="no"):
        core.run(core.process_background_events())
    found = {
        (one.value, which): consumer.metric(f"partition-{one.value}-latency-{which}", COORDINATOR_GROUP)
        for one in RebalanceCallback
        for which in ("avg", "max")
    }
    assert (found.pop((kind.value, "avg")), found.pop((kind.value, "max"))) == (20, 30), "one that fails does not count"
    assert all(math.isnan(other) for other in found.values())


def test_a_consumer_without_a_group_has_none() -> None:
    consumer = ConsumerCluster({"t": 1}).consumer()
    assert COORDINATOR_GROUP not in {name.group for name in consumer.metrics()}
