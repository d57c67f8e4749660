"""Deltas of maps, and of maps of maps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.map_delta import MapDelta, NestedMapDelta
from barnabas.metadata.persistent_map import PersistentMap

CONTENT = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))
NESTED = st.dictionaries(st.sampled_from("xyz"), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1))


@given(CONTENT, CONTENT)
def test_a_snapshot_replaces_everything_and_is_a_difference(before: dict[str, int], snapshot: dict[str, int]) -> None:
    delta = MapDelta(PersistentMap(before))
    for key, value in snapshot.items():
        delta.put(key, value)
    delta.finish_snapshot()
    assert delta.apply() == snapshot
    assert delta.changes == {
        key: snapshot.get(key) for key in before.keys() | snapshot.keys() if before.get(key) != snapshot.get(key)
    }
    assert bool(delta) is (before != snapshot)


def test_what_was_only_put_in_the_delta_leaves_no_trace() -> None:
    delta = MapDelta(PersistentMap({"a": 1}))
    delta.put("b", 2)
    delta.remove("b")
    delta.remove("never there")
    assert not delta
    assert delta.apply() is delta.base


def test_reading_through() -> None:
    delta = MapDelta(PersistentMap({"a": 1, "b": 2, "c": 3}))
    delta.put("a", 10)
    delta.remove("b")
    assert (delta.get("a"), delta.get("b"), delta.get("c"), delta.get("d")) == (10, None, 3, None)
    assert delta.changes == {"a": 10, "b": None}


def test_everything() -> None:
    content = PersistentMap({"a": 1, "b": 2})
    delta = MapDelta.of_everything(content)
    assert delta.changes == {"a": 1, "b": 2}
    assert len(delta.base) == 0
    assert delta.apply() == content


@given(NESTED, NESTED)
def test_a_nested_snapshot(before: dict[str, dict[str, int]], snapshot: dict[str, dict[str, int]]) -> None:
    delta = NestedMapDelta(PersistentMap(before))
    for owner, entries in snapshot.items():
        for key, value in entries.items():
            delta.put(owner, key, value)
    delta.finish_snapshot()
    assert delta.apply() == snapshot
    assert bool(delta) is (before != snapshot)
    assert delta.changes.keys() == {
        owner for owner in before.keys() | snapshot.keys() if before.get(owner) != snapshot.get(owner)
    }


def test_an_owner_goes_with_its_last_entry() -> None:
    delta = NestedMapDelta(PersistentMap({"x": {"a": 1}, "y": {"a": 1}}))
    delta.remove("x", "a")
    assert delta.changes == {"x": {"a": None}}
    assert delta.apply() == {"y": {"a": 1}}


def test_removing_all_includes_what_is_new() -> None:
    delta = NestedMapDelta(PersistentMap({"x": {"a": 1}}))
    delta.put("x", "b", 2)
    delta.put("new", "c", 3)
    for owner in ("x", "new", "unknown"):
        delta.remove_all(owner)
    assert delta.changes == {"x": {"a": None}}
    assert delta.apply() == {}
    assert NestedMapDelta.of_everything(delta.base).changes == {"x": {"a": 1}}
