"""The queues of batches, one for each partition."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from barnabas.clients.common.metadata_snapshot import EMPTY_SNAPSHOT, MetadataSnapshot
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.builder import NO_BATCH, RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch


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


NO_QUEUE: Final = PartitionQueue(TopicPartition("", -1))
"""Placeholder for a partition that has no queue yet: its open batch rejects every record."""


class TopicQueues:
    """The queues and the partitioner of a topic that has records."""

    __slots__ = ("by_partition", "partitioner", "queues", "snapshot", "topic", "touched")

    def __init__(self, topic: str, partitioner: BuiltInPartitioner) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.queues: dict[int, PartitionQueue] = {}
        """Grows only, by `PartitionQueues.queue`; a lookup needs no lock."""
        self.snapshot: MetadataSnapshot = EMPTY_SNAPSHOT
        """The metadata that the number of partitions comes from. Set after `by_partition`."""
        self.by_partition: tuple[PartitionQueue, ...] = ()
        """One queue for each partition in `snapshot`; `NO_QUEUE` where no record was sent yet."""
        self.touched = False
        """Whether a batch was begun since the last metadata check: metadata keeps such a topic."""

    def switch_partition(self) -> bool:
        """Switches to the next sticky partition if it is time; returns whether another batch is open for records."""
        partitioner = self.partitioner
        sticky = partitioner.sticky
        if sticky is None or not partitioner.may_switch:
            return False
        queue = self.queues.get(sticky.partition)
        if queue is None:
            return False
        with queue.lock:
            if partitioner.sticky is sticky:
                chosen = partitioner.update_partition_info(sticky, 0, self.snapshot)
                if chosen is None:
                    return False
                partitioner.stick_to(chosen, self.queues.get(chosen.partition))
        return True


NO_TOPIC: Final = TopicQueues("", BuiltInPartitioner("", 1, random=Random(0)))  # noqa: S311 - it draws nothing
"""Placeholder for a topic that has no records yet: its open batches reject every record."""
NO_TOPIC.by_partition = (NO_QUEUE,)


class PartitionQueues:
    """All queues of a producer, by topic and partition. Topics and queues are added, and never removed."""

    __slots__ = ("_lock", "_make_partitioner", "layout", "topics")

    def __init__(self, make_partitioner: Callable[[str], BuiltInPartitioner]) -> None:
        self._make_partitioner = make_partitioner
        self._lock = threading.Lock()
        """Guards the addition of topics and queues. No other lock is taken while it is held."""
        self.topics: dict[str, TopicQueues] = {}
        """Grows while other threads read it: iterate over a copy of its values."""
        self.layout = 0
        """Incremented after a topic or a queue is added."""

    def use_snapshot(self, topic: str, snapshot: MetadataSnapshot, partition_count: int) -> None:
        """Caches the number of partitions of a topic until there is newer metadata."""
        entry = self.topic(topic)
        if entry.snapshot is not snapshot:
            with self._lock:
                entry.by_partition = tuple([entry.queues.get(index, NO_QUEUE) for index in range(partition_count)])
                entry.snapshot = snapshot

    def topic(self, topic: str) -> TopicQueues:
        """Returns the queues of a topic; adds the topic if there is none."""
        entry = self.topics.get(topic)
        if entry is None:
            with self._lock:
                entry = self.topics.get(topic)
                if entry is None:
                    entry = self.topics[topic] = TopicQueues(topic, self._make_partitioner(topic))
                    self.layout += 1
        return entry

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Returns the queue of a partition; adds it if there is none."""
        entry = self.topic(partition.topic)
        queue = entry.queues.get(partition.partition)
        if queue is None:
            with self._lock:
                queue = entry.queues.get(partition.partition)
                if queue is None:
                    queue = PartitionQueue(partition)
                    index, known = partition.partition, entry.by_partition
                    entry.queues = {**entry.queues, index: queue}
                    if index < len(known):
                        entry.by_partition = (*known[:index], queue, *known[index + 1 :])
                    self.layout += 1
        return queue

    def find(self, partition: TopicPartition) -> PartitionQueue | None:
        """Returns the queue of a partition, if there is one."""
        entry = self.topics.get(partition.topic)
        return None if entry is None else entry.queues.get(partition.partition)

    def __iter__(self) -> Iterator[PartitionQueue]:
        for entry in list(self.topics.values()):
            yield from entry.queues.values()

    def forget_open_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Drops references to a batch that has left its queue, whose lock is held.

        A reference would keep memory that the pool counts as free when the batch is done."""
        builder = batch.builder
        if queue.open_batch is builder:
            queue.open_batch = NO_BATCH
        self.topics[queue.topic_partition.topic].partitioner.forget(builder)
