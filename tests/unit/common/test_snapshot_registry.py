"""Timeline structures: reading the past, going back to it, forgetting it."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.snapshot_registry import (
    LATEST_EPOCH,
    SnapshotRegistry,
    TimelineHashMap,
    TimelineHashSet,
    TimelineObject,
)


@pytest.fixture
def registry() -> SnapshotRegistry:
    return SnapshotRegistry()


def test_a_map_is_read_as_of_each_snapshot(registry: SnapshotRegistry) -> None:
    levels: TimelineHashMap[str, int] = TimelineHashMap(registry)
    levels["a"] = 1
    registry.idempotent_create_snapshot(10)
    levels["a"] = 2
    levels["b"] = 5
    registry.idempotent_create_snapshot(11)
    levels["a"] = 3
    levels.pop("b")
    assert [levels.get("a", epoch) for epoch in (10, 11, LATEST_EPOCH)] == [1, 2, 3]
    assert [levels.get("b", epoch) for epoch in (10, 11, LATEST_EPOCH)] == [None, 5, None]
    assert dict(levels.items_at(10)) == {"a": 1}
    assert dict(levels.items_at(11)) == {"a": 2, "b": 5}
    assert dict(levels.items_at(LATEST_EPOCH)) == {"a": 3}
    assert levels.get("b", 10, "none") == "none"


def test_reverting_restores_and_allows_to_go_on(registry: SnapshotRegistry) -> None:
    levels: TimelineHashMap[str, int] = TimelineHashMap(registry)
    levels["a"] = 1
    registry.idempotent_create_snapshot(10)
    levels["a"] = 2
    registry.idempotent_create_snapshot(11)
    levels["b"] = 3
    registry.revert_to_snapshot(10)
    assert dict(levels.items()) == {"a": 1}
    assert registry.epochs == [10]
    levels["a"] = 9
    registry.revert_to_snapshot(10)
    assert dict(levels.items()) == {"a": 1}


def test_deleting_snapshots_forgets_the_past_but_not_the_present(registry: SnapshotRegistry) -> None:
    levels: TimelineHashMap[str, int] = TimelineHashMap(registry)
    for epoch in (1, 2, 3):
        levels["a"] = epoch
        registry.idempotent_create_snapshot(epoch)
    registry.delete_snapshots_up_to(3)
    assert registry.epochs == [3]
    assert levels.get("a", 3) == 3
    with pytest.raises(KeyError, match="no snapshot at 2"):
        levels.get("a", 2)
    with pytest.raises(KeyError, match="no snapshot at 2"):
        registry.revert_to_snapshot(2)
    registry.delete_snapshots_up_to(4)
    levels["a"] = 7
    assert registry.epochs == []
    assert levels["a"] == 7


class Value:
    """Something whose end can be seen."""


@pytest.mark.parametrize("end", ["commit", "revert", "reset"])
def test_a_dropped_snapshot_keeps_nothing_alive(registry: SnapshotRegistry, end: str) -> None:
    """A structure that is not written again still refers to the snapshot of its last write, with all the others in it.

    After the load of a coordinator, that was every key of the log, and every group that was deleted in it.
    """
    groups: TimelineHashMap[str, TimelineHashMap[str, Value]] = TimelineHashMap(registry)
    quiet: TimelineHashMap[str, Value] = TimelineHashMap(registry)
    quiet["k"] = Value()
    overwritten = weakref.ref(quiet["k"])
    registry.idempotent_create_snapshot(0)
    group = groups["g"] = TimelineHashMap(registry, nested=True)
    group["p"] = Value()
    deleted = weakref.ref(group["p"])
    groups.pop("g")
    quiet["k"] = Value()
    del group
    if end == "revert":
        registry.revert_to_snapshot(0)
    elif end == "reset":
        registry.reset()
    else:
        registry.idempotent_create_snapshot(1)
        registry.delete_snapshots_up_to(1)
    gc.collect()
    assert deleted() is None
    assert (overwritten() is None) == (end != "revert"), "the value of before is there again"


def test_snapshots_come_in_order(registry: SnapshotRegistry) -> None:
    registry.idempotent_create_snapshot(5)
    registry.idempotent_create_snapshot(5)
    with pytest.raises(ValueError, match="cannot create a snapshot at 4"):
        registry.idempotent_create_snapshot(4)


def test_nested_maps_go_back_with_their_parents(registry: SnapshotRegistry) -> None:
    topics: TimelineHashMap[str, TimelineHashMap[int, str]] = TimelineHashMap(registry)
    old = topics["old"] = TimelineHashMap(registry, nested=True)
    old[0] = "x"
    registry.idempotent_create_snapshot(1)
    old[1] = "y"
    topics.pop("old")
    topics["new"] = TimelineHashMap(registry, nested=True)
    topics["new"][0] = "z"
    was = topics.get("old", 1)
    assert was is old
    assert dict(was.items_at(1)) == {0: "x"}
    registry.revert_to_snapshot(1)
    assert list(topics) == ["old"]
    assert dict(topics["old"].items()) == {0: "x"}


def test_sets_and_objects_have_a_past_too(registry: SnapshotRegistry) -> None:
    members: TimelineHashSet[str] = TimelineHashSet(registry)
    number: TimelineObject[int | None] = TimelineObject(registry, None)
    assert members.add("a")
    assert not members.add("a")
    registry.idempotent_create_snapshot(1)
    assert members.discard("a")
    assert not members.discard("a")
    members.add("b")
    number.set(7)
    assert (members.members_at(1), list(members)) == (["a"], ["b"])
    assert (number.get(1), number.get()) == (None, 7)
    registry.revert_to_snapshot(1)
    assert (list(members), number.get()) == (["a"], None)


def test_a_reset_empties_what_is_registered(registry: SnapshotRegistry) -> None:
    levels: TimelineHashMap[str, int] = TimelineHashMap(registry)
    number: TimelineObject[int] = TimelineObject(registry, 4)
    registry.idempotent_create_snapshot(1)
    levels["a"] = 1
    number.set(5)
    registry.reset()
    assert (len(levels), number.get(), registry.epochs) == (0, 4, [])
    levels["b"] = 2
    registry.idempotent_create_snapshot(0)
    levels["b"] = 3
    registry.revert_to_snapshot(0)
    assert dict(levels.items()) == {"b": 2}


def test_sets_keep_the_order_of_arrival(registry: SnapshotRegistry) -> None:
    members: TimelineHashSet[int] = TimelineHashSet(registry)
    for member in (5, 1, 9, 3):
        members.add(member)
    assert list(members) == [5, 1, 9, 3]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 99)),
        st.tuples(st.just("pop"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("snapshot"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("revert"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("forget"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("reset"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(operations)
def test_a_map_agrees_with_copies_of_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    """Against the simplest thing that works: a full copy for every snapshot."""
    registry = SnapshotRegistry()
    timeline: TimelineHashMap[int, int] = TimelineHashMap(registry)
    present: dict[int, int] = {}
    copies: dict[int, dict[int, int]] = {}
    epoch = 0
    for name, first, second in steps:
        match name:
            case "put":
                timeline[first] = present[first] = second
            case "pop":
                assert timeline.pop(first) == present.pop(first, None)
            case "snapshot":
                epoch += first
                registry.idempotent_create_snapshot(epoch)
                copies[epoch] = dict(present)
            case "revert" if copies:
                target = sorted(copies)[first % len(copies)]
                registry.revert_to_snapshot(target)
                present = dict(copies[target])
                copies = {at: copy for at, copy in copies.items() if at <= target}
                epoch = target
            case "forget" if copies:
                target = sorted(copies)[first % len(copies)]
                registry.delete_snapshots_up_to(target)
                copies = {at: copy for at, copy in copies.items() if at >= target}
            case "reset":
                registry.reset()
                present, copies, epoch = {}, {}, 0
        assert dict(timeline.items()) == present
        for at, copy in copies.items():
            assert dict(timeline.items_at(at)) == copy
            for key in range(6):
                assert timeline.get(key, at) == copy.get(key)
