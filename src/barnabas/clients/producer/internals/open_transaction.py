"""The partitions and offsets of a producer's current transaction."""

from __future__ import annotations

from barnabas.clients.producer.offsets import OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.common.topic_partition import TopicPartition


class OpenTransaction:
    """The contents of the current transaction. Guarded by the transaction manager's lock.

    A partition is *new* when a record was appended to it, *pending* while the coordinator is requested to add it, and
    then *part* of the transaction. With transaction version 2 it is part of it at once: the brokers add it.
    """

    __slots__ = ("new_partitions", "partitions", "pending_offset_commits", "pending_partitions", "prepared", "started")

    def __init__(self) -> None:
        self.new_partitions: dict[TopicPartition, None] = {}
        """In the order of their first records."""
        self.pending_partitions: set[TopicPartition] = set()
        self.partitions: set[TopicPartition] = set()
        self.pending_offset_commits: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets that the group coordinator has not acknowledged yet."""
        self.started = False
        """Whether the coordinator knows the transaction: only then must it be ended."""
        self.prepared = PreparedTxnState()
        """Identifies the transaction once it is prepared (KIP-939)."""

    def add(self, partition: TopicPartition, *, v2: bool) -> bool:
        """Adds a partition; False if it was added before."""
        if v2:
            self.partitions.add(partition)
            self.started = True
            return True
        if partition in self.partitions or partition in self.new_partitions or partition in self.pending_partitions:
            return False
        self.new_partitions[partition] = None
        return True

    def take_new(self) -> list[TopicPartition]:
        """Makes new partitions pending; returns all that are pending, in order."""
        self.pending_partitions.update(self.new_partitions)
        self.new_partitions.clear()
        return sorted(self.pending_partitions)

    def partitions_added(self, partitions: set[TopicPartition], *, successful: bool) -> None:
        """Handles the response to the request to add these partitions."""
        self.pending_partitions -= partitions
        if successful:
            self.partitions |= partitions
            self.started = True

    def reset(self) -> None:
        """Clears the state after the end of the transaction."""
        self.started = False
        self.prepared = PreparedTxnState()
        self.new_partitions.clear()
        self.pending_partitions.clear()
        self.partitions.clear()
        # Offsets that were never acknowledged belong to the transaction that has ended. Kept, the next one would commit
        # them, and records that were read for the aborted one would be skipped.
        self.pending_offset_commits.clear()
