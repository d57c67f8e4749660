"""The classic protocol: join, sync, heartbeat, leave."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.coordinator.group.classic.classic_group import MAX_PENDING_JOINS, ClassicGroup
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.protocol.internal.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import MemberResponse
from coordinator_fixtures import not_leader
from group_fixtures import REBALANCE_MS, SESSION_MS, GroupBox, subscription

State = ClassicGroupState

LEGAL = {
    (State.EMPTY, State.PREPARING_REBALANCE),
    (State.STABLE, State.PREPARING_REBALANCE),
    (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, State.EMPTY),
    (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE),
    (State.COMPLETING_REBALANCE, State.STABLE),
    *((state, State.DEAD) for state in State),
}


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_every_transition_legal_and_illegal(source: State, target: State) -> None:
    group = ClassicGroup("g", lambda: 5, source)
    if (source, target) in LEGAL:
        group.transition_to(target)
        assert (group.state, group.previous_state, group.current_state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(RuntimeError, match="cannot change from"):
            group.transition_to(target)
        assert group.state is source


# -- joining


def test_joining_takes_two_steps() -> None:
    box = GroupBox()
    first = box.join().result(0)
    assert first.error_code == Errors.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    second = box.join(first.member_id).result(0)
    assert second.error_code == 0
    assert (second.leader, second.member_id) == (first.member_id, first.member_id)
    assert (second.generation_id, second.protocol_name, second.protocol_type) == (1, "range", "consumer")
    assert [member.member_id for member in second.members] == [first.member_id]
    assert second.members[0].metadata == subscription(["t"])
    assert box.state() == "CompletingRebalance"


def test_the_record_of_a_new_group_says_since_when_it_is_empty() -> None:
    box = GroupBox()
    box.advance(1234)
    box.join()
    box.join(box.join().result(0).member_id)
    first = box.records()[0].value
    assert isinstance(first, GroupMetadataValue)
    assert (first.generation, first.members) == (0, [])
    assert first.current_state_timestamp == box.bench.clock.milliseconds()


def test_old_clients_join_at_once() -> None:
    box = GroupBox()
    joined = box.join(version=3).result(0)
    assert joined.error_code == 0
    assert joined.generation_id == 1


def test_an_id_that_is_never_used_is_forgotten() -> None:
    box = GroupBox()
    first = box.join().result(0)
    assert list(box.group().pending_join_members) == [first.member_id]
    box.advance(SESSION_MS)
    assert not box.group().pending_join_members
    assert box.join(first.member_id).result(0).error_code == Errors.UNKNOWN_MEMBER_ID


def test_the_initial_rebalance_waits_for_more_members() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 3000})
    _, a = box.new_member()
    box.advance(2999)
    assert not a.done()
    _, b = box.new_member()
    box.advance(1)
    assert not a.done(), "somebody has come: once more"
    box.advance(3000)
    assert a.result(0).generation_id == b.result(0).generation_id == 1
    assert len(a.result(0).members) == 2
    assert b.result(0).members == []


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 3000})
    _, a = box.new_member(rebalance_ms=7000)
    for _ in range(3):
        box.new_member(rebalance_ms=7000)
        assert not a.done()
        box.advance(2500)
    assert a.done()


@pytest.mark.parametrize("twice", ["leader", "follower"])
def test_a_protocol_that_is_named_twice_counts_once(twice: str) -> None:
    """It counted twice: no protocol had as many votes as there were members, and no join of the group completed. The
    first metadata counts."""
    box = GroupBox({"classic_initial_rebalance_delay_ms": 3000})
    one, two = subscription(["one"]), subscription(["two"])
    doubled = [("range", one), ("range", two), ("roundrobin", one), ("range", two)]
    leader, a = box.new_member(protocols=doubled if twice == "leader" else [("range", one)])
    follower, b = box.new_member(protocols=[("range", two)] if twice == "leader" else [*doubled[:2], ("sticky", one)])
    box.advance(6000)
    assert (a.result(0).error_code, b.result(0).error_code) == (0, 0)
    assert a.result(0).protocol_name == "range"
    expected = [one, two] if twice == "leader" else [one, one]
    assert [member.metadata for member in a.result(0).members] == expected
    assert box.group().subscribed_topics == ({"one", "two"} if twice == "leader" else {"one"})
    box.leave(leader)
    again = box.join(follower, protocols=[("range", two)])
    assert again.result(0).error_code == 0, "the count is right after members have left and changed"
    assert again.result(0).leader == follower


@pytest.mark.parametrize("delay_ms", [0, 3000])
def test_a_join_that_fails_does_not_take_the_group_with_it(delay_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason: members are told to join anew, and the group is as good as new."""
    box = GroupBox({"classic_initial_rebalance_delay_ms": delay_ms})
    with monkeypatch.context() as broken:
        broken.setattr(ClassicGroup, "select_protocol", lambda _self: 1 / 0)
        member, joining = box.new_member()
        box.advance(delay_ms)
        assert joining.result(0).error_code == Errors.UNKNOWN_MEMBER_ID
    assert box.state() == "Empty"
    assert not box.group().members
    assert box.restarted().state() == "Empty"
    assert box.join(member).result(0).error_code == Errors.UNKNOWN_MEMBER_ID
    _, joined = box.new_member()
    box.advance(delay_ms)
    assert joined.result(0).error_code == 0


