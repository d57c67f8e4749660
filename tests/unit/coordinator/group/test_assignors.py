"""Who gets which partitions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.assignor.partition_assignor import (
    GroupSpec,
    MemberSubscription,
    PartitionAssignor,
    PartitionAssignorError,
)
from barnabas.coordinator.group.assignor.range_assignor import RangeAssignor
from barnabas.coordinator.group.assignor.uniform_assignor import UniformAssignor
from barnabas.coordinator.group.consumer.assignment import Assignment
from unit.metadata.samples import uid

T, U = uid(1), uid(2)
BOTH = frozenset({T, U})


def member(
    topics: frozenset[Uuid] = BOTH, assignment: Assignment | None = None, instance_id: str | None = None
) -> MemberSubscription:
    return MemberSubscription(topics, assignment or {}, instance_id)


def test_range_gives_neighbours_of_each_topic() -> None:
    spec = GroupSpec({"c": member(), "a": member(), "b": member()}, {T: 4, U: 2})
    assert RangeAssignor().assign(spec) == {
        "a": {T: {0, 1}, U: {0}},
        "b": {T: {2}, U: {1}},
        "c": {T: {3}},
    }


def test_range_puts_static_members_first() -> None:
    spec = GroupSpec({"a": member(), "b": member(instance_id="2"), "c": member(instance_id="1")}, {T: 3, U: 0})
    assert RangeAssignor().assign(spec) == {"c": {T: {0}}, "b": {T: {1}}, "a": {T: {2}}}


def test_range_with_different_subscriptions() -> None:
    spec = GroupSpec({"a": member(frozenset({T})), "b": member()}, {T: 3, U: 2})
    assert RangeAssignor().assign(spec) == {"a": {T: {0, 1}}, "b": {T: {2}, U: {0, 1}}}


def test_uniform_keeps_what_it_can() -> None:
    spec = GroupSpec(
        {"a": member(assignment={T: frozenset({0, 1, 2}), U: frozenset({1})}), "b": member()}, {T: 3, U: 3}
    )
    target = UniformAssignor().assign(spec)
    assert sum(map(len, target["a"].values())) == 3
    assert target["a"][T] == {0, 1, 2}
    assert target["b"] == {U: {0, 1, 2}}


def test_a_topic_that_is_not_there() -> None:
    for assignor in (RangeAssignor(), UniformAssignor()):
        with pytest.raises(PartitionAssignorError):
            assignor.assign(GroupSpec({"a": member()}, {T: 1}))
        with pytest.raises(PartitionAssignorError):
            assignor.assign(GroupSpec({"a": member(), "b": member(frozenset({T}))}, {T: 1}))


def test_nobody() -> None:
    assert RangeAssignor().assign(GroupSpec({}, {})) == {}
    assert UniformAssignor().assign(GroupSpec({}, {})) == {}
    assert UniformAssignor().assign(GroupSpec({"a": member(frozenset())}, {})) == {"a": {}}


@st.composite
def specs(draw: st.DrawFn) -> GroupSpec:
    topics = [uid(number) for number in range(1, draw(st.integers(1, 4)) + 1)]
    sizes = {topic: draw(st.integers(1, 8)) for topic in topics}
    homogeneous = draw(st.booleans())
    common = frozenset(draw(st.lists(st.sampled_from(topics), min_size=1)))
    free = {(topic, number) for topic in topics for number in range(sizes[topic] + 1)}
    members = {}
    for number in range(draw(st.integers(1, 6))):
        subscribed = common if homogeneous else frozenset(draw(st.lists(st.sampled_from(topics))))
        had: dict[Uuid, set[int]] = {}
        for topic, partition in draw(st.lists(st.sampled_from(sorted(free)), max_size=6)) if free else ():
            if (topic, partition) in free:
                free.discard((topic, partition))
                had.setdefault(topic, set()).add(partition)
        members[f"m{number}"] = MemberSubscription(
            subscribed, {topic: frozenset(partitions) for topic, partitions in had.items()}
        )
    return GroupSpec(members, sizes)


def check(spec: GroupSpec, target: dict[str, Assignment]) -> None:
    """Everything that somebody is subscribed to is with exactly one who is."""
    owners: dict[tuple[Uuid, int], str] = {}
    for member_id, assignment in target.items():
        for topic, partitions in assignment.items():
            assert topic in spec.members[member_id].subscribed_topic_ids
            assert partitions
            for partition in partitions:
                assert owners.setdefault((topic, partition), member_id) == member_id
    subscribed = frozenset().union(*(one.subscribed_topic_ids for one in spec.members.values()))
    assert owners.keys() == {(topic, number) for topic in subscribed for number in range(spec.num_partitions[topic])}
    assert target.keys() == spec.members.keys()


@settings(max_examples=200, deadline=None)
@given(specs(), st.sampled_from([RangeAssignor(), UniformAssignor()]))
def test_every_partition_has_one_owner(spec: GroupSpec, assignor: PartitionAssignor) -> None:
    target = assignor.assign(spec)
    check(spec, target)
    assert assignor.assign(spec) == target


@settings(max_examples=200, deadline=None)
@given(specs())
def test_uniform_is_fair_and_stable(spec: GroupSpec) -> None:
    assignor = UniformAssignor()
    target = assignor.assign(spec)
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in target.items()}
    if spec.is_homogeneous:
        assert max(sizes.values()) - min(sizes.values()) <= 1
    else:
        # Nobody has two more than another who could have had one of them.
        for member_id, assignment in target.items():
            for other_id, other in spec.members.items():
                if not other.subscribed_topic_ids.isdisjoint(assignment):
                    assert sizes[member_id] - sizes[other_id] <= 1
    again = GroupSpec(
        {
            member_id: MemberSubscription(one.subscribed_topic_ids, target[member_id])
            for member_id, one in spec.members.items()
        },
        spec.num_partitions,
    )
    if spec.is_homogeneous and sorted(sizes.values(), reverse=True) == list(sizes.values()):
        assert assignor.assign(again) == target, "nothing has changed, so nothing moves"
    elif not spec.is_homogeneous:
        assert assignor.assign(again) == target
