"""Offset ranges, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from barnabas.clients.common.topic_reader import Leader
from barnabas.common.topic_partition import TopicPartition


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

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


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """The input of one Spark task: the ranges that it reads, of one partition or of many."""

    ranges: tuple[OffsetRange, ...]
    leaders: Mapping[TopicPartition, Leader] = field(default_factory=dict, compare=False, repr=False)
    """The leaders when the task was planned, so that a task sends no metadata request unless a leader has moved."""

    @property
    def size(self) -> int:
        return sum(one.end - one.start for one in self.ranges)

    def __str__(self) -> str:
        return ", ".join(map(str, self.ranges))


def read_tasks(
    tasks: Iterable[tuple[OffsetRange, ...]], leaders: Mapping[TopicPartition, Leader]
) -> Iterator[ReadTask]:
    """Yields the input of each task: its ranges, with the leaders of their partitions as far as they are known."""
    for ranges in tasks:
        known = {one: leaders[one] for one in (wanted.topic_partition for wanted in ranges) if one in leaders}
        yield ReadTask(ranges, known)