def test_a_group_that_nobody_knows_with_a_member_id() -> None:
    box = GroupBox()
    assert box.join("somebody").result(0).error_code == Errors.UNKNOWN_MEMBER_ID
    assert box.join("somebody", protocols=[]).result(0).error_code == Errors.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"session_ms": 5999}, Errors.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, Errors.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, Errors.INVALID_GROUP_ID),
        ({"protocols": []}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, Errors.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_requests_that_make_no_sense(options: dict[str, Any], error: Errors) -> None:
    box = GroupBox()
    assert box.join(**options).result(0).error_code == error


@pytest.mark.parametrize(
    "options", [{"protocol_type": "connect"}, {"protocols": [("sticky", b"")]}, {"protocol_type": ""}]
)
def test_protocols_that_the_group_has_not(options: dict[str, Any]) -> None:
    box = GroupBox()
    (member,) = box.stable_group()
    assert box.join(**options).result(0).error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert box.join(member, **options).result(0).error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert box.state() == "Stable"


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 100})
    _, a = box.new_member(protocols=[("x", b"1"), ("y", b"2"), ("z", b"3")])
    _, b = box.new_member(protocols=[("z", b"4"), ("y", b"5")])
    _, c = box.new_member(protocols=[("y", b"6"), ("z", b"7")])
    box.advance(300)
    assert a.result(0).protocol_name == "y"
    assert [member.metadata for member in a.result(0).members] == [b"2", b"5", b"6"]
    assert b.result(0).protocol_name == c.result(0).protocol_name == "y"


def test_a_group_can_be_full() -> None:
    box = GroupBox({"classic_max_size": 2})
    members = box.stable_group(2)
    full = box.join().result(0)
    assert full.error_code == Errors.GROUP_MAX_SIZE_REACHED
    assert box.heartbeat(members[0], 2) is Errors.NONE
    assert box.state() == "Stable"


def test_ids_that_nobody_joins_with_are_bounded() -> None:
    box = GroupBox()
    (member,) = box.stable_group()
    timers = box.bench.timer.size()
    ids = [box.join().result(0).member_id for _ in range(2 * MAX_PENDING_JOINS)]
    assert list(box.group().pending_join_members) == ids[MAX_PENDING_JOINS:]
    assert box.bench.timer.size() == timers + MAX_PENDING_JOINS
    assert box.join(ids[0]).result(0).error_code == Errors.UNKNOWN_MEMBER_ID, "the client asks for another one"
    assert box.heartbeat(member, 1) is Errors.NONE
    joining = box.join(ids[-1])
    box.join(member)
    box.advance(SESSION_MS)
    assert joining.result(0).error_code == 0
    assert not box.group().pending_join_members


