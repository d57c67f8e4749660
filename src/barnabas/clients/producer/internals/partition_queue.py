"""The queues of a topic's batches, one for each partition."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from barnabas._kernels import murmur2
from barnabas.clients.common.metadata_snapshot import EMPTY_SNAPSHOT, MetadataSnapshot
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner, StickyPartitionInfo
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.builder import NO_BATCH, RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch

partition_for_key = murmur2.partition_for_key


class PartitionQueue:
    """The batches of one partition. All but the last are closed; the last may take more records."""

    __slots__ = ("batches", "lock", "muted", "open_batch", "open_batch_is_ready", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.Lock()
        """Guards the queue, its batches, and the bytes counted for a sticky choice of this partition. Inside it, the
        locks of the buffer pool, the incomplete batches and the transaction manager may be taken, but never to wait; a
        thread never holds the locks of two queues."""
        self.batches: deque[ProducerBatch] = deque()
        self.open_batch: RecordBatchBuilder = NO_BATCH
        """The batch that was added last, until it leaves the queue. It refuses records once it is closed."""
        self.open_batch_is_ready = False
        self.muted = False
        """Whether draining is blocked because a batch is in flight. Owned by the I/O thread."""


class TopicQueues:
    """The queues and the partitioner of a topic that has records."""

    __slots__ = ("partition_count", "partitioner", "queues", "snapshot", "topic", "touched")

    def __init__(self, topic: str, partitioner: BuiltInPartitioner) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.queues: dict[int, PartitionQueue] = {}
        """Grows only, with the accumulator's lock held; a lookup needs none."""
        self.snapshot: MetadataSnapshot = EMPTY_SNAPSHOT
        """The metadata that `partition_count` comes from. Set together with it, after it."""
        self.partition_count = 0
        self.touched = False
        """Whether a batch was begun since the last metadata check: metadata keeps such a topic."""

    def open_batch(self, partition: int | None, key: Any) -> RecordBatchBuilder:
        """Returns the batch for records with this partition, or else this key; `NO_BATCH` if there is none yet."""
        if partition is None:
            if type(key) is not bytes:
                return NO_BATCH
            partition = partition_for_key(key, self.partition_count)
        queue = self.queues.get(partition)
        return NO_BATCH if queue is None or partition >= self.partition_count else queue.open_batch

    def switch_partition(self) -> bool:
        """Switches to the next sticky partition if it is time; returns whether another batch is open for records."""
        partitioner = self.partitioner
        sticky = partitioner.sticky
        queue = None if sticky is None else self.queues.get(sticky.partition)
        if sticky is None or queue is None:
            return False
        with queue.lock:
            if partitioner.sticky is sticky:
                partitioner.update_partition_info(sticky, 0, self.snapshot, partitioner.may_switch)
                self.stick_to_open_batch(sticky)
        return partitioner.sticky is not sticky

    def stick_to_open_batch(self, before: StickyPartitionInfo) -> None:
        """Appends directly to the open batch of the sticky partition, if that is no longer ``before``.

        The lock of its queue is not held. That is safe: its batch only grows, so a limit computed from an older size is
        too low, and a batch that was closed meanwhile refuses all records.
        """
        current = self.partitioner.sticky
        if current is not None and current is not before:
            queue = self.queues.get(current.partition)
            if queue is not None:
                self.partitioner.stick_to(current, queue.open_batch, queue.open_batch_is_ready)
