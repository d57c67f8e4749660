"""The group side of a consumer, step by step: requests, answers, retries, and what the application hears."""

from __future__ import annotations

import pytest

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, TopicInfo
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    StickyAssignor,
    Subscription,
    assignors_of,
    rebalance_protocol_of,
)
from barnabas.clients.consumer.errors import CommitFailedError, IllegalStateError, RetriableCommitFailedError
from barnabas.clients.consumer.group_metadata import CloseOptions, GroupMembershipOperation
from barnabas.clients.consumer.internals import classic_member_state, consumer_member_state
from barnabas.clients.consumer.internals.classic_member_state import ClassicMemberState, RejoinStep
from barnabas.clients.consumer.internals.classic_membership_manager import ClassicMembershipManager
from barnabas.clients.consumer.internals.consumer_heartbeat_request_manager import ConsumerHeartbeatRequestManager
from barnabas.clients.consumer.internals.consumer_member_state import MemberState
from barnabas.clients.consumer.internals.group_leader import divide
from barnabas.clients.consumer.internals.membership_manager import NO_MEMBER, MemberIdentity
from barnabas.clients.consumer.internals.offset_requests import OffsetCommitBuilder, OffsetFetchBuilder
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import Errors, KafkaTimeoutError, RebalanceInProgressError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from unit.clients.consumer.group_simulation import SimulatedMember, Simulation
from unit.clients.consumer.test_group_simulation import KINDS
from unit.metadata.samples import uid

ONE = TopicPartition("t", 0)


def classic_of(member: SimulatedMember) -> ClassicMembershipManager:
    assert isinstance(member.group.membership, ClassicMembershipManager)
    return member.group.membership


def consumer_of(member: SimulatedMember) -> ConsumerHeartbeatRequestManager:
    assert isinstance(member.group.membership, ConsumerHeartbeatRequestManager)
    return member.group.membership


# -- the tables


def test_every_state_can_be_reached_and_only_as_the_tables_say() -> None:
    assert set(consumer_member_state.SOURCES) == set(MemberState)
    assert set(classic_member_state.SOURCES) == set(ClassicMemberState)
    assert set(classic_member_state.STEP_SOURCES) == set(RejoinStep)
    simulation = Simulation(0)
    member = consumer_of(simulation.member(**KINDS["consumer"])).member
    with pytest.raises(IllegalStateError, match="from UNSUBSCRIBED to STABLE"):
        member._transition_to(MemberState.STABLE)
    classic = classic_of(simulation.member(**KINDS["eager"]))
    with pytest.raises(IllegalStateError, match="from UNJOINED to STABLE"):
        classic._transition_to(ClassicMemberState.STABLE)


# -- the newer protocol


def test_heartbeats_say_only_what_is_news() -> None:
    simulation = Simulation(0)
    member = simulation.member(**KINDS["consumer"], **{"group.remote.assignor": "range", "client.rack": "here"})
    simulation.settle()
    simulation.run(12_000)
    sent = [one for one in member.sent if isinstance(one, ConsumerGroupHeartbeatRequest)]
    first, acknowledgement, *later = sent
    assert (first.member_epoch, first.topic_partitions, first.subscribed_topic_names) == (0, [], ["t"])
    assert (first.server_assignor, first.rack_id, first.rebalance_timeout_ms) == ("range", "here", 60_000)
    assert len(first.member_id) == 22
    assert acknowledgement.topic_partitions
    assert acknowledgement.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert later
    for request in later:
        assert request.member_id == first.member_id
        assert (request.topic_partitions, request.subscribed_topic_names, request.server_assignor) == (None, None, None)
        assert (request.rebalance_timeout_ms, request.rack_id, request.subscribed_topic_regex) == (-1, None, None)


@pytest.mark.parametrize(
    ("instance_id", "operation", "epoch"),
    [
        (None, GroupMembershipOperation.DEFAULT, -1),
        ("static", GroupMembershipOperation.DEFAULT, -2),
        ("static", GroupMembershipOperation.LEAVE_GROUP, -1),
        (None, GroupMembershipOperation.REMAIN_IN_GROUP, None),
        ("static", GroupMembershipOperation.REMAIN_IN_GROUP, -2),
    ],
)
def test_how_a_member_leaves(instance_id: str | None, operation: GroupMembershipOperation, epoch: int | None) -> None:
    simulation = Simulation(0)
    given = {} if instance_id is None else {"group.instance.id": instance_id}
    member = simulation.member(**KINDS["consumer"], **given)
    simulation.settle()
    simulation.close(member, CloseOptions(group_membership_operation=operation))
    last = [one for one in member.sent if isinstance(one, ConsumerGroupHeartbeatRequest)][-1]
    if epoch is None:
        assert last.member_epoch > 0
    else:
        assert last.member_epoch == epoch
        assert (last.subscribed_topic_names, last.topic_partitions) == (None, None)


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("static", False)])
def test_how_a_classic_member_leaves(instance_id: str | None, leaves: bool) -> None:
    simulation = Simulation(0)
    given = {} if instance_id is None else {"group.instance.id": instance_id}
    member = simulation.member(**KINDS["eager"], **given)
    simulation.settle()
    simulation.close(member)
    assert any(isinstance(one, LeaveGroupRequest) for one in member.sent) == leaves