def test_a_second_member_makes_the_first_join_again() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    b, joining = box.new_member()
    assert box.state() == "PreparingRebalance"
    assert not joining.done()
    assert box.heartbeat(a, 1) is Errors.REBALANCE_IN_PROGRESS
    rejoined = box.join(a).result(0)
    assert rejoined.generation_id == joining.result(0).generation_id == 2
    assert rejoined.leader == a
    assert {member.member_id for member in rejoined.members} == {a, b}


def test_who_does_not_come_back_in_time_is_out() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    c, joining = box.new_member()
    rejoined = box.join(b)
    for _ in range(REBALANCE_MS // 5000):
        assert box.heartbeat(a, 2) is Errors.REBALANCE_IN_PROGRESS
        box.advance(5000)
    assert {member.member_id for member in box.group().members.values()} == {b, c}
    assert rejoined.result(0).leader == b, "the leader is gone, so another leads"
    assert joining.result(0).generation_id == 3
    assert box.heartbeat(a, 3) is Errors.UNKNOWN_MEMBER_ID


def test_a_join_that_is_sent_again_gets_the_same_response() -> None:
    box = GroupBox()
    member, joining = box.new_member()
    first = joining.result(0)
    again = box.join(member).result(0)
    assert again == first


def test_a_join_that_waits_is_superseded_by_a_later_one() -> None:
    box = GroupBox()
    a, _b = box.stable_group(2)
    early = box.join(a, topics=("t", "u"))
    late = box.join(a, topics=("t", "u"))
    assert early.result(0).error_code == Errors.REBALANCE_IN_PROGRESS
    assert not late.done()


def test_a_follower_that_rejoins_unchanged_changes_nothing() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    again = box.join(b).result(0)
    assert (again.generation_id, again.leader, again.members) == (2, a, [])
    assert box.state() == "Stable"


def test_a_leader_or_another_subscription_makes_a_rebalance() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    box.join(a)
    assert box.state() == "PreparingRebalance"
    box = GroupBox()
    a, b = box.stable_group(2)
    box.join(b, topics=["u"])
    assert box.state() == "PreparingRebalance"


# -- syncing


def test_everybody_gets_what_the_leader_gave() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 10})
    a, joining = box.new_member()
    b, _ = box.new_member()
    c, _ = box.new_member()
    box.advance(30)
    generation = joining.result(0).generation_id
    follower = box.sync(b, generation)
    assert not follower.done()
    leader = box.sync(a, generation, {a: b"for a", b: b"for b"})
    assert leader.result(0).assignment == b"for a"
    assert follower.result(0).assignment == b"for b"
    late = box.sync(c, generation).result(0)
    assert (late.error_code, late.assignment) == (0, b""), "the leader has forgotten it"
    assert (late.protocol_type, late.protocol_name) == ("consumer", "range")
    assert box.state() == "Stable"


@pytest.mark.mechanism("R09")
def test_an_assignment_is_given_out_when_it_is_written() -> None:
    box = GroupBox()
    a, joining = box.new_member()
    box.bench.writer.commits_at_once = False
    sync = box.sync(a, joining.result(0).generation_id, {a: b"x"})
    assert not sync.done()
    assert box.state() == "CompletingRebalance"
    box.bench.writer.commit(box.partition())
    assert sync.result(0).assignment == b"x"
    assert box.state() == "Stable"


def test_an_assignment_that_could_not_be_written_is_not_given_out() -> None:
    box = GroupBox()
    a, joining = box.new_member()
    box.bench.writer.fails_with = not_leader()
    sync = box.sync(a, joining.result(0).generation_id, {a: b"x"}).result(0)
    assert sync.error_code == Errors.NOT_COORDINATOR
    assert box.group().members[a].assignment == b""
    assert box.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "nobody"}, Errors.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, Errors.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i"}, Errors.UNKNOWN_MEMBER_ID),
        ({"group_id": "other"}, Errors.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, Errors.INVALID_GROUP_ID),
    ],
)
def test_syncs_that_are_refused(fields: dict[str, Any], error: Errors) -> None:
    box = GroupBox()
    (member,) = box.stable_group()
    answer = box.sync(**{"member_id": member, "generation": 1, **fields}).result(0)
    assert answer.error_code == error
    assert box.state() == "Stable"


