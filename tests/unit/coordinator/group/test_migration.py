"""Groups that change between the classic and the consumer protocol while they have members."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.coordinator.group import group_timers
from barnabas.coordinator.group.consumer_protocol import read_assignment, write_assignment
from barnabas.coordinator.group.group import GroupType
from barnabas.coordinator.group.group_coordinator_config import ConsumerGroupMigrationPolicy
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from coordinator_fixtures import not_leader
from group_fixtures import REBALANCE_MS, SESSION_MS, GroupBox, assigned, subscription

Policy = ConsumerGroupMigrationPolicy

CONSUMER_SESSION_MS = 45_000


def assignment_of(topic: str, *partitions: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))]
    )
    return b"\0\3" + message.encode(3)


def classic_member(box: GroupBox, partitions: int = 4) -> str:
    (member,) = box.stable_group(assignment=assignment_of("t", *range(partitions)))
    return member


def given(data: bytes) -> dict[str, list[int]]:
    return {one.topic: one.partitions for one in read_assignment(data).assigned_partitions}


def upgraded(partitions: int = 4, **config: Any) -> tuple[GroupBox, Any, str]:
    """A classic group of one, which somebody with the consumer protocol has joined."""
    box = GroupBox(config)
    t = box.create_topic("t", partitions)
    classic = classic_member(box, partitions)
    joined = box.consumer_heartbeat("new")
    assert joined.error_code == 0
    return box, t, classic


# -- from classic to consumer


@pytest.mark.mechanism("R09")
def test_a_classic_group_becomes_a_consumer_group() -> None:
    box, t, classic = upgraded()
    group = box.group()
    assert group.type is GroupType.CONSUMER
    assert group.group_epoch.get() == 2
    assert set(group.members) == {classic, "new"}
    assert group.members[classic].uses_classic_protocol
    assert set(group.members[classic].assigned_partitions[t]) == {0, 1, 2, 3}
    assert box.restarted().group().as_mapping() == group.as_mapping()


def test_a_classic_member_goes_through_a_rebalance_of_its_own_kind() -> None:
    box, t, classic = upgraded()
    assert box.heartbeat(classic, 1) is Errors.REBALANCE_IN_PROGRESS
    joined = box.join(classic, owned={"t": [0, 1, 2, 3]}).result(0)
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 1, "", [])
    kept = given(box.sync(classic, 1, protocol_name="range").result(0).assignment)
    assert len(kept["t"]) == 2
    assert box.heartbeat(classic, 1) is Errors.REBALANCE_IN_PROGRESS
    again = box.join(classic, owned={"t": kept["t"]}).result(0)
    assert again.generation_id == 2
    assert given(box.sync(classic, 2).result(0).assignment) == kept
    assert box.heartbeat(classic, 2) is Errors.NONE
    got = assigned(box.consumer_heartbeat("new", 2))
    assert got is not None
    assert sorted([*kept["t"], *got[t]]) == [0, 1, 2, 3]


def test_an_eager_classic_member_gives_up_everything_when_it_joins() -> None:
    box, _t, classic = upgraded()
    joined = box.join(classic).result(0)
    assert joined.generation_id == 2
    assert len(given(box.sync(classic, 2).result(0).assignment)["t"]) == 2


def test_another_classic_member_joins_the_consumer_group() -> None:
    box, _t, _classic = upgraded()
    first = box.join().result(0)
    assert first.error_code == Errors.MEMBER_ID_REQUIRED
    second = box.join(first.member_id).result(0)
    assert (second.error_code, second.generation_id, second.protocol_name) == (0, 3, "range")
    assert box.sync(first.member_id, 3).result(0).error_code == 0
    assert len(box.group().members) == 3


def test_commits_of_both_kinds_of_members() -> None:
    box, _t, classic = upgraded()
    assert box.commit({("t", 0): 5}, member_id=classic, generation=1, version=8) == {("t", 0): Errors.NONE}
    assert box.commit({("t", 0): 5}, member_id=classic, generation=2) == {("t", 0): Errors.ILLEGAL_GENERATION}
    assert box.commit({("t", 0): 6}, member_id="new", generation=2) == {("t", 0): Errors.NONE}


@pytest.mark.parametrize("policy", [Policy.DISABLED, Policy.DOWNGRADE])
def test_an_upgrade_that_is_not_allowed(policy: Policy) -> None:
    box = GroupBox({"consumer_migration_policy": policy})
    box.create_topic("t", 4)
    classic = classic_member(box)
    assert box.consumer_heartbeat("new").error_code == Errors.GROUP_ID_NOT_FOUND
    assert box.group().type is GroupType.CLASSIC
    assert box.heartbeat(classic, 1) is Errors.NONE


def test_groups_that_cannot_be_upgraded() -> None:
    box = GroupBox({"consumer_max_size": 1})
    box.create_topic("t", 4)
    box.stable_group(group_id="connect", protocol_type="connect", protocols=[("x", b"")])
    assert box.consumer_heartbeat("new", group_id="connect").error_code == Errors.GROUP_ID_NOT_FOUND
    box.stable_group(2, group_id="large")
    assert box.consumer_heartbeat("new", group_id="large").error_code == Errors.GROUP_ID_NOT_FOUND
    box.stable_group(group_id="garbled", protocols=[("range", b"\x00")])
    assert box.consumer_heartbeat("new", group_id="garbled").error_code == Errors.GROUP_ID_NOT_FOUND
    assert box.state("garbled") == "Stable"


def test_data_of_a_custom_assignor_is_not_lost_by_an_upgrade() -> None:
    box = GroupBox()
    box.create_topic("t", 4)
    (classic,) = box.stable_group(assignment=write_assignment(ConsumerProtocolAssignment(user_data=b"x"), 0))
    refused = box.consumer_heartbeat("new")
    assert refused.error_code == Errors.GROUP_ID_NOT_FOUND
    assert "custom assignor" in (refused.error_message or "")
    assert (box.group().type, box.heartbeat(classic, 1)) == (GroupType.CLASSIC, Errors.NONE)
    box.leave(classic)
    assert box.consumer_heartbeat("new").error_code == 0


def test_members_that_wait_join_anew() -> None:
    box = GroupBox()
    box.create_topic("t", 4)
    a, _ = box.stable_group(2, assignment=assignment_of("t", 0))
    waiting = box.join(a, topics=["t", "u"])
    # Two members with the same partition: not what a correct leader does, but it must not break the coordinator.
    box.group().members[a].assignment = b""
    assert box.consumer_heartbeat("new").error_code == 0
    assert waiting.result(0).error_code == Errors.REBALANCE_IN_PROGRESS


def test_an_upgrade_while_a_member_has_dropped_the_protocol_of_the_last_generation() -> None:
    box = GroupBox()
    box.create_topic("t", 2)
    box.create_topic("u", 2)
    both = [("range", subscription(["t"])), ("sticky", subscription(["t"]))]
    leader, other = box.stable_group(2, assignment=b"", protocols=both)
    assert box.group().protocol_name == "range"
    waiting = box.join(leader, protocols=[("sticky", subscription(["u"]))])
    assert box.state() == "PreparingRebalance"
    assert box.consumer_heartbeat("new").error_code == 0
    assert waiting.result(0).error_code == Errors.REBALANCE_IN_PROGRESS
    members = box.group().members
    assert (members[leader].subscribed_topic_names, members[other].subscribed_topic_names) == ({"u"}, {"t"})


def test_an_upgrade_that_could_not_be_written() -> None:
    box = GroupBox()
    box.create_topic("t", 4)
    classic = classic_member(box)
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("new").error_code == Errors.NOT_COORDINATOR
    box.bench.writer.fails_with = None
    assert box.group().type is GroupType.CLASSIC
    assert box.heartbeat(classic, 1) is Errors.NONE


@pytest.mark.mechanism("R09")
def test_a_refused_join_leaves_the_classic_group_its_sessions() -> None:
    """Otherwise the next rebalance waits for a member that is gone, for as long as the longest rebalance timeout."""
    box = GroupBox()
    box.create_topic("t", 4)
    classic = classic_member(box)
    waiting = box.join(box.join().result(0).member_id)
    assert box.consumer_heartbeat("new", regex="(").error_code == Errors.INVALID_REGULAR_EXPRESSION
    assert not waiting.done(), "a refused request ends no rebalance"
    assert box.group().type is GroupType.CLASSIC
    box.advance(SESSION_MS)
    assert waiting.result(0).error_code == Errors.NONE
    assert classic not in box.group().members


def test_an_upgrade_that_could_not_be_written_leaves_the_classic_group_its_timers() -> None:
    """Without them, a member that is gone would keep the rebalance from ending, for good."""
    box = GroupBox()
    box.create_topic("t", 4)
    classic = classic_member(box)
    second = box.join().result(0).member_id
    waiting = box.join(second)
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("new").error_code == Errors.NOT_COORDINATOR
    box.bench.writer.fails_with = None
    assert waiting.result(0).error_code == Errors.REBALANCE_IN_PROGRESS
    again = box.join(second)
    assert not again.done(), "it waits for the first member"
    box.advance(SESSION_MS)
    assert again.result(0).error_code == Errors.NONE
    assert classic not in box.group().members


def test_a_member_id_of_before_does_not_end_an_empty_consumer_group() -> None:
    box = GroupBox()
    box.create_topic("t", 1)
    box.consumer_heartbeat("m")
    box.consumer_heartbeat("m", -1)
    box.commit({("t", 0): 5})
    written = len(box.records())
    assert box.join("client-of-before").result(0).error_code == Errors.UNKNOWN_MEMBER_ID
    assert len(box.records()) == written
    assert box.group().type is GroupType.CONSUMER
    assert box.offsets() == {("t", 0): 5}


def test_an_empty_group_changes_at_once() -> None:
    box = GroupBox({"consumer_migration_policy": Policy.DISABLED})
    t = box.create_topic("t", 1)
    classic = classic_member(box, 1)
    box.commit({("t", 0): 5}, member_id=classic, generation=1)
    box.leave(classic)
    assert assigned(box.consumer_heartbeat("m")) == {t: [0]}
    assert box.offsets() == {("t", 0): 5}
    box.consumer_heartbeat("m", -1)
    box.stable_group()
    assert box.group().type is GroupType.CLASSIC
    assert box.offsets() == {("t", 0): 5}
    again = box.restarted()
    assert again.group().type is GroupType.CLASSIC
    assert again.offsets() == {("t", 0): 5}


def test_a_group_that_only_had_offsets() -> None:
    box = GroupBox()
    t = box.create_topic("t", 1)
    box.commit({("t", 0): 5})
    assert assigned(box.consumer_heartbeat("m")) == {t: [0]}
    assert box.offsets() == {("t", 0): 5}
    assert box.restarted().group().type is GroupType.CONSUMER


# -- from consumer to classic


@pytest.mark.mechanism("R09")
def test_the_group_becomes_classic_when_the_last_of_the_other_protocol_leaves() -> None:
    box, _t, classic = upgraded()
    box.join(classic)
    box.sync(classic, 2)
    assert box.consumer_heartbeat("new", -1).error_code == 0
    group = box.group()
    assert group.type is GroupType.CLASSIC
    assert list(group.members) == [classic]
    assert box.heartbeat(classic, group.generation_id) is Errors.REBALANCE_IN_PROGRESS
    again = box.restarted()
    assert again.group().type is GroupType.CLASSIC
    assert list(again.group().members) == [classic]
    rejoined = box.join(classic).result(0)
    assert rejoined.leader == classic
    assert box.sync(classic, rejoined.generation_id, {classic: b"x"}).result(0).assignment == b"x"
    assert box.state() == "Stable"


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 20])
def test_a_downgrade_to_a_protocol_whose_metadata_cannot_be_read(garbage: bytes) -> None:
    """It raised, on the timer of a session as well, and that session would never have ended."""
    box, _, classic = upgraded()
    good = subscription(["t"])
    box.join(classic, protocols=[("range", good), ("sticky", garbage)], owned={})
    _, joining = box.new_member(protocols=[("sticky", good)])
    second = joining.result(0).member_id
    assert box.consumer_heartbeat("new", -1).error_code == 0
    assert box.group().type is GroupType.CLASSIC
    assert box.group().protocol_name == "sticky"
    assert set(box.group().members) == {classic, second}


def test_the_session_of_the_last_member_ends() -> None:
    box, _, classic = upgraded()
    for _ in range(9):
        box.advance(5000)
        box.heartbeat(classic, 1)
        if not box.group().members.get("new"):
            break
    assert box.group().type is GroupType.CLASSIC


def test_a_downgrade_that_could_not_be_written_leaves_the_members_their_sessions() -> None:
    box, _t, classic = upgraded()
    box.bench.writer.fails_with = not_leader()
    assert box.consumer_heartbeat("new", -1).error_code == Errors.NOT_COORDINATOR
    box.bench.writer.fails_with = None
    assert set(box.group().members) == {classic, "new"}
    box.advance(SESSION_MS)
    assert set(box.group().members) == {"new"}
    box.advance(CONSUMER_SESSION_MS)
    assert box.group().type is GroupType.CONSUMER
    assert box.group().is_empty


def test_a_downgrade_that_is_too_large_leaves_the_group_as_it_was() -> None:
    box, _t, classic = upgraded()
    box.bench.writer.size_limit = 200
    assert box.consumer_heartbeat("new", -1).error_code == Errors.UNKNOWN_SERVER_ERROR
    box.bench.writer.size_limit = 1024 * 1024
    assert box.group().type is GroupType.CONSUMER
    assert box.restarted().group().as_mapping() == box.group().as_mapping()
    assert set(box.group().members) == {classic, "new"}


@pytest.mark.parametrize("policy", [Policy.DISABLED, Policy.UPGRADE])
def test_a_downgrade_that_is_not_allowed(policy: Policy) -> None:
    box = GroupBox({"consumer_migration_policy": Policy.UPGRADE})
    box.create_topic("t", 4)
    classic = classic_member(box)
    box.consumer_heartbeat("new")
    box.consumer_heartbeat("new", -1)
    assert box.group().type is GroupType.CONSUMER
    assert list(box.group().members) == [classic]


def test_a_static_member_comes_back_with_the_classic_protocol() -> None:
    box = GroupBox()
    t = box.create_topic("t", 4)
    classic = classic_member(box)
    box.consumer_heartbeat("new", instance_id="i")
    joined = box.join(instance_id="i").result(0)
    assert joined.error_code == 0
    group = box.group()
    assert group.type is GroupType.CLASSIC
    assert set(group.members) == {classic, joined.member_id}
    again = box.restarted()
    assert set(again.group().members) == {classic, joined.member_id}
    assert t


@pytest.mark.parametrize("size_limit", [200, 1024 * 1024])
def test_a_static_member_comes_back_with_the_classic_protocol_and_it_cannot_be_written(size_limit: int) -> None:
    box = GroupBox()
    box.create_topic("t", 4)
    classic = classic_member(box)
    box.consumer_heartbeat("new", instance_id="i")
    box.bench.writer.size_limit = size_limit
    box.bench.writer.fails_with = not_leader()
    assert box.join(instance_id="i").result(0).error_code != 0
    box.bench.writer.size_limit = 1024 * 1024
    box.bench.writer.fails_with = None
    assert box.group().type is GroupType.CONSUMER
    assert set(box.group().members) == {classic, "new"}
    box.advance(SESSION_MS)
    box.advance(CONSUMER_SESSION_MS)
    assert box.group().is_empty


def test_a_static_member_comes_back_with_another_subscription() -> None:
    box = GroupBox()
    box.create_topic("t", 4)
    box.create_topic("u", 1)
    classic = classic_member(box)
    box.consumer_heartbeat("new", instance_id="i")
    joined = box.join(instance_id="i", protocols=[("range", subscription(["u"]))]).result(0)
    assert (joined.error_code, box.group().type, box.state()) == (0, GroupType.CLASSIC, "PreparingRebalance")
    assert box.heartbeat(classic, box.group().generation_id) is Errors.REBALANCE_IN_PROGRESS


def test_the_group_becomes_classic_when_several_of_the_other_protocol_are_removed() -> None:
    box, _t, classic = upgraded()
    box.consumer_heartbeat("other")
    both = [MemberIdentity(member_id=name) for name in ("new", "other")]
    answer = box.service.leave_group(LeaveGroupRequest(group_id="g", members=both)).result(0)
    assert [one.error_code for one in answer.members] == [0, 0]
    assert (box.group().type, list(box.group().members)) == (GroupType.CLASSIC, [classic])
    assert box.restarted().group().type is GroupType.CLASSIC


# -- classic members of a consumer group


def test_a_classic_member_does_not_join_anew_before_the_target_is_known() -> None:
    box, _t, classic = upgraded(consumer_assignment_interval_ms=1000)
    generation = box.join(classic).result(0).generation_id
    box.consumer_heartbeat("other")
    assert box.group().group_epoch.get() > box.group().assignment_epoch.get() == generation
    assert box.sync(classic, generation).result(0).error_code == 0
    box.consumer_heartbeat("new", generation)
    assert box.heartbeat(classic, generation) is Errors.NONE
    box.advance(1000)
    box.consumer_heartbeat("new", generation)
    assert box.heartbeat(classic, generation) is Errors.REBALANCE_IN_PROGRESS
    assert box.sync(classic, generation).result(0).error_code == Errors.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("instance", [None, "i", "another"])
def test_no_classic_member_joins_if_groups_do_not_migrate(instance: str | None) -> None:
    box = GroupBox({"consumer_migration_policy": Policy.DISABLED})
    box.consumer_heartbeat("new", instance_id="i")
    refused = box.join(instance_id=instance).result(0)
    assert (refused.error_code, refused.member_id) == (Errors.INCONSISTENT_GROUP_PROTOCOL, "")
    assert list(box.group().members) == ["new"]


def test_a_static_classic_member_that_is_replaced_leaves_no_timers() -> None:
    box, _t, _classic = upgraded()
    first = box.join(instance_id="s").result(0)
    timers = box.bench.timer.size()
    second = box.join(instance_id="s").result(0)
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.member_id not in box.group().members
    assert second.member_id in box.group().members
    assert box.bench.timer.size() == timers, "as many as before: those of its successor"


def test_the_session_of_a_static_classic_member_ends_although_its_successor_was_refused() -> None:
    box, _t, _classic = upgraded()
    joined = box.join(instance_id="s").result(0)
    assert box.sync(joined.member_id, joined.generation_id, group_instance_id="s").result(0).error_code == 0
    refused = box.join(instance_id="s", protocols=[("range", b"not a subscription")]).result(0)
    assert refused.error_code != 0
    assert joined.member_id in box.group().members
    box.advance(SESSION_MS)
    assert joined.member_id not in box.group().members


def test_a_member_of_one_group_does_not_touch_the_timers_of_another() -> None:
    """A client chooses its member id, and together with the name of its group it may look like another group."""
    box = GroupBox({"classic_initial_rebalance_delay_ms": 3000})
    box.create_topic("t", 4)
    _, waiting = box.new_member("g-a")
    box.consumer_heartbeat("new")
    assert box.join("a").result(0).error_code == 0
    assert "a" in box.group().members
    box.advance(3000)
    assert waiting.result(0).error_code == 0


def test_the_timers_of_members_have_keys_of_their_own() -> None:
    for key in (
        group_timers.classic_heartbeat,
        group_timers.session_timeout,
        group_timers.rebalance_timeout,
        group_timers.consumer_join,
        group_timers.consumer_sync,
    ):
        assert key("g", "a-b") != key("g-a", "b")


# -- classic members of a consumer group that get it wrong


def test_requests_that_are_refused() -> None:
    box, _, classic = upgraded()
    assert box.heartbeat(classic, 7) is Errors.ILLEGAL_GENERATION
    assert box.heartbeat("new", 2) is Errors.UNKNOWN_MEMBER_ID
    assert box.heartbeat("nobody", 1) is Errors.UNKNOWN_MEMBER_ID
    assert box.sync(classic, 7).result(0).error_code == Errors.ILLEGAL_GENERATION
    assert box.sync(classic, 1).result(0).error_code == Errors.REBALANCE_IN_PROGRESS
    wrong = box.sync(classic, 1, protocol_type="connect").result(0)
    assert wrong.error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    other = box.join(classic, protocols=[("sticky", b"")]).result(0)
    assert other.error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    garbled = box.join(classic, protocols=[("range", b"\0")]).result(0)
    assert garbled.error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert box.leave("nobody").members[0].error_code == Errors.UNKNOWN_MEMBER_ID


def test_leave_group_removes_a_member_of_either_protocol() -> None:
    box, _t, classic = upgraded()
    assert box.leave("new").members[0].error_code == 0
    assert set(box.group().members) == {classic}


def test_static_members_of_the_consumer_protocol_are_removed_by_name() -> None:
    box = GroupBox()
    box.create_topic("t", 1)
    for name in ("a", "b"):
        box.consumer_heartbeat(name, instance_id=f"i-{name}")
    fenced = box.leave("b", instance_id="i-a").members[0]
    assert (fenced.member_id, fenced.error_code) == ("b", Errors.FENCED_INSTANCE_ID)
    for member_id, instance in (("", "i-a"), ("b", "i-b")):
        answer = box.leave(member_id, instance_id=instance)
        assert answer.members == [MemberResponse(member_id=member_id, group_instance_id=instance)]
    assert not box.group().members


def test_a_classic_member_leaves() -> None:
    box, t, classic = upgraded()
    assert box.leave(classic).members[0].error_code == 0
    assert assigned(box.consumer_heartbeat("new", 2)) == {t: [0, 1, 2, 3]}


def test_a_classic_member_is_not_heard_of() -> None:
    box, t, _classic = upgraded()
    box.advance(SESSION_MS)
    assert assigned(box.consumer_heartbeat("new", 2)) == {t: [0, 1, 2, 3]}


def test_a_classic_member_that_does_not_join_in_time() -> None:
    box, _t, classic = upgraded()
    for _ in range(REBALANCE_MS // 5000 + 1):
        box.heartbeat(classic, 1)
        box.consumer_heartbeat("new", 2)
        box.advance(5000)
    assert set(box.group().members) == {"new"}


def test_a_classic_member_that_does_not_sync_in_time() -> None:
    box, _t, classic = upgraded()
    box.join(classic)
    for _ in range(REBALANCE_MS // 5000 + 1):
        box.heartbeat(classic, 2)
        box.consumer_heartbeat("new", 2)
        box.advance(5000)
    assert set(box.group().members) == {"new"}


def test_the_session_of_a_classic_member_is_its_own_after_a_failover() -> None:
    box, _, _classic = upgraded()
    again = box.restarted()
    again.advance(SESSION_MS)
    assert set(again.group().members) == {"new"}