@pytest.mark.parametrize("kind", ["consumer", "eager", "cooperative"])
def test_an_application_that_does_not_poll(kind: str) -> None:
    simulation = Simulation(0)
    member = simulation.member(**KINDS[kind])
    simulation.settle()
    for _ in range(4_000):  # the background thread alone
        simulation.cluster.box.advance(20)
        member.background_step()
    assert member.owned  # it has not been told yet
    assert not simulation.cluster.box.group("g").members
    simulation.run_until(lambda: len(member.listener.calls) == 3)
    assert [call[0] for call in member.listener.calls] == ["assigned", "lost", "assigned"]


def test_a_member_that_is_thrown_out_joins_again() -> None:
    simulation = Simulation(0)
    member = simulation.member(**KINDS["consumer"])
    simulation.settle()
    epoch = member.group.group_metadata().generation_id
    assert epoch > 0
    member.frozen = True
    simulation.run(50_000, 1_000)  # longer than its session, but not than it may take between polls
    member.frozen = False
    simulation.run_until(lambda: ("lost", tuple(TopicPartition("t", n) for n in range(4))) in member.listener.calls)
    simulation.settle()
    assert not [one for one in member.sent if isinstance(one, ConsumerGroupHeartbeatRequest) and one.member_epoch < 0]


def test_a_broker_without_the_newer_protocol_is_spoken_to_in_the_classic_one() -> None:
    simulation = Simulation(0)
    simulation.cluster.has_consumer_protocol = False
    member = simulation.member()
    consumer_of(member)
    simulation.settle()
    classic_of(member)
    assert not member.errors
    strict = simulation.member(topics=("t",), **{"group.protocol": "consumer"})
    simulation.run_until(lambda: strict.errors)
    assert consumer_of(strict).member.state is MemberState.FATAL
    assert "group.protocol=classic" in str(strict.errors[0])


# -- the classic protocol


def test_joining_takes_two_requests_and_the_rebalance_timeout_is_the_poll_interval() -> None:
    simulation = Simulation(0)
    member = simulation.member(
        **{"group.protocol": "classic", "partition.assignment.strategy": "range,cooperative-sticky"}
    )
    simulation.settle()
    first, second = [one for one in member.sent if isinstance(one, JoinGroupRequest)]
    assert (first.member_id, bool(second.member_id)) == ("", True)
    assert (first.rebalance_timeout_ms, first.session_timeout_ms) == (60_000, 45_000)
    assert [one.name for one in first.protocols] == ["range", "cooperative-sticky"]
    assert classic_of(member).protocol is RebalanceProtocol.EAGER
    heartbeats = len([one for one in member.sent if isinstance(one, HeartbeatRequest)])
    simulation.run(9_500)
    assert len([one for one in member.sent if isinstance(one, HeartbeatRequest)]) - heartbeats == 3


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
@pytest.mark.parametrize("reset_member_id", [False, True])
def test_a_member_that_is_thrown_out_while_it_joins_joins_again(kind: str, reset_member_id: bool) -> None:
    """A late response to a heartbeat or a commit says so, before that to the request to join comes."""
    simulation = Simulation(0)
    member = simulation.member(**KINDS[kind])
    simulation.settle()
    everything = tuple(TopicPartition("t", number) for number in range(4))
    manager = classic_of(member)
    manager.request_rejoin("test")
    simulation.run_until(lambda: manager.step is RejoinStep.JOINING, step_ms=1)
    asked = sum(isinstance(one, JoinGroupRequest) for one in member.sent)
    manager.reset_generation("test", reset_member_id=reset_member_id)
    simulation.run_until(lambda: manager.state is ClassicMemberState.STABLE and simulation.is_settled())
    assert sum(isinstance(one, JoinGroupRequest) for one in member.sent) > asked
    # What an eager member had, it has given up before.
    assert member.listener.calls.count(("lost", everything)) == (kind == "cooperative")
    assert member.listener.calls[-1] == ("assigned", everything)
    assert not member.errors


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
@pytest.mark.parametrize("how", ["unsubscribed", "fenced"])
def test_a_member_that_gave_up_joining_can_join_again(kind: str, how: str) -> None:
    """Nobody waits any more for the response to the JoinGroup request that was in flight."""
    simulation = Simulation(0)
    member = simulation.member(**KINDS[kind])
    manager = classic_of(member)
    simulation.run_until(lambda: manager.step is RejoinStep.JOINING, step_ms=1)
    if how == "fenced":
        manager.fail_fenced()
    else:
        left = member.group.unsubscribe(simulation.cluster.now + 5_000)
        simulation.run_until(left.done, step_ms=1)
    simulation.run(1_000)
    member.subscribe(["t"])
    simulation.settle()
    assert manager.state is ClassicMemberState.STABLE


