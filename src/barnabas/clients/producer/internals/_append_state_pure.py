"""What a record meets on its way into a batch, in Python: the twin of the classes of the same name in `_fast`.

They are plain state, with no more behaviour than a lock. They are compiled because one call of `FastSend` reads and
writes about twenty of these fields for every record, and an attribute that C finds at a fixed place costs a twentieth
of one that is looked up.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.records.builder import RecordBatchBuilder


class StickyPartitionInfo:
    """The partition that records stick to for now, and how many bytes it has got since. The object is the identity: a
    switch makes a new one, even if chance picks the same partition again."""

    __slots__ = ("partition", "produced_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced_bytes = 0
        """Guarded by the lock of the partition's queue: whoever appends there adds to it."""


class PartitionerCore:
    """The part of a `BuiltInPartitioner` that every record without a key looks at."""

    __slots__ = ("sticky",)

    def __init__(self) -> None:
        self.sticky: StickyPartitionInfo | None = None


class BatchCore:
    """The part of a `ProducerBatch` that is looked at for every record."""

    __slots__ = ("builder", "max_record_size", "produce_future", "ready_size")

    def __init__(self, builder: RecordBatchBuilder, produce_future: ProduceRequestResult) -> None:
        self.builder = builder
        self.produce_future = produce_future
        self.max_record_size = 0
        self.ready_size = builder.max_size
        """From this size on it waits for nothing but its turn. It may have room for more, and take it meanwhile."""


class PartitionQueue:
    """The batches of one partition. All but the last are closed; the last may take more records."""

    __slots__ = ("batches", "lock", "muted", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.Lock()
        """Guards the queue, the batches in it, and the bytes counted for a sticky choice of this partition. Inside it,
        the locks of the buffer pool, of the incomplete batches and of the transaction manager may be taken, but for
        nothing that waits; a thread never holds the locks of two queues."""
        self.batches: deque[Any] = deque()
        self.muted = False
        """Whether nothing may be drained because a batch is in flight. Belongs to the I/O thread."""


class TopicEntry:
    """A topic that has got records: its queues and its partitioner."""

    __slots__ = ("partition_count", "partitioner", "queues", "snapshot", "topic", "touched")

    def __init__(self, topic: str, partitioner: Any, snapshot: Any) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.queues: dict[int, PartitionQueue] = {}
        """Grows only, with the accumulator's lock held; a lookup needs none."""
        self.snapshot = snapshot
        """The metadata that `partition_count` comes from. Set together with it, after it."""
        self.partition_count = 0
        self.touched = False
        """Whether there was a record since metadata last asked: such a topic is not forgotten."""
