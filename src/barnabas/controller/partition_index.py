"""Indexes of partitions by leader, ISR member, log directory, ..."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap, TimelineHashSet

K = TypeVar("K", bound=Hashable)


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{uuid_to_string(self.topic_id)}:{self.partition}"


class PartitionIndex(Generic[K]):
    """The partitions under each key, in insertion order.

    When a broker fails, all partitions that it leads or is in sync for must change; scanning every partition of the
    cluster would take too long. Kafka has BrokersToIsrs and BrokersToElrs for this; here one structure serves four
    purposes: leaders, in-sync replicas, eligible leaders and log directories.
    """

    __slots__ = ("_partitions", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._partitions: TimelineHashMap[K, TimelineHashSet[TopicIdPartition]] = TimelineHashMap(registry)

    def of(self, key: K) -> list[TopicIdPartition]:
        """Returns a copy, so that records that change these partitions can be replayed during iteration."""
        found = self._partitions.get(key)
        return [] if found is None else list(found)

    def has(self, key: K) -> bool:
        found = self._partitions.get(key)
        return found is not None and len(found) > 0

    def __contains__(self, entry: tuple[K, TopicIdPartition]) -> bool:
        found = self._partitions.get(entry[0])
        return found is not None and entry[1] in found

    def items(self) -> Iterator[tuple[K, list[TopicIdPartition]]]:
        for key, partitions in self._partitions.items():
            if partitions:
                yield key, list(partitions)

    def add(self, key: K, partition: TopicIdPartition) -> None:
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = TimelineHashSet(self._registry, nested=True)
        found.add(partition)

    def remove(self, key: K, partition: TopicIdPartition) -> None:
        found = self._partitions.get(key)
        if found is not None:
            found.discard(partition)

    def move(self, partition: TopicIdPartition, before: Iterable[K], after: Iterable[K]) -> None:
        """Moves a partition from its old keys to its new ones."""
        if before == after:
            return
        before, after = tuple(before), tuple(after)
        for key in before:
            if key not in after:
                self.remove(key, partition)
        for key in after:
            if key not in before:
                self.add(key, partition)