def test_the_leader_notices_new_partitions_of_a_topic() -> None:
    simulation = Simulation(0, {"t": 2})
    simulation.member(topics=("t", "u"), **KINDS["cooperative"])
    simulation.member(topics=("t", "u"), **KINDS["cooperative"])
    simulation.settle()
    simulation.cluster.create_topic("u", 2)
    for member in simulation.members:
        member.metadata.request_update()
    simulation.settle()
    assert not simulation.cluster.overlaps


def test_a_custom_assignor_that_breaks_the_rules_of_cooperation_is_found_out() -> None:
    class Wrong(ConsumerPartitionAssignor):
        @property
        def name(self) -> str:
            return "wrong"

        def assign(self, cluster: MetadataSnapshot, subscriptions: object) -> dict[str, Assignment]:
            return {"a": Assignment(()), "b": Assignment((ONE,))}

    subscriptions = {"a": Subscription(("t",), None, (ONE,)), "b": Subscription(("t",))}
    assert divide(Wrong(), RebalanceProtocol.EAGER, MetadataSnapshot(), subscriptions)
    with pytest.raises(IllegalStateError, match="t-0"):
        divide(Wrong(), RebalanceProtocol.COOPERATIVE, MetadataSnapshot(), subscriptions)


def test_assignors_by_name_class_and_object() -> None:
    made = assignors_of(["range", "org.apache.kafka.clients.consumer.StickyAssignor", CooperativeStickyAssignor])
    assert [one.name for one in made] == ["range", "sticky", "cooperative-sticky"]
    assert rebalance_protocol_of(made) is RebalanceProtocol.EAGER
    assert rebalance_protocol_of([CooperativeStickyAssignor()]) is RebalanceProtocol.COOPERATIVE
    for wrong in ("nonsense", 5, object()):
        with pytest.raises(ConfigError):
            assignors_of([wrong])
    with pytest.raises(ConfigError, match="two assignors"):
        assignors_of([RangeAssignor, "range"])

    class Stubborn(StickyAssignor):
        @property
        def supported_protocols(self) -> tuple[RebalanceProtocol, ...]:
            return (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(ConfigError, match="in common"):
        rebalance_protocol_of([Stubborn(), RangeAssignor()])


# -- offsets


def test_a_commit_is_repeated_until_its_deadline() -> None:
    simulation = Simulation(0)
    member = simulation.member(topics=(), **KINDS["consumer"])
    member.subscriptions.assign_from_user([ONE])
    simulation.run(200)
    simulation.cluster.faults.lost_request = 1.0
    began = len(member.sent)
    deadline_ms = simulation.cluster.now + 5_000
    future = member.group.commit({ONE: OffsetAndMetadata(5)}, deadline_ms)
    simulation.run_until(future.done)
    assert isinstance(future.exception(), KafkaTimeoutError)
    assert 0 <= simulation.cluster.now - deadline_ms < 1_500
    assert len([one for one in member.sent[began:] if isinstance(one, OffsetCommitRequest)]) >= 1
    once = member.group.commit({ONE: OffsetAndMetadata(5)}, None)
    simulation.cluster.faults.lost_request = 0.0
    simulation.run_until(once.done)
    again = member.group.commit({ONE: OffsetAndMetadata(6, "mine", 3)}, simulation.cluster.now + 5_000)
    simulation.run_until(again.done)
    assert again.result() == {ONE: OffsetAndMetadata(6, "mine", 3)}
    asked = member.group.fetch_committed([ONE, TopicPartition("t", 1)], simulation.cluster.now + 5_000)
    same = member.group.fetch_committed([TopicPartition("t", 1), ONE], simulation.cluster.now + 5_000)
    simulation.run_until(lambda: asked.done() and same.done())
    assert asked.result() == {ONE: OffsetAndMetadata(6, "mine", 3), TopicPartition("t", 1): None}
    fetches = [
        one
        for one in member.sent
        if isinstance(one, OffsetFetchRequest)
        and one.groups[0].topics
        and one.groups[0].topics[0].partition_indexes == [0, 1]
    ]
    assert len(fetches) == 1, "the same question is asked once"
    assert fetches[0].require_stable


def test_an_asynchronous_commit_is_sent_once() -> None:
    simulation = Simulation(0)
    member = simulation.member(topics=(), **KINDS["consumer"])
    member.subscriptions.assign_from_user([ONE])
    simulation.run(200)
    simulation.cluster.faults.lost_answer = 1.0
    future = member.group.commit({ONE: OffsetAndMetadata(5)}, None)
    simulation.run_until(future.done)
    assert isinstance(future.exception(), RetriableCommitFailedError)


def test_commits_of_a_classic_member_outside_of_a_generation() -> None:
    simulation = Simulation(0)
    member = simulation.member(**KINDS["eager"])
    future = member.group.commit({ONE: OffsetAndMetadata(5)}, simulation.cluster.now + 5_000)
    simulation.run_until(future.done)
    assert isinstance(future.exception(), CommitFailedError | RebalanceInProgressError)
    simulation.settle()
    future = member.group.commit({ONE: OffsetAndMetadata(5)}, simulation.cluster.now + 5_000)
    simulation.run_until(future.done)
    assert future.exception() is None


def test_a_stale_epoch_is_no_reason_to_fail_while_the_partition_is_owned() -> None:
    """The group went on while the commit was under way. With the new epoch it is taken, which is right for partitions
    that are still this member's, and for no others."""
    simulation = Simulation(0)
    settings = {**KINDS["consumer"], "enable.auto.commit": False}
    member = simulation.member(**settings)
    simulation.settle()
    simulation.run(500)
    commits = member.group.commits
    now = simulation.cluster.now

    def answered_as_stale() -> None:
        (request,) = commits.poll(simulation.cluster.now).unsent_requests
        made = ClientRequest("0", request.body, 1, "client", now, request_timeout_ms=1)
        rows = [OffsetCommitResponsePartition(partition_index=0, error_code=Errors.STALE_MEMBER_EPOCH)]
        body = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])
        request.on_complete(ClientResponse(made, 9, simulation.cluster.now, body))

    future = member.group.commit({ONE: OffsetAndMetadata(1)}, now + 10_000)
    answered_as_stale()
    assert not future.done()
    simulation.run_until(future.done)
    assert future.exception() is None
    lost = member.group.commit({ONE: OffsetAndMetadata(2)}, now + 10_000)
    member.subscriptions.assign_from_subscribed([TopicPartition("t", 1)])
    answered_as_stale()
    assert isinstance(lost.exception(), CommitFailedError)


