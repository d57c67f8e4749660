"""Splits offset ranges into tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from barnabas.common.topic_partition import TopicPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The input of one task: the offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Returns the tasks for these ranges, none for empty ones.

    A topic partition is one task, unless that makes tasks with more than `max_records`, or fewer tasks than
    `min_partitions`. For the latter, ranges are split in proportion to their size, so that tasks are about equal:

    >>> [one.size for one in split_ranges([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10)], 4, None)]
    [30, 30, 30, 10]
    """
    tasks = [one for one in ranges if one.size > 0]
    if max_records is not None:
        tasks = [part for one in tasks for part in _cut(one, -(-one.size // max_records))]
    if min_partitions is not None and tasks and len(tasks) < min_partitions:
        tasks = _cut_in_proportion(tasks, min_partitions)
    return tasks


def _cut_in_proportion(tasks: list[OffsetRange], count: int) -> list[OffsetRange]:
    """Keeps ranges whose share is less than one part whole; the others share the remaining parts."""
    total = sum(one.size for one in tasks)
    small = [one for one in tasks if one.size * count < total]
    large = [one for one in tasks if one.size * count >= total]
    parts = count - len(small)
    large_total = sum(one.size for one in large)
    cut = list(small)
    for one in large:
        cut += _cut(one, max(1, round(one.size / large_total * parts)))
    return sorted(cut, key=lambda one: (one.topic, one.partition, one.start))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Splits a range into parts whose sizes differ by at most one; at most one part per record."""
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(edges)]
