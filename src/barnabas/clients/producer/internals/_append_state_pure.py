"""What a record meets on its way into a batch, in Python: the twin of the classes of the same name in `_fast`.

They are plain state, with no more behaviour than a lock. They are compiled because one call of `FastSend` reads and
writes about twenty of these fields for every record, and an attribute that C finds at a fixed place costs a twentieth
of one that is looked up.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.records.builder import RecordBatchBuilder


_FOREVER: Final = sys.maxsize


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
    """The part of a `ProducerBatch` that is looked at for every record, and in every turn of the I/O thread."""

    __slots__ = (
        "attempts",
        "builder",
        "created_ms",
        "current_leader_epoch",
        "drained_ms",
        "max_record_size",
        "produce_future",
        "ready_size",
        "reserved_bytes",
    )

    def __init__(
        self, builder: RecordBatchBuilder, produce_future: ProduceRequestResult, created_ms: int, reserved_bytes: int
    ) -> None:
        self.builder = builder
        self.produce_future = produce_future
        self.max_record_size = 0
        self.ready_size = builder.max_size
        """From this size on it waits for nothing but its turn. It may have room for more, and take it meanwhile."""
        self.created_ms = created_ms
        self.drained_ms = 0
        self.reserved_bytes = reserved_bytes
        """What it has of the buffer pool; nothing, if it came out of a split."""
        self.attempts = 0
        self.current_leader_epoch: int | None = None


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


def scan_queues(
    rows: Sequence[tuple[PartitionQueue, Any, int, int | None]],
    ready_nodes: dict[int, Any],
    sizes: list[int],
    send_all: bool,
    weigh_by: int,
    now: int,
    postponed: Callable[[Any, bool, int], int],
) -> tuple[int, int, bool]:
    """What `RecordAccumulator.ready` does for the queues of a topic, each with its leader, that one's id, and epoch.

    Puts the nodes that something can be sent to into ``ready_nodes``, and how many batches wait for each partition that
    has a leader into ``sizes``. With ``weigh_by``, one that was expanded counts for as many batches of this size as
    there would be had it not been. ``postponed`` says for how long a first batch that is not just ready has to wait
    still; -1: it need not.

    Returns when the oldest batch was created, when to look again, and whether batches wait that nobody leads.
    """
    oldest_ms = delay_ms = _FOREVER
    leaderless = False
    for queue, leader, node_id, leader_epoch in rows:
        batches = queue.batches
        if not batches:
            if leader is not None:
                sizes.append(0)
            continue
        with queue.lock:
            if not batches:
                if leader is not None:
                    sizes.append(0)
                continue
            batch = batches[0]
            size = len(batches)
            full = size > 1 or batch.is_ready
            if weigh_by:
                size = max(size, sum([waiting.reserved_bytes for waiting in batches]) // weigh_by)
            if batch.current_leader_epoch != leader_epoch:
                batch.maybe_update_leader_epoch(leader_epoch)
        oldest_ms = min(oldest_ms, batch.created_ms)
        if leader is None:
            leaderless = True
            continue
        sizes.append(size)
        if node_id in ready_nodes or queue.muted:
            continue
        if not batch.attempts and (full or send_all):
            ready_nodes[node_id] = leader
            continue
        wait_ms = postponed(batch, full or send_all, now)
        if wait_ms < 0:
            ready_nodes[node_id] = leader
        else:
            delay_ms = min(delay_ms, wait_ms)
    return oldest_ms, delay_ms, leaderless


def take_batches(
    rows: Sequence[tuple[PartitionQueue, int | None] | None],
    index: int,
    max_size: int,
    now: int,
    prepare: Callable[[Any], bool],
    backs_off: Callable[[Any, int], bool],
) -> tuple[list[Any], int]:
    """What `RecordAccumulator.drain` does for a node: takes the first batch of each queue, beginning at ``index``, as
    long as they have at most ``max_size`` bytes together; one may have more.

    The rows are the partitions of the node, with their leader's epoch; None for those without a queue. ``prepare``
    makes a batch ready to be sent, or says that it has to wait, and ``backs_off`` whether one that has failed waits.

    Returns the batches, closed, and at which queue to start the next time.
    """
    ready: list[Any] = []
    size = 0
    count = len(rows)
    for step in range(count):
        if step:
            index = index + 1 if index + 1 < count else 0
        row = rows[index]
        if row is None:
            continue
        queue, epoch = row
        batches = queue.batches
        if not batches or queue.muted:
            continue
        with queue.lock:
            if not batches:
                continue
            batch = batches[0]
            if batch.current_leader_epoch != epoch:
                batch.maybe_update_leader_epoch(epoch)
            if batch.attempts and backs_off(batch, now):
                continue
            if ready and size + batch.estimated_size_in_bytes > max_size:
                break  # the next request begins with it
            if not prepare(batch):
                continue
            batches.popleft()
        # Outside the lock: compression and checksum take their time, and nobody else has the batch any more.
        size += len(batch.close())
        ready.append(batch)
        batch.drained_ms = max(batch.drained_ms, now)
    return ready, index


def load_table(queue_sizes: Sequence[int]) -> list[int]:
    """The running sums of what partitions weigh whose queues have these lengths: see `PartitionLoadStats`."""
    most = max(queue_sizes) + 1
    return list(accumulate([most - size for size in queue_sizes]))