def test_automatic_commits_follow_the_interval_and_the_application() -> None:
    simulation = Simulation(0)
    member = simulation.member(**KINDS["consumer"])
    simulation.settle()
    simulation.run(200)
    for _ in range(200):
        simulation.cluster.box.advance(20)
        member.background_step()
    assert not [one for one in member.sent if isinstance(one, OffsetCommitRequest)], "nobody has polled"
    began = len(member.sent)
    simulation.run(5_050)
    count = len([one for one in member.sent[began:] if isinstance(one, OffsetCommitRequest)])
    assert 4 <= count <= 6


def test_offsets_go_by_topic_id_if_all_are_known() -> None:
    known = MetadataSnapshot((), [TopicInfo("t", uid(7), ())])
    offsets = {ONE: OffsetAndMetadata(5, "m", 2)}
    identity = MemberIdentity(4, "member", "static")
    commit = OffsetCommitBuilder("g", identity, offsets, known)
    assert commit.allowed_versions.highest == 10
    request = commit.build(10)
    assert isinstance(request, OffsetCommitRequest)
    assert (request.topics[0].topic_id, request.topics[0].name) == (uid(7), "")
    assert request.group_instance_id == "static"
    older = commit.build(6)
    assert isinstance(older, OffsetCommitRequest)
    assert (older.topics[0].name, older.group_instance_id) == ("t", None)
    unknown = OffsetCommitBuilder("g", identity, {TopicPartition("other", 0): OffsetAndMetadata(1), **offsets}, known)
    assert unknown.allowed_versions.highest == 9
    fetch = OffsetFetchBuilder("g", NO_MEMBER, [ONE], known)
    versions = fetch.allowed_versions
    for version in range(versions.lowest, versions.highest + 1):
        made = fetch.build(version)
        assert isinstance(made, OffsetFetchRequest)
        decoded = OffsetFetchRequest.decode(made.encode(version), version)
        assert decoded.require_stable == (version >= 7)
        assert bool(decoded.groups) == (version >= 8)
