"""Offset ranges become tasks that follow the data and the slots, not the partitions (S13)."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.task_planner import PARALLELISM_VARIABLE, TaskLimits, plan_tasks, task_slots

pytestmark = pytest.mark.mechanism("S13")


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]


def sizes(tasks: list[tuple[OffsetRange, ...]]) -> list[list[int]]:
    return [[one.size for one in task] for task in tasks]


def test_small_partitions_are_read_together() -> None:
    tasks = plan_tasks(ranges(*[600] * 1000), 6, TaskLimits())
    assert [len(task) for task in tasks] == [167, 166, 167, 167, 166, 167]
    assert all(one.size == 600 for task in tasks for one in task)  # none of them is cut


def test_large_partitions_are_cut_in_order() -> None:
    tasks = plan_tasks([OffsetRange("t", 0, 50, 650)], 3, TaskLimits())
    assert tasks == [
        (OffsetRange("t", 0, 50, 250),),
        (OffsetRange("t", 0, 250, 450),),
        (OffsetRange("t", 0, 450, 650),),
    ]


def test_a_cut_near_the_end_of_a_partition_moves_there() -> None:
    assert sizes(plan_tasks(ranges(97, 103), 2, TaskLimits())) == [[97], [103]]
    assert sizes(plan_tasks(ranges(80, 120), 2, TaskLimits())) == [[80, 20], [100]]


def test_partitions_stay_whole_or_apart_on_request() -> None:
    assert sizes(plan_tasks(ranges(80, 120, 10), 2, TaskLimits(split=False))) == [[80], [120, 10]]
    assert sizes(plan_tasks(ranges(400, 10, 10), 4, TaskLimits(merge=False))) == [[100]] * 4 + [[10], [10]]
    assert sizes(plan_tasks(ranges(400, 10, 10), 4, TaskLimits(merge=False, split=False))) == [[400], [10], [10]]


def test_limits_of_the_stock_connector() -> None:
    assert sizes(plan_tasks(ranges(90, 10), 1, TaskLimits(max_records=40))) == [[33], [33], [24, 10]]
    assert sizes(plan_tasks(ranges(90, 10), 1, TaskLimits(max_records=40, merge=False))) == [[30], [30], [30], [10]]
    assert TaskLimits(minimum=9).task_count(ranges(90, 10), 1.0, slots=2) == 9
    assert len(plan_tasks(ranges(90, 10), 9, TaskLimits(minimum=9))) == 9
    assert sizes(plan_tasks([OffsetRange("t", 0, 5, 7)], 10, TaskLimits())) == [[1], [1]]  # no more than records
    assert plan_tasks(ranges(0, 0), 5, TaskLimits()) == []


@pytest.mark.parametrize(
    ("found", "bytes_per_record", "slots", "count"),
    [
        (ranges(10), 100, 8, 1),  # a few records are not cut
        (ranges(*[10] * 100), 100, 8, 8),  # but work is spread: what comes after the source may be slow
        (ranges(600_000), 110, 8, 8),  # a large partition is cut for free slots
        (ranges(*[60_000] * 10), 110, 2, 2),  # but a slot does not read two small tasks in turn
        (ranges(8_000_000), 10, 2, 4),  # it does read large ones
        (ranges(5_000_000), 110, 2, 2),  # nor two that take a second
        (ranges(20_000_000), 110, 2, 6),  # at most three
        (ranges(1_000), 100_000, 8, 8),  # large records count by their size
        (ranges(4_000), 1_000_000, 4, 12),
        (ranges(90_000_000), 10, 2, 23),  # a large batch has tasks of four million records
        (ranges(10_000), 1_000_000, 2, 19),  # or 512 MiB
    ],
)
def test_the_number_of_tasks(found: list[OffsetRange], bytes_per_record: float, slots: int, count: int) -> None:
    assert TaskLimits().task_count(found, bytes_per_record, slots) == count
    assert TaskLimits(target=7).task_count(found, bytes_per_record, slots) == 7


def test_the_number_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLELISM_VARIABLE, "37")
    assert task_slots() == 37
    for nonsense in ("", "0", "many"):
        monkeypatch.setenv(PARALLELISM_VARIABLE, nonsense)
        assert 1 <= task_slots() <= (os.cpu_count() or 1)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 5000)), max_size=30),
    st.integers(1, 50),
    st.none() | st.integers(50, 10_000),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_lost_or_read_twice(
    parts: list[tuple[int, int]], count: int, most: int | None, merge: bool, split: bool
) -> None:
    found = [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(parts)]
    limits = TaskLimits(max_records=most, merge=merge, split=split)
    tasks = plan_tasks(found, count, limits)
    position = {one.partition: one.start for one in found}
    for task in tasks:
        assert task
        assert len({one.partition for one in task}) == len(task)
        for one in task:
            assert one.size > 0
            assert one.start == position[one.partition]
            position[one.partition] = one.end
        assert most is None or sum(one.size for one in task) <= most
        assert merge or len(task) == 1
        if not split and most is None:
            assert all(one in found for one in task)
    assert position == {one.partition: one.end for one in found}
    total = sum(one.size for one in found)
    if merge and split and most is None:
        assert len(tasks) == min(count, total)
        assert all(sum(one.size for one in task) <= 1.2 * total / count + 1 for task in tasks)
