"""Chooses the partition of a record without a key."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

from barnabas._kernels import murmur2
from barnabas.records.builder import NO_BATCH, RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
    from barnabas.clients.producer.internals.partition_queue import PartitionQueue

partition_for_key = murmur2.partition_for_key

__all__ = ["BuiltInPartitioner", "PartitionLoadStats", "StickyPartitionInfo", "partition_for_key"]


class PartitionLoadStats:
    """A cumulative table for drawing partitions; those with short queues are drawn more often.

    Each partition weighs ``longest + 1 - its length``, and the table has the running sums. With queues of 0, 3 and 1
    batches the weights are 4, 1 and 3, the sums 4, 5 and 8, and a random number from 0 to 7 finds its partition by
    binary search: the idle one in 4 of 8 cases, the slowest in 1.
    """

    __slots__ = ("_total", "cumulative_frequency_table", "partition_ids")

    def __init__(self, queue_sizes: Sequence[int], partition_ids: Sequence[int]) -> None:
        most = max(queue_sizes) + 1
        self.cumulative_frequency_table = list(accumulate([most - size for size in queue_sizes]))
        self.partition_ids = partition_ids
        self._total = self.cumulative_frequency_table[-1]

    def draw(self, random: int) -> int:
        return self.partition_ids[bisect_right(self.cumulative_frequency_table, random % self._total)]


class StickyPartitionInfo:
    """The current sticky partition and the bytes appended to it.

    A switch makes a new object, even if the same partition is drawn again: the object is the identity of the choice.
    """

    __slots__ = ("partition", "produced_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced_bytes = 0
        """Guarded by the lock of the partition's queue. Bytes that ``open_batch`` still counts are not included."""


