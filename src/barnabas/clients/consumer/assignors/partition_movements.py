"""Tracks the moves of partitions while a sticky assignment is balanced."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.topic_partition import TopicPartition


class MemberPair(NamedTuple):
    source: str
    target: str


class PartitionMovements:
    """Keeps partitions of one topic from moving in both directions between two members.

    If orders-1 has moved from A to B, and orders-4 is to move from B to A, then orders-1 goes back instead: the numbers
    come out the same, and both members keep what they had.
    """

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, MemberPair] = {}
        self._by_topic: dict[str, dict[MemberPair, set[TopicPartition]]] = {}

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        before = self._by_partition.pop(partition, None)
        if before is not None:
            moved = self._by_topic[partition.topic]
            moved[before].discard(partition)
            if not moved[before]:
                del moved[before]
            source = before.source
            if source == target:
                return
        pair = MemberPair(source, target)
        self._by_partition[partition] = pair
        self._by_topic.setdefault(partition.topic, {}).setdefault(pair, set()).add(partition)

    def actual_partition(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Returns the partition to move in place of this one."""
        before = self._by_partition.get(partition)
        if before is not None:
            source = before.source
        opposite = self._by_topic.get(partition.topic, {}).get(MemberPair(target, source))
        return min(opposite) if opposite else partition
