"""The result of a poll."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from itertools import chain

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.common.topic_partition import TopicPartition


class ConsumerRecords:
    """Records by partition, in offset order within each.

        records = consumer.poll(timeout_ms=1000)
        for record in records: ...                          # all of them
        for partition, some in records.items(): ...         # by partition
        records[TopicPartition("orders", 0)]                # of one; empty if there are none

    ``len()`` is the number of records. It is constant, though the lists are not copied.
    """

    __slots__ = ("_count", "_next_offsets", "_parts")

    def __init__(
        self,
        parts: Mapping[TopicPartition, list[ConsumerRecord]] | None = None,
        next_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        self._parts = {} if parts is None else parts
        self._next_offsets = {} if next_offsets is None else next_offsets
        self._count = sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(self._parts.values())

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __getitem__(self, partition: TopicPartition) -> list[ConsumerRecord]:
        return self._parts.get(partition, [])

    def __contains__(self, partition: object) -> bool:
        return partition in self._parts

    @property
    def is_empty(self) -> bool:
        """Whether there are no records."""
        return not self._count

    @property
    def count(self) -> int:
        """The number of records, of all partitions."""
        return self._count

    def partitions(self) -> KeysView[TopicPartition]:
        """The partitions with records."""
        return self._parts.keys()

    def keys(self) -> KeysView[TopicPartition]:
        """Returns the partitions with records, as `partitions` does."""
        return self._parts.keys()

    def values(self) -> ValuesView[list[ConsumerRecord]]:
        """Returns the records of each partition."""
        return self._parts.values()

    def items(self) -> ItemsView[TopicPartition, list[ConsumerRecord]]:
        """Returns the partitions with their records."""
        return self._parts.items()

    def records(self, topic: str) -> Iterator[ConsumerRecord]:
        """Returns the records of one topic."""
        return chain.from_iterable(some for partition, some in self._parts.items() if partition.topic == topic)

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The next offset of each partition: commit these after processing all records (KIP-1094)."""
        return self._next_offsets

    def __repr__(self) -> str:
        rows = ", ".join(f"{partition}: {len(some)}" for partition, some in self._parts.items())
        return f"ConsumerRecords({rows or 'none'})"