def test_a_sync_during_the_next_rebalance() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    box.leave(b)
    assert box.sync(a, 2).result(0).error_code == Errors.REBALANCE_IN_PROGRESS


def test_followers_that_wait_hear_of_the_next_rebalance() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 10})
    a, joining = box.new_member()
    b, _ = box.new_member()
    box.advance(30)
    follower = box.sync(b, joining.result(0).generation_id)
    box.leave(a)
    assert follower.result(0).error_code == Errors.REBALANCE_IN_PROGRESS


def test_who_joins_and_never_syncs_is_out() -> None:
    box = GroupBox({"classic_initial_rebalance_delay_ms": 10})
    a, joining = box.new_member(rebalance_ms=20_000)
    b, _ = box.new_member(rebalance_ms=20_000)
    box.advance(30)
    generation = joining.result(0).generation_id
    assert box.sync(a, generation, {a: b"x"}).result(0).error_code == 0
    for _ in range(4):
        box.heartbeat(a, generation)
        box.heartbeat(b, generation)
        box.advance(5000)
    assert box.heartbeat(b, generation) is Errors.UNKNOWN_MEMBER_ID
    assert box.heartbeat(a, generation) is Errors.REBALANCE_IN_PROGRESS


# -- heartbeats


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nobody", 1), Errors.UNKNOWN_MEMBER_ID),
        (("{a}", 0), Errors.ILLEGAL_GENERATION),
        (("{a}", 2), Errors.ILLEGAL_GENERATION),
        (("{a}", 1, "other"), Errors.UNKNOWN_MEMBER_ID),
        (("{a}", 1, ""), Errors.INVALID_GROUP_ID),
        (("{a}", 1), Errors.NONE),
    ],
)
def test_heartbeats(arguments: tuple[Any, ...], error: Errors) -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    member, *rest = arguments
    assert box.heartbeat(member.format(a=a), *rest) is error


def test_a_member_that_is_not_heard_of_is_out() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    for _ in range(5):
        box.advance(SESSION_MS - 1)
        assert box.heartbeat(a, 2) is (Errors.NONE if box.group().has_member(b) else Errors.REBALANCE_IN_PROGRESS)
    assert list(box.group().members) == [a]
    assert box.heartbeat(b, 2) is Errors.UNKNOWN_MEMBER_ID


def test_commits_prove_that_a_member_is_alive() -> None:
    box = GroupBox()
    box.create_topic("t", 1)
    (a,) = box.stable_group()
    for _ in range(5):
        box.advance(SESSION_MS - 1)
        assert box.commit({("t", 0): 1}, member_id=a, generation=1) == {("t", 0): Errors.NONE}
    assert box.state() == "Stable"


def test_who_waits_need_not_send_heartbeats() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    waiting = box.join(a, topics=["u"])
    for _ in range(3):
        assert box.heartbeat(b, 2) is Errors.REBALANCE_IN_PROGRESS
        box.advance(SESSION_MS - 1)
    assert not waiting.done()
    assert box.group().has_member(a)


def test_a_new_member_whose_client_is_gone() -> None:
    box = GroupBox({"classic_new_member_join_timeout_ms": 20_000})
    a, _b = box.stable_group(2, rebalance_ms=600_000)
    ghost, joining = box.new_member(rebalance_ms=600_000)
    for _ in range(4):
        box.heartbeat(a, 2)
        box.advance(5000)
    assert joining.result(0).error_code == Errors.UNKNOWN_MEMBER_ID
    assert not box.group().has_member(ghost)


def test_while_loading_heartbeats_are_taken_on_trust() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    box.bench.runtime.schedule_unload_operation(box.partition(), 1)
    assert box.heartbeat(a, 1) is Errors.NOT_COORDINATOR
    box.bench.loader.holds = True
    box.bench.load(box.partition(), 2)
    assert box.heartbeat(a, 1) is Errors.NONE
    assert box.sync(a, 1).result(0).error_code == Errors.REBALANCE_IN_PROGRESS
    assert box.join(a).result(0).error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    box.bench.loader.release()
    assert box.heartbeat(a, 1) is Errors.NONE


# -- leaving


