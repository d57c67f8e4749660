"""The persistent map against a dictionary, and what it shares."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.metadata.persistent_map import PersistentMap

KEYS = st.one_of(st.integers(-5, 40), st.text("abcdef", max_size=2), st.binary(max_size=2))


@given(
    st.dictionaries(KEYS, st.integers()),
    st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=5), st.sets(KEYS, max_size=5)), max_size=8),
)
def test_it_does_what_a_dictionary_does(
    start: dict[object, int], steps: list[tuple[dict[object, int], set[object]]]
) -> None:
    expected = dict(start)
    tested = PersistentMap(start)
    history = [(tested, dict(expected))]
    for changed, removed in steps:
        for key in removed:
            expected.pop(key, None)
        expected |= changed
        tested = tested.updated(changed, removed)
        history.append((tested, dict(expected)))
    for version, content in history:  # also those that were succeeded
        assert len(version) == len(content)
        assert dict(version.items()) == content
        assert set(version) == set(version.keys()) == content.keys()
        assert sorted(version.values()) == sorted(content.values())
        assert version == content
        assert version == PersistentMap(content)
        assert bool(version) is bool(content)
        for key in [*content, "no such key", -99]:
            assert version.get(key) == content.get(key)
            assert version.get(key, 7) == content.get(key, 7)
            assert (key in version) is (key in content)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 6000)), min_size=1, max_size=4))
def test_it_grows_and_shrinks(ranges: list[tuple[int, int]]) -> None:
    tested: PersistentMap[str, int] = PersistentMap()
    expected: dict[str, int] = {}
    for add, remove in ranges:
        added = {f"k{number}": number for number in range(add)}
        gone = [f"k{number}" for number in range(remove)]
        tested = tested.updated({}, gone).updated(added)
        for key in gone:
            expected.pop(key, None)
        expected |= added
        assert tested == expected
        assert len(tested) == len(expected)
    # Neither a few huge buckets nor many empty ones.
    size, buckets = len(expected), tested.bucket_count
    assert size <= max(64, 4 * buckets * buckets)
    assert buckets == 1 or 16 * size >= buckets * buckets


def test_a_change_copies_one_bucket() -> None:
    before = PersistentMap({f"topic-{number}": number for number in range(10_000)})
    after = before.updated({"topic-77": -1})
    assert before["topic-77"] == 77
    assert after["topic-77"] == -1
    assert before.shared_buckets(after) == before.bucket_count - 1
    assert before.bucket_count == 128
    assert max(len(bucket) for bucket in before._buckets) < 160  # spread evenly, or the copy would not be small


def test_many_changes_copy_each_bucket_once() -> None:
    before = PersistentMap({number: number for number in range(0, 1 << 30, 1 << 17)})
    after = before.updated(dict.fromkeys(range(0, 1 << 22, 1 << 17), -1))
    assert before.bucket_count - before.shared_buckets(after) <= 4
    assert sum(value == -1 for value in after.values()) == 32


def test_nothing_changed_is_the_same_map() -> None:
    before = PersistentMap({"a": 1})
    assert before.updated({}) is before
    assert before.updated({}, ["b"]) is before


def test_removed_and_set_in_one_go_is_set() -> None:
    assert PersistentMap({"a": 1}).updated({"a": 2}, ["a"]) == {"a": 2}


def test_a_missing_key_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        PersistentMap({"a": 1})["b"]


def test_equality() -> None:
    small = PersistentMap({"a": 1})
    assert small != PersistentMap({"a": 2})
    assert small != PersistentMap({"b": 1})
    assert small != PersistentMap({"a": 1, "b": 1})
    assert small != 5
    content = {number << 20: number for number in range(100)}
    grown = PersistentMap({number << 20: number for number in range(1000)}).updated(
        {}, [number << 20 for number in range(100, 1000)]
    )
    assert grown.bucket_count != PersistentMap(content).bucket_count
    assert grown == PersistentMap(content)


def test_it_is_a_mapping_that_cannot_be_hashed() -> None:
    assert isinstance(PersistentMap(), Mapping)
    with pytest.raises(TypeError):
        hash(PersistentMap())


def test_a_successor_costs_little_memory() -> None:
    before = PersistentMap({f"topic-{number}": number for number in range(10_000)})
    after = before.updated({"topic-77": -1})
    (own,) = [bucket for bucket in after._buckets if not any(bucket is old for old in before._buckets)]
    added = sys.getsizeof(own) + sys.getsizeof(after._buckets)
    assert added < 16_000
    assert added * 20 < sum(map(sys.getsizeof, before._buckets))
