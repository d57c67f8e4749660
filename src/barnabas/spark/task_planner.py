"""Divides the offset ranges of a batch into tasks.

A task of a Python data source costs Spark 30 to 60 ms of a core, whether it reads one record or a hundred thousand. So
the number of tasks follows the amount of data and the number of task slots, not the number of topic partitions: small
partitions are read together by one task, and large ones are cut.

All ranges form one row. The row is divided into parts of equal size, and each part is a task::

    partition   0         1    2    3    4    5                    6
    records     [--------][---][---][---][---][-------------------][---]
    tasks       |0           |1           |2           |3               |

A part ends at the nearest end of a partition if that is near enough, because a partition that two tasks read is fetched
with some overlap. In a task, the records of a partition are in order; so are the tasks of a partition that is cut.

The tasks follow from the ranges and the number of tasks alone. A stream stores that number with the end of a batch: a
batch that is repeated after a failure has the same rows in the same tasks, which the exactly-once sink requires, even
on a cluster of another size.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from barnabas.spark.offset_ranges import OffsetRange

PARALLELISM_VARIABLE: Final = "BARNABAS_SPARK_PARALLELISM"
"""The environment variable with the number of task slots. `barnabas.spark.register` sets it for planning processes."""

TASKS_PER_SLOT: Final = 3
"""Tasks per slot of a large batch: with more than one, a slow task delays the end of a batch less."""

MIN_TASK_RECORDS: Final = 100_000
MIN_TASK_BYTES: Final = 8 * 1024 * 1024
"""A task that reads less than both takes longer to start than to read. Bytes are those in the log."""

LARGE_TASK_RECORDS: Final = 2_000_000
LARGE_TASK_BYTES: Final = 256 * 1024 * 1024
"""A slot has a second and a third task only if each of them reads as much as one of these. Another task on a free slot
saves time, but another task on the same slot only adds its start: on two slots, two tasks read 600,000 records of 100
bytes in 0.7 of the time of six, and 5 million in 0.9."""

MAX_TASK_RECORDS: Final = 4_000_000
MAX_TASK_BYTES: Final = 512 * 1024 * 1024
"""A large batch has tasks of at most this size, even with few known slots: the cluster may have more."""

_NEAR: Final = 0.1
"""How far the end of a part may move to avoid cutting a partition, as a share of a part."""


def task_slots() -> int:
    """Returns the number of tasks that Spark runs at a time, as far as a planning process can know it.

    Spark does not tell a Python data source. Without the environment variable it is the number of processors of the
    driver's machine, which is right for ``local[*]``.
    """
    given = os.environ.get(PARALLELISM_VARIABLE, "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The options that influence the tasks of a query."""

    target: int | None = None
    """``targetPartitions``: the number of tasks, if set."""
    minimum: int | None = None
    """``minPartitions``: at least this many tasks."""
    max_records: int | None = None
    """``maxRecordsPerPartition``: at most this many records per task."""
    merge: bool = True
    """``mergePartitions``: whether a task may read several partitions."""
    split: bool = True
    """``splitPartitions``: whether several tasks may read a partition."""

    @property
    def needs_sizes(self) -> bool:
        """Whether the number of tasks depends on the size of records."""
        return self.target is None and (self.merge or self.split)

    def task_count(self, ranges: Sequence[OffsetRange], bytes_per_record: float, slots: int) -> int:
        """Returns the number of tasks for these non-empty ranges.

        >>> ranges = [OffsetRange("t", number, 0, 60_000) for number in range(10)]
        >>> TaskLimits().task_count(ranges, 110.0, slots=8)
        8
        >>> TaskLimits().task_count(ranges, 110.0, slots=2)
        2
        >>> TaskLimits().task_count(ranges[:3], 1.0, slots=8)  # 180,000 records
        3
        >>> TaskLimits().task_count([OffsetRange("t", 0, 0, 50)], 110.0, slots=2)  # 50 records are not divided
        1
        """
        records = sum(one.end - one.start for one in ranges)
        if self.target is not None:
            count = self.target
        else:
            stored = records * bytes_per_record
            worthwhile = max(_ceil(records, MIN_TASK_RECORDS), _ceil(stored, MIN_TASK_BYTES), len(ranges))
            large = max(records / LARGE_TASK_RECORDS, stored / LARGE_TASK_BYTES)
            per_slot = min(int(large / slots), TASKS_PER_SLOT)
            count = slots * per_slot if per_slot > 1 else min(worthwhile, slots)
            count = max(count, _ceil(records, MAX_TASK_RECORDS), _ceil(stored, MAX_TASK_BYTES))
        return max(1, count, self.minimum or 1)