def test_leaving_makes_a_rebalance() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    assert box.leave(b).members[0].error_code == 0
    assert box.heartbeat(a, 2) is Errors.REBALANCE_IN_PROGRESS
    assert box.join(a).result(0).generation_id == 3


def test_a_group_without_members_is_empty_and_written() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    box.leave(a)
    assert box.state() == "Empty"
    last = box.records()[-1]
    assert isinstance(last.key, GroupMetadataKey)
    assert isinstance(last.value, GroupMetadataValue)
    assert (last.value.generation, last.value.members, last.value.protocol, last.version) == (2, [], None, 3)
    assert box.restarted().state() == "Empty"


@pytest.mark.parametrize(
    ("member", "instance", "group", "error"),
    [("nobody", None, "g", Errors.UNKNOWN_MEMBER_ID), ("", "i", "g", Errors.UNKNOWN_MEMBER_ID)],
)
def test_leaving_without_having_joined(member: str, instance: str | None, group: str, error: Errors) -> None:
    box = GroupBox()
    box.stable_group()
    assert box.leave(member, group, instance).members[0].error_code == error
    assert box.state() == "Stable"


def test_leaving_a_group_that_is_not_there() -> None:
    """It has none of the members, of which each is told so."""
    box = GroupBox()
    answer = box.leave("x", instance_id="i")
    assert (answer.error_code, answer.members) == (
        0,
        [MemberResponse(member_id="x", group_instance_id="i", error_code=Errors.UNKNOWN_MEMBER_ID)],
    )
    assert box.leave("x", "").error_code == Errors.INVALID_GROUP_ID


def test_a_pending_member_leaves() -> None:
    box = GroupBox()
    _a, _ = box.stable_group(2)
    pending = box.join().result(0).member_id
    assert box.leave(pending).members[0].error_code == 0
    assert box.state() == "Stable"


def test_who_leaves_while_it_waits_is_told() -> None:
    box = GroupBox()
    a, _b = box.stable_group(2)
    waiting = box.join(a, topics=["u"])
    box.leave(a)
    assert waiting.result(0).error_code == Errors.UNKNOWN_MEMBER_ID


# -- static members


def static(box: GroupBox, instance_id: str = "i", **options: Any) -> Any:
    return box.join(instance_id=instance_id, **options).result(0)


def stable_static(box: GroupBox, **options: Any) -> str:
    joined = static(box, **options)
    member: str = joined.member_id
    assert member.startswith("i-")
    assert box.sync(member, joined.generation_id, {member: b"x"}, group_instance_id="i").result(0).error_code == 0
    return member


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    box = GroupBox()
    old = stable_static(box)
    back = static(box)
    assert back.error_code == 0
    assert back.member_id != old
    assert (back.generation_id, back.leader, back.skip_assignment) == (1, back.member_id, True)
    assert len(back.members) == 1
    assert box.state() == "Stable"
    assert box.sync(back.member_id, 1, group_instance_id="i").result(0).assignment == b"x"
    assert box.heartbeat(old, 1, instance_id="i") is Errors.FENCED_INSTANCE_ID
    assert box.heartbeat(old, 1) is Errors.UNKNOWN_MEMBER_ID
    assert box.heartbeat(back.member_id, 1, instance_id="i") is Errors.NONE
    assert list(box.restarted().group().members) == [back.member_id], "it is written"


def test_a_static_leader_of_an_old_client_does_not_know_that_it_leads() -> None:
    box = GroupBox()
    old = stable_static(box)
    back = static(box, version=8)
    assert (back.leader, back.members, back.skip_assignment) == (old, [], False)


def test_a_static_member_whose_return_could_not_be_written() -> None:
    box = GroupBox()
    old = stable_static(box)
    box.bench.writer.fails_with = not_leader()
    back = static(box)
    assert (back.error_code, back.member_id) == (Errors.NOT_COORDINATOR, "")
    assert list(box.group().members) == [old]
    assert box.heartbeat(old, 1, instance_id="i") is Errors.NONE


def test_a_static_member_with_another_protocol_makes_a_rebalance() -> None:
    box = GroupBox()
    stable_static(box)
    future = box.join(instance_id="i", protocols=[("sticky", b""), ("range", b"")])
    assert future.result(0).generation_id == 2


