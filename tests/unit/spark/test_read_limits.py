"""How much of what is there goes into a micro-batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.offsets import beginnings_of, from_json, tasks_of, to_json
from barnabas.spark.read_limits import available, limit_bytes, limit_records


def _partitions(*numbers: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", index): number for index, number in enumerate(numbers)}


def test_in_proportion() -> None:
    assert limit_records(_partitions(0, 100), _partitions(300, 200), 40) == _partitions(30, 110)


def test_small_partitions_get_one_record() -> None:
    assert limit_records(_partitions(0, 5), _partitions(10_000, 6), 100) == _partitions(99, 6)


def test_what_is_within_the_limit_stays() -> None:
    assert limit_records(_partitions(0), _partitions(10), 10) == _partitions(10)


def test_a_partition_that_went_back_does_not_count() -> None:
    assert limit_records(_partitions(50, 0), _partitions(20, 100), 10) == _partitions(20, 10)


def test_bytes() -> None:
    sizes = {TopicPartition("t", 0): 1000.0, TopicPartition("t", 1): 10.0}
    # 100 records of 1000 bytes and 100 of 10: 101,000 bytes, of which a tenth is wanted.
    assert limit_bytes(_partitions(0, 0), _partitions(100, 100), 10_100, sizes) == _partitions(10, 10)
    assert limit_bytes(_partitions(0, 0), _partitions(100, 100), 200_000, sizes) == _partitions(100, 100)


def test_bytes_of_partitions_nothing_is_known_of() -> None:
    sizes = {TopicPartition("t", 0): 100.0}
    assert limit_bytes(_partitions(0, 0), _partitions(100, 100), 10_000, sizes) == _partitions(50, 50)
    assert limit_bytes(_partitions(0), _partitions(100), 1, {}) == _partitions(100)


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=8), st.integers(1, 10**10)
)
def test_a_limit_always_gets_on(parts: list[tuple[int, int]], limit: int) -> None:
    """Never backwards, never beyond the end, and everything is read at last."""
    starts = _partitions(*(start for start, _ in parts))
    ends = _partitions(*(start + size for start, size in parts))
    limited = limit_records(starts, ends, limit)
    assert all(starts[one] <= limited[one] <= ends[one] for one in starts)
    assert all(limited[one] > starts[one] for one in starts if ends[one] > starts[one])
    assert available(starts, limited) <= limit + len(parts)


def test_offsets_in_checkpoints() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("@from".strip("@"), 0): 3}
    text = to_json(offsets, {TopicPartition("b", 10): 0}, tasks=3)
    assert list(text) == ["b", "from", "@from", "@tasks"]
    assert list(text["b"]) == ["9", "10"]
    assert from_json(text) == offsets
    assert beginnings_of(text) == {TopicPartition("b", 10): 0}
    assert beginnings_of({"b": {"0": 1}}) == {}
    assert (tasks_of(text), tasks_of({"b": {"0": 1}})) == (3, None)


@pytest.mark.parametrize("range_", [OffsetRange("t", 0, 5, 9)])
def test_ranges_are_named_in_messages(range_: OffsetRange) -> None:
    assert str(range_) == "t-0 from 5 to 9"
