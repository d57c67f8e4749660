"""Batches that were sent and have no response yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.inflight import FOREVER


class InFlightBatches:
    """Tracks batches in flight to detect their expiry. Used by the sender's thread."""

    __slots__ = ("_by_partition", "_delivery_timeout_ms", "_earliest_ms")

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._by_partition: dict[TopicPartition, list[ProducerBatch]] = {}
        self._earliest_ms = FOREVER
        """A lower bound of their creation times."""

    def __len__(self) -> int:
        """The number of partitions with batches in flight."""
        return len(self._by_partition)

    def of(self, partition: TopicPartition) -> Sequence[ProducerBatch]:
        return self._by_partition.get(partition, ())

    @property
    def next_expiry_time_ms(self) -> int:
        """The earliest time at which one of them can expire."""
        return self._earliest_ms + self._delivery_timeout_ms

    def add(self, batches: Mapping[int, Iterable[ProducerBatch]]) -> None:
        """Adds batches that are sent to some nodes now."""
        by_partition = self._by_partition
        for node_batches in batches.values():
            for batch in node_batches:
                of_partition = by_partition.get(batch.topic_partition)
                if of_partition is None:
                    by_partition[batch.topic_partition] = [batch]
                else:
                    of_partition.append(batch)
                self._earliest_ms = min(self._earliest_ms, batch.created_ms)

    def remove(self, batch: ProducerBatch) -> None:
        """Removes a batch, if it is tracked."""
        batches = self._by_partition.get(batch.topic_partition)
        if batches is not None and batch in batches:
            if batches[0] is batch:  # responses come in order
                del batches[0]
            else:
                batches.remove(batch)
            if not batches:
                del self._by_partition[batch.topic_partition]
                if not self._by_partition:
                    self._earliest_ms = FOREVER

    def expired(self, now: int) -> list[ProducerBatch]:
        """Those whose time is over; they stay here until they are removed."""
        timeout_ms = self._delivery_timeout_ms
        if now < self.next_expiry_time_ms:
            return []
        expired: list[ProducerBatch] = []
        earliest = FOREVER
        for batches in self._by_partition.values():
            for batch in batches:
                if batch.has_reached_delivery_timeout(timeout_ms, now):
                    expired.append(batch)
                else:
                    earliest = min(earliest, batch.created_ms)
        self._earliest_ms = earliest
        return expired

    def clear(self) -> None:
        self._by_partition.clear()
        self._earliest_ms = FOREVER