def test_a_static_member_during_a_rebalance_fences_its_old_self() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    old = box.join(instance_id="i")
    assert not old.done()
    new = box.join(instance_id="i")
    assert old.result(0).error_code == Errors.FENCED_INSTANCE_ID
    box.join(a)
    assert new.result(0).generation_id == 2


def test_static_members_that_do_not_rejoin_stay_until_their_session_ends() -> None:
    box = GroupBox()
    old = stable_static(box, rebalance_ms=5000)
    _, joining = box.new_member(rebalance_ms=5000)
    box.advance(5001)
    assert joining.result(0).generation_id == 2
    assert box.group().has_member(old)
    box.advance(SESSION_MS)
    assert not box.group().has_member(old)


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    box = GroupBox()
    stable_static(box)
    assert box.leave("", instance_id="i").members[0].error_code == 0
    assert box.state() == "Empty"


def test_a_static_member_leaves_with_a_wrong_id() -> None:
    box = GroupBox()
    stable_static(box)
    assert box.leave("other", instance_id="i").members[0].error_code == Errors.FENCED_INSTANCE_ID


# -- the log


@pytest.mark.mechanism("R09")
def test_a_group_survives_its_coordinator() -> None:
    box = GroupBox()
    a, b = box.stable_group(2, assignment=b"what it has")
    again = box.restarted()
    group = again.group()
    assert (group.generation_id, group.leader_id, group.protocol_name, group.state.value) == (2, a, "range", "Stable")
    assert group.subscribed_topics == {"t"}
    assert again.heartbeat(a, 2) is again.heartbeat(b, 2) is Errors.NONE
    assert again.sync(b, 2).result(0).assignment == b"what it has"
    again.advance(SESSION_MS)
    assert again.group().members == {}, "they have a session's time to be heard of"


def test_a_rebalance_that_was_going_on_never_was() -> None:
    box = GroupBox()
    (a,) = box.stable_group()
    box.new_member()
    again = box.restarted()
    assert list(again.group().members) == [a]
    assert again.group().generation_id == 1


def test_an_unload_ends_all_waiting() -> None:
    box = GroupBox()
    a, _ = box.stable_group(2)
    joining = box.join(a, topics=["u"])
    box.bench.runtime.schedule_unload_operation(box.partition(), None)
    assert joining.result(0).error_code == Errors.NOT_COORDINATOR


def test_an_unload_ends_all_waiting_also_beside_what_it_fails() -> None:
    box = GroupBox()
    a, _ = box.stable_group(2)
    other, _ = box.stable_group(2, "h")
    waiting = box.join(other, "h", topics=["u"])
    box.bench.writer.commits_at_once = False
    box.join(group_id="a third", version=3)
    failing = box.join(a, topics=["u"])
    box.bench.runtime.schedule_unload_operation(box.partition(), None)
    assert failing.result(0).error_code == Errors.NOT_COORDINATOR
    assert waiting.result(0).error_code == Errors.NOT_COORDINATOR


def test_a_rebalance_goes_on_without_a_member_whose_join_took_too_long() -> None:
    box = GroupBox()
    a, b = box.stable_group(2)
    box.bench.writer.commits_at_once = False
    box.join(group_id="a third", version=3)
    late = box.join(a, topics=["u"])
    box.advance(5000)
    assert late.result(0).error_code != 0, "what was written before it is not committed"
    box.bench.writer.commits_at_once = True
    box.bench.writer.commit(box.partition())
    assert box.join(b).result(0).error_code == 0


def test_a_group_that_is_too_large_when_loaded_rebalances() -> None:
    box = GroupBox()
    box.stable_group(3)
    box.config = {"classic_max_size": 2}
    again = box.restarted()
    assert again.state() == "PreparingRebalance"


def test_a_coordinator_that_is_not_active() -> None:
    box = GroupBox()
    box.service.shutdown()
    request = JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS)
    answer = box.service.join_group(MemberContext("c", "/h", 9), request).result(0)
    assert answer.error_code == Errors.COORDINATOR_NOT_AVAILABLE