class BuiltInPartitioner:
    """The adaptive sticky partitioner (KIP-480, KIP-794), one for each topic.

    *Sticky*: one partition gets about ``batch.size`` bytes before the next one is chosen. That fills batches, where a
    new partition for each record would make many small ones. *Adaptive*: a partition whose broker is slow has a long
    queue and is drawn less often, which evens out the load instead of the number of records.

    Choice and append must be atomic, or two threads could fill a partition that a third has switched away from::

        info = partitioner.peek_current_partition_info(snapshot)
        with queue_of(info.partition).lock:
            if partitioner.is_partition_changed(info):
                start again
            batch = append(...)
            chosen = partitioner.update_partition_info(info, 0, snapshot, batch.is_ready)
            partitioner.stick_to(chosen or info, queue_of((chosen or info).partition))

    Until the batch reaches the limit that `stick_to` computes, no switch is possible, so records are appended to
    ``open_batch`` without these steps. It counts their bytes, which the next `update_partition_info` collects. When it
    has reached the limit, `TopicQueues.switch_partition` moves on.

    **When to switch**: after ``batch.size`` bytes, unless the last batch of the queue has room: switching then would
    leave a half full batch to linger. After twice ``batch.size`` it switches in any case.
    """

    __slots__ = (
        "_available",
        "_lock",
        "_rack",
        "_random",
        "_sticky_batch_size",
        "load_stats",
        "may_switch",
        "open_batch",
        "sticky",
        "topic",
    )

    def __init__(self, topic: str, sticky_batch_size: int, *, rack: str | None = None, random: Random) -> None:
        if sticky_batch_size < 1:
            raise ValueError(f"sticky_batch_size must be >= 1 but got {sticky_batch_size}")
        self.topic = topic
        self.sticky: StickyPartitionInfo | None = None
        self.open_batch: RecordBatchBuilder = NO_BATCH
        """The last batch of the sticky partition, while it takes records without a decision."""
        self.may_switch = False
        """Whether ``open_batch`` was ready in `stick_to`: then ``batch.size`` bytes are enough for a switch."""
        self._sticky_batch_size = sticky_batch_size
        self._rack = rack
        """The rack whose leaders are preferred; None: any."""
        self._available: tuple[MetadataSnapshot | None, Sequence[int]] = (None, ())
        """The partitions to draw from, and the metadata that they are of. Replaced as a whole: threads may race."""
        self._random = random
        self._lock = threading.Lock()
        """Guards the first choice, against two threads making it. A switch is guarded by the lock of the old
        partition's queue. Taken with no other lock held, and no other lock is taken inside it."""
        self.load_stats: PartitionLoadStats | None = None
        """The table that partitions are drawn from; None: uniformly from all that have a leader."""

    # -- choosing

    def _next_partition(self, snapshot: MetadataSnapshot) -> int:
        random = self._random.getrandbits(31)
        stats = self.load_stats
        if stats is not None:
            return stats.draw(random)
        known, available = self._available
        if known is not snapshot:
            available = self._find_available(snapshot)
            self._available = (snapshot, available)
        return available[random % len(available)] if available else random % (snapshot.partition_count(self.topic) or 1)

    def _find_available(self, snapshot: MetadataSnapshot) -> Sequence[int]:
        """Returns the partitions that have a leader, in the preferred rack if there are any."""
        available = snapshot.available_partitions(self.topic)
        if self._rack is None:
            return available
        return [
            partition
            for partition in available
            if (leader := snapshot.leader_of(self.topic, partition)) is not None and leader.rack == self._rack
        ] or available

    def peek_current_partition_info(self, snapshot: MetadataSnapshot) -> StickyPartitionInfo:
        """Returns the current choice; the first caller makes it."""
        info = self.sticky
        if info is None:
            with self._lock:
                info = self.sticky
                if info is None:
                    info = self.sticky = StickyPartitionInfo(self._next_partition(snapshot))
        return info

    def is_partition_changed(self, info: StickyPartitionInfo | None) -> bool:
        """Whether the choice has changed since ``info`` was read; false if ``info`` is None."""
        return info is not None and self.sticky is not info

    def update_partition_info(
        self,
        info: StickyPartitionInfo,
        appended_bytes: int,
        snapshot: MetadataSnapshot,
        enable_switch: bool = True,
    ) -> StickyPartitionInfo | None:
        """Counts the appended bytes, and switches if it is time; returns the new choice, or None if it did not.

        The partition's queue lock must be held."""
        open_batch = self.open_batch
        produced = info.produced_bytes + appended_bytes + open_batch.take_sticky_bytes()
        info.produced_bytes = produced
        if produced < (self._sticky_batch_size if enable_switch else 2 * self._sticky_batch_size):
            return None
        open_batch.sticky_limit = 0
        self.open_batch = NO_BATCH
        self.may_switch = False
        chosen = self.sticky = StickyPartitionInfo(self._next_partition(snapshot))
        return chosen

    def stick_to(self, info: StickyPartitionInfo, queue: PartitionQueue | None) -> None:
        """Appends directly to the open batch of a choice's queue, until a size at which a switch is possible.

        Call it after `update_partition_info`, with the lock of that partition's queue held. If it has switched, the
        lock of the new partition's queue is not held. That is safe: its batch only grows, so a limit computed from an
        older size is too low, and a batch that was closed meanwhile refuses all records.
        """
        if queue is None or self.sticky is not info:
            return
        batch = queue.open_batch  # before the flag: a new batch is set after it
        ready = queue.open_batch_is_ready
        if self.open_batch is not batch:
            self.open_batch.sticky_limit = 0
            self.open_batch = batch
        self.may_switch = ready
        most = self._sticky_batch_size if ready else 2 * self._sticky_batch_size
        batch.sticky_limit = batch.estimated_size + most - info.produced_bytes

    def forget(self, batch: RecordBatchBuilder) -> None:
        """Collects the bytes of a batch that has left its queue, whose lock is held."""
        if self.open_batch is batch:
            if self.sticky is not None:
                self.sticky.produced_bytes += batch.take_sticky_bytes()
            self.open_batch = NO_BATCH
            self.may_switch = False

    # -- load

    def update_partition_load_stats(
        self,
        queue_sizes: Sequence[int] | None,
        partition_ids: Sequence[int] = (),
        racks: Sequence[str | None] = (),
        *,
        excluded: int = 0,
    ) -> None:
        """Sets the queue lengths of the available partitions; None if they are not known for all of them.

        ``excluded`` counts the unavailable partitions, which are not in the lists. With one partition, or queues of
        equal length, a uniform choice is as good and cheaper.
        """
        if (
            not queue_sizes
            or len(queue_sizes) + excluded < 2
            or (not excluded and queue_sizes.count(queue_sizes[0]) == len(queue_sizes))
        ):
            self.load_stats = None
            return
        if self._rack is not None and self._rack in racks:
            local = [index for index, rack in enumerate(racks) if rack == self._rack]
            queue_sizes = [queue_sizes[index] for index in local]
            partition_ids = [partition_ids[index] for index in local]
        self.load_stats = PartitionLoadStats(queue_sizes, partition_ids)

    def __repr__(self) -> str:
        sticky = self.sticky
        where = "nothing yet" if sticky is None else f"partition {sticky.partition}, {sticky.produced_bytes} bytes"
        return f"BuiltInPartitioner({self.topic}, {where})"