def plan_tasks(ranges: Iterable[OffsetRange], count: int, limits: TaskLimits) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task, in the given order; none for empty ranges.

    There are `count` tasks, unless a limit makes more, or too few records or partitions make fewer.

    >>> ranges = [OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 5), OffsetRange("t", 2, 0, 5)]
    >>> [[(one.partition, one.size) for one in task] for task in plan_tasks(ranges, 4, TaskLimits())]
    [[(0, 25)], [(0, 25)], [(0, 25)], [(0, 15), (1, 5), (2, 5)]]
    >>> [[(one.partition, one.size) for one in task] for task in plan_tasks(ranges, 4, TaskLimits(merge=False))]
    [[(0, 23)], [(0, 22)], [(0, 23)], [(0, 22)], [(1, 5)], [(2, 5)]]
    """
    filled = [one for one in ranges if one.end > one.start]
    if not filled:
        return []
    if not limits.merge:
        return [(part,) for part in _separate(filled, count, limits)]
    return list(_limited(_divided(filled, count, _NEAR if limits.split else math.inf), limits.max_records))


def _separate(ranges: list[OffsetRange], count: int, limits: TaskLimits) -> Iterator[OffsetRange]:
    """Yields parts of single partitions. Each partition has as many as its share of the records, at least one."""
    total = sum(one.end - one.start for one in ranges)
    for one in ranges:
        size = one.end - one.start
        parts = max(1, round(size * count / total)) if limits.split else 1
        if limits.max_records is not None:
            parts = max(parts, _ceil(size, limits.max_records))
        parts = min(parts, size)
        edges = [one.start + _ceil(size * index, parts) for index in range(parts + 1)]
        yield from (one._replace(start=edges[index], end=edges[index + 1]) for index in range(parts))


def _divided(ranges: list[OffsetRange], count: int, near: float) -> Iterator[list[OffsetRange]]:
    """Divides the row of ranges into equal parts; `near` is how far the end of a part may move."""
    ends = list(accumulate(one.end - one.start for one in ranges))
    task: list[OffsetRange] = []
    cuts = _cuts(ends, count, near)
    cut = next(cuts)
    first = 0
    """The place of the range in the row."""
    for one, end in zip(ranges, ends, strict=True):
        start = one.start
        while cut < end:
            if cut > first:
                offset = one.start + cut - first
                task.append(one._replace(start=start, end=offset))
                start = offset
            if task:
                yield task
                task = []
            cut = next(cuts)
        task.append(one._replace(start=start))
        first = end
    yield task


def _cuts(ends: list[int], count: int, near: float) -> Iterator[int]:
    """Yields the ends of the parts in the row, in ascending order, and the end of the row at last."""
    total = ends[-1]
    distance = near * total / count
    last = 0
    for index in range(1, min(count, total)):
        place = total * index // count if count <= total else index
        after = bisect_left(ends, place)
        edges = [ends[after], ends[after - 1] if after else 0]
        nearest = min(edges, key=lambda edge, place=place: abs(edge - place))  # type: ignore[misc]
        if abs(nearest - place) <= distance:
            place = nearest
        if place > last:
            last = place
            yield place
    yield total


def _limited(tasks: Iterable[list[OffsetRange]], max_records: int | None) -> Iterator[tuple[OffsetRange, ...]]:
    """Divides tasks that have too many records."""
    for task in tasks:
        size = sum(one.end - one.start for one in task)
        if max_records is None or size <= max_records:
            yield tuple(task)
        else:
            yield from map(tuple, _divided(task, _ceil(size, max_records), near=0))


def _ceil(number: float, divisor: int) -> int:
    return int(-(-number // divisor))
