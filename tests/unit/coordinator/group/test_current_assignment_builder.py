"""The steps of a member of a consumer group toward its target: from each state to each other, and no wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import FencedMemberEpochError
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState
from barnabas.coordinator.group.consumer.current_assignment_builder import CurrentAssignmentBuilder
from unit.metadata.samples import uid

T = uid(1)
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
PARTITIONS = range(4)


def member(state: MemberState, epoch: int, assigned: set[int], pending: set[int] = frozenset()) -> ConsumerGroupMember:  # type: ignore[assignment]
    return ConsumerGroupMember(
        "m",
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned_partitions={T: dict.fromkeys(assigned, epoch)} if assigned else {},
        partitions_pending_revocation={T: dict.fromkeys(pending, epoch)} if pending else {},
    )


def step(
    before: ConsumerGroupMember,
    target: set[int],
    *,
    target_epoch: int = 11,
    others: set[int] = frozenset(),  # type: ignore[assignment]
    owned: set[int] | None = None,
    subscribed: bool = True,
    changed: bool = False,
) -> ConsumerGroupMember:
    return CurrentAssignmentBuilder(
        before,
        target_epoch,
        {T: frozenset(target)},
        lambda _topic, partition: 5 if partition in others else -1,
        None if owned is None else {T: owned},
        frozenset({T}) if subscribed else frozenset(),
        changed,
    ).build()


def has(one: ConsumerGroupMember) -> set[int]:
    return set(one.assigned_partitions.get(T, ()))


def gives_up(one: ConsumerGroupMember) -> set[int]:
    return set(one.partitions_pending_revocation.get(T, ()))


@pytest.mark.parametrize(
    ("before", "target", "others", "owned", "expected"),
    [
        # There is nothing to do.
        ((STABLE, 11, {0}, set()), {0}, set(), None, (STABLE, 11, {0}, set())),
        # It is given what is free, waits for what is not, and gives up first if it has to.
        ((STABLE, 10, {0}, set()), {0, 1}, set(), None, (STABLE, 11, {0, 1}, set())),
        ((STABLE, 10, {0}, set()), {0, 1, 2}, {1}, None, (UNRELEASED, 11, {0, 2}, set())),
        ((STABLE, 10, {0, 1}, set()), {1, 2}, set(), None, (UNREVOKED, 10, {1}, {0})),
        ((STABLE, 10, {0, 1}, set()), {1, 2}, set(), {1}, (STABLE, 11, {1, 2}, set())),
        # It has not said that it gave up, or has not given up everything.
        ((UNREVOKED, 10, {1}, {0}), {1, 2}, set(), None, (UNREVOKED, 10, {1}, {0})),
        ((UNREVOKED, 10, {1}, {0}), {1, 2}, set(), {0, 1}, (UNREVOKED, 10, {1}, {0})),
        # It has.
        ((UNREVOKED, 10, {1}, {0}), {1, 2}, set(), {1}, (STABLE, 11, {1, 2}, set())),
        ((UNREVOKED, 10, {1}, {0}), {1, 2}, {2}, {1}, (UNRELEASED, 11, {1}, set())),
        # Meanwhile it is to give up more.
        ((UNREVOKED, 9, {1, 2}, {0}), {1}, set(), {1, 2}, (UNREVOKED, 10, {1}, {2})),
        ((UNREVOKED, 10, {1, 2}, {0}), {1}, set(), {1, 2}, (UNREVOKED, 11, {1}, {2})),
        # What it waits for is still not there; is there; is not wanted any more; and it is to give up something else.
        ((UNRELEASED, 11, {0}, set()), {0, 1}, {1}, None, (UNRELEASED, 11, {0}, set())),
        ((UNRELEASED, 11, {0}, set()), {0, 1}, set(), None, (STABLE, 11, {0, 1}, set())),
        ((UNRELEASED, 10, {0}, set()), {0}, {1}, None, (STABLE, 11, {0}, set())),
        ((UNRELEASED, 10, {0}, set()), {1}, {1}, None, (UNREVOKED, 10, set(), {0})),
        # Of a later version, with nothing in its hands.
        ((UNKNOWN, 10, {0}, {1}), {2}, set(), set(), (STABLE, 11, {2}, set())),
        ((UNKNOWN, 10, set(), set()), {2}, {2}, set(), (UNRELEASED, 11, set(), set())),
    ],
)
def test_steps(
    before: tuple[MemberState, int, set[int], set[int]],
    target: set[int],
    others: set[int],
    owned: set[int] | None,
    expected: tuple[MemberState, int, set[int], set[int]],
) -> None:
    after = step(member(*before), target, others=others, owned=owned)
    assert (after.state, after.member_epoch, has(after), gives_up(after)) == expected


@pytest.mark.parametrize("owned", [None, {0}])
def test_a_member_whose_state_is_not_known_has_to_give_up_everything(owned: set[int] | None) -> None:
    with pytest.raises(FencedMemberEpochError):
        step(member(UNKNOWN, 10, {0}), {0}, owned=owned)


def test_a_topic_that_it_is_not_subscribed_to_any_more() -> None:
    stable = member(STABLE, 11, {0, 1})
    assert step(stable, {0, 1}, subscribed=False) == stable, "it has not said so in this heartbeat"
    after = step(stable, {0, 1}, subscribed=False, changed=True)
    assert (after.state, after.member_epoch, has(after), gives_up(after)) == (UNREVOKED, 11, set(), {0, 1})
    done = step(stable, {0, 1}, subscribed=False, changed=True, owned=set())
    assert (done.state, has(done), gives_up(done)) == (STABLE, set(), set())
    more = step(member(UNREVOKED, 10, {1}, {0}), {1}, subscribed=False, changed=True)
    assert (more.state, has(more), gives_up(more)) == (UNREVOKED, set(), {0, 1})


SETS = st.sets(st.sampled_from(PARTITIONS))


@st.composite
def situations(draw: st.DrawFn) -> tuple[ConsumerGroupMember, set[int], set[int], set[int] | None, bool]:
    """A member that a coordinator may have in its log, and what is going on around it."""
    state = draw(st.sampled_from([STABLE, UNREVOKED, UNRELEASED]))
    assigned = draw(SETS)
    pending = draw(SETS) - assigned if state is UNREVOKED else set()
    if state is UNREVOKED and not pending:
        state = STABLE
    # One that has something to give up is still at an epoch before that of the target.
    epoch = draw(st.integers(8, 10 if state is UNREVOKED else 11))
    owned = draw(st.none() | SETS.map(lambda some: some & (assigned | pending)))
    return (
        member(state, epoch, assigned, pending),
        draw(SETS),
        draw(SETS) - assigned - pending,
        owned,
        draw(st.booleans()),
    )


@given(situations())
def test_every_step_is_a_right_one(
    situation: tuple[ConsumerGroupMember, set[int], set[int], set[int] | None, bool],
) -> None:
    before, target, others, owned, subscribed = situation
    after = step(before, target, others=others, owned=owned, subscribed=subscribed)
    wanted = target if subscribed else set()
    had = has(before) | gives_up(before)
    assert not (has(after) | gives_up(after)) & others, "nothing belongs to two members"
    assert not has(after) & gives_up(after)
    assert before.member_epoch <= after.member_epoch <= 11
    lost = had - has(after) - gives_up(after)
    assert not lost & (had if owned is None else owned), "what a member has not given up is not taken away"
    if after.state is not before.state or after.member_epoch != before.member_epoch:
        assert after.previous_member_epoch == before.member_epoch, "the answer may get lost"
    if after.state is UNREVOKED:
        assert gives_up(after), "there is something to give up"
        # One that has given up what it had to is in the next epoch, also if there is more to give up.
        assert after.member_epoch < 11 or before.member_epoch == 11 or before.state is UNREVOKED
    else:
        assert not gives_up(after)
    if after.state is STABLE and (before.state is not STABLE or before.member_epoch != 11):
        assert has(after) == wanted
    if after.state is UNRELEASED:
        assert wanted & others
        assert has(after) == wanted - others
    # It does not move in circles: the same heartbeat again changes nothing.
    if owned is None and after.state is not UNREVOKED:
        again = step(after, target, others=others, subscribed=subscribed)
        assert (again.state, has(again)) == (after.state, has(after))
