"""Queues batches per partition: any thread appends records, the I/O thread drains batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.errors import BufferExhaustedError, ProducerClosedError
from barnabas.clients.producer.internals.buffer_pool import BufferPool
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner, StickyPartitionInfo
from barnabas.clients.producer.internals.compression_ratio_estimator import CompressionRatioEstimator
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.incomplete_batches import IncompleteBatches
from barnabas.clients.producer.internals.partition_queue import PartitionQueue, TopicQueues
from barnabas.clients.producer.internals.producer_batch import Callback, ProducerBatch
from barnabas.clients.producer.internals.spare_buffers import SpareBuffers
from barnabas.clients.producer.record_metadata import UNKNOWN_PARTITION
from barnabas.common.clock import SYSTEM_CLOCK, Clock, SystemClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Metrics
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.records.batch import HEADER_SIZE, MAX_RECORD_OVERHEAD, CompressionType, decrement_sequence
from barnabas.records.builder import NO_BATCH, RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager

log = logging.getLogger(__name__)

METRIC_GROUP: Final = "producer-metrics"
_ACCEPTED: Final = 5
"""How many leading fields of a `SerializedRecord` are the first arguments of ``accept``."""
NO_WAIT: Final = -1
"""Time to block for callers that never wait. A refused record is not counted as dropped."""
_YOUNG: Final = 10
"""A batch older than ``delivery.timeout.ms`` / 10 is not expanded any more: all of its records fail with the first one,
so late records would have hardly any time."""


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """The accumulator's settings."""

    batch_size: int = 16_384
    """The size from which a batch is ready to be sent."""
    batch_max_size: int | None = None
    """The size to which a ready batch may grow while it waits to be drained; None: it does not grow."""
    max_request_size: int = 1_048_576
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    compression: CompressionType = CompressionType.NONE
    compression_level: int | None = None
    adaptive_partitioning: bool = True
    partition_availability_timeout_ms: int = 0
    rack: str | None = None
    """The rack to prefer; None: not rack aware."""


class SerializedRecord(NamedTuple):
    """A serialized record, and its callback."""

    timestamp_ms: int | None
    """None: the time of the append."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    callback: Callback | None
    size: int
    """An upper bound of the size of a batch with just this record."""


class RecordAppendResult(NamedTuple):
    """The result of an append."""

    future: FutureRecordMetadata | None
    partition: int
    wake: bool
    """Whether the append gave the I/O thread new work."""
    new_batch_created: bool
    abort_for_new_batch: bool = False


class ReadyCheckResult(NamedTuple):
    """The nodes that have batches ready to be sent."""

    ready_nodes: list[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


_PlanRow: TypeAlias = "tuple[PartitionQueue, Node | None, int, int | None]"
"""A queue, its partition's leader, the leader's id, and the leader epoch."""
_DrainRow: TypeAlias = "tuple[PartitionQueue, int | None] | None"
"""A partition's queue, if it has one, and its leader epoch."""


class _ReadyPlan(NamedTuple):
    """The queues of a topic that `RecordAccumulator.ready` scans. Valid until the metadata changes or a queue is
    added."""

    snapshot: MetadataSnapshot
    queues: dict[int, PartitionQueue]
    rows: list[_PlanRow]
    adaptive: bool
    """Whether the load of the partitions is compared. That requires a queue for each of them."""
    weigh_by: int
    """The batch size that counts as one batch when queues are weighed; 0: each batch counts as one."""
    partitions: list[int]
    """The partitions with a leader, in the order of the rows; `leaders` and `racks` are parallel to it."""
    leaders: list[Node]
    racks: list[str | None]


@dataclass(slots=True)
class NodeLatencyStats:
    """When a node last had batches ready, and when it last could take them."""

    ready_time_ms: int
    drain_time_ms: int


@dataclass(slots=True)
class _NodeState:
    drain_index: int = 0
    snapshot: MetadataSnapshot | None = None
    """The metadata and (``layout``) the set of queues from which ``drain_rows`` was built."""
    layout: int = -1
    drain_rows: list[_DrainRow] = field(default_factory=list)
    """All partitions that the node leads."""
    latency: NodeLatencyStats | None = field(default=None)


class RecordAccumulator:
    """Holds records between the threads that send and the I/O thread.

    **Append** tries the last batch of the partition's queue. If the record does not fit, memory for another batch is
    taken from the pool. That may block, so the queue's lock is released first. The first thread to return creates the
    new batch; the others append to it and return their memory.

    **Expand** (KIP-782) comes between the two. The cost of a batch, here and in the broker, hardly depends on its size,
    and a ready batch still waits if the I/O thread is busy or five requests are in flight. While it waits, it takes
    more records, up to ``batch.max.size``, and its memory is doubled as needed. So batches are small under low load and
    large under high load, and nothing waits longer than before. Memory is only taken if it is free at once; else the
    batch is closed, and the record begins another one.

    **Ready**: a node is ready if it leads a partition whose first batch is ready, has lingered for ``linger.ms`` (or,
    after a failure, has waited for its backoff), or if memory has run out, the producer is being flushed or closed, or
    a transaction is being completed. Partitions that are muted or backing off do not count.

    **Drain** takes at most one batch of each partition and starts at another partition each time, so that the first
    partitions do not starve the others. Drain assigns the sequence number of an idempotent batch, because only then is
    the batch certain to be the next one.

    Closing loses no accepted record: an append checks `closed` while it holds the queue's lock, and
    `abort_incomplete_batches` takes each of these locks once after `close`.
    """

    def __init__(
        self,
        config: AccumulatorConfig,
        pool: BufferPool,
        *,
        transaction_manager: TransactionManager | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self.pool = pool
        self.estimator = CompressionRatioEstimator()
        self._transaction_manager = transaction_manager
        self._prepare: Callable[[ProducerBatch], bool] = (
            _close_for_appends if transaction_manager is None else transaction_manager.prepare_to_send
        )
        self._clock = clock
        self._now = None if isinstance(clock, SystemClock) else clock.milliseconds
        self._record_limit = min(config.max_request_size, pool.total_memory) - MAX_RECORD_OVERHEAD
        """A batch below this size has no record that is too large for a request or for the pool."""
        self._random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        self._retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms,
            RETRY_BACKOFF_EXP_BASE,
            config.retry_backoff_max_ms,
            RETRY_BACKOFF_JITTER,
            self._random,
        )
        self._lock = threading.Lock()
        """Guards the addition of topics and queues, and the count of flushes. No other lock is taken while it is
        held."""
        self.topics: dict[str, TopicQueues] = {}
        """Grows while other threads read it: iterate over a copy of its values."""
        self._layout = 0
        """Incremented after a topic or a queue is added."""
        self.incomplete = IncompleteBatches()
        self.spare_buffers = SpareBuffers(pool.total_memory // 2)
        """Buffers for the batches of tables."""
        self._batch_max_size = max(config.batch_max_size or 0, config.batch_size)
        self._not_expanded: set[str] = set()
        """Topics for which a broker rejected a batch as too large. Only the I/O thread adds to it."""
        self.last_errors: dict[TopicPartition, str] = {}
        """The last send error of each partition, removed by a success; the latest error is last. Written by the I/O
        thread; other threads read it for the messages of timeouts."""
        self.leaderless_topics: set[str] = set()
        """Topics with batches for partitions that have no leader. Replaced by the I/O thread as a whole."""
        self.closed = False
        self._flushes_in_progress = 0
        self._nodes: dict[int, _NodeState] = {}
        """Owned by the I/O thread, as are the next two fields."""
        self._plans: dict[str, _ReadyPlan] = {}
        """By topic."""
        self.next_expiry_time_ms = FOREVER
        """When the first waiting batch expires, as of the last `ready`."""
        if metrics is not None:
            self._register(metrics)

    def _register(self, metrics: Metrics) -> None:
        pool = self.pool
        for name, description, gauge in (
            ("waiting-threads", "How many threads wait for buffer memory.", lambda *_: float(pool.queued)),
            ("buffer-total-bytes", "How much buffer memory there is.", lambda *_: float(pool.total_memory)),
            ("buffer-available-bytes", "How much of it is not in use.", lambda *_: float(pool.available_memory())),
        ):
            metrics.add_metric(metrics.metric_name(name, METRIC_GROUP, description=description), gauge)

    # -- append

    def entry(self, topic: str) -> TopicQueues:
        entry = self.topics.get(topic)
        if entry is None:
            with self._lock:
                entry = self.topics.get(topic)
                if entry is None:
                    config = self.config
                    chance = Random(self._random.getrandbits(64))  # noqa: S311 - spreads load, keeps no secret
                    partitioner = BuiltInPartitioner(topic, config.batch_size, rack=config.rack, random=chance)
                    entry = TopicQueues(topic, partitioner)
                    self.topics[topic] = entry
                    self._layout += 1
        return entry

    def _queue(self, entry: TopicQueues, partition: int) -> PartitionQueue:
        queue = entry.queues.get(partition)
        if queue is None:
            with self._lock:
                queue = entry.queues.get(partition)
                if queue is None:
                    queue = PartitionQueue(TopicPartition(entry.topic, partition))
                    entry.queues = {**entry.queues, partition: queue}
                    self._layout += 1
        return queue

    def append(
        self,
        topic: str,
        partition: int,
        record: SerializedRecord,
        snapshot: MetadataSnapshot,
        max_time_to_block_ms: float,
        *,
        abort_on_new_batch: bool = False,
    ) -> RecordAppendResult:
        """Adds a record to the last batch or to a new one.

        If ``partition`` is `UNKNOWN_PARTITION`, the built-in partitioner chooses."""
        entry = self.topics.get(topic) or self.entry(topic)
        entry.touched = True
        partitioner = entry.partitioner
        wanted = max(self.config.batch_size, record.size)
        reserved = 0
        try:
            while True:
                sticky: StickyPartitionInfo | None = None
                effective = partition
                if partition == UNKNOWN_PARTITION:
                    sticky = partitioner.sticky or partitioner.peek_current_partition_info(snapshot)
                    effective = sticky.partition
                queue = entry.queues.get(effective) or self._queue(entry, effective)
                with queue.lock:
                    if self.closed:
                        raise ProducerClosedError("Producer closed while send in progress")
                    if sticky is not None and self._partition_changed(partitioner, sticky, queue, snapshot):
                        continue
                    result = self._append_to_last(queue, entry, sticky, record, snapshot)
                    if result is None:
                        if sticky is not None and self._partition_changed(partitioner, sticky, queue, snapshot):
                            continue
                        if reserved or (not abort_on_new_batch and self.pool.try_allocate(wanted)):
                            reserved = 0
                            result = self._append_to_new(queue, entry, sticky, record, snapshot)
                    if result is not None:
                        return result
                if abort_on_new_batch:
                    return RecordAppendResult(None, effective, False, False, True)
                if max_time_to_block_ms == NO_WAIT:
                    raise BufferExhaustedError("No memory for another batch")
                try:
                    reserved = self.pool.allocate(wanted, max_time_to_block_ms)
                except BufferExhaustedError as error:
                    raise BufferExhaustedError(f"{error}{self._why_memory_is_not_freed()}") from None
        finally:
            if reserved:
                self.pool.deallocate(reserved)

    def _append_to_last(
        self,
        queue: PartitionQueue,
        entry: TopicQueues,
        sticky: StickyPartitionInfo | None,
        record: SerializedRecord,
        snapshot: MetadataSnapshot,
    ) -> RecordAppendResult | None:
        """Appends to the last batch of a queue, whose lock is held. Closes the batch if the record does not fit."""
        batches = queue.batches
        if not batches:
            return None
        batch = batches[-1]
        before = batch.builder.estimated_size
        accept = batch.builder.accept
        future = accept(*record[:_ACCEPTED], sticky is not None, True)
        if future is None and self.expand(batch, record.size):
            future = accept(*record[:_ACCEPTED], sticky is not None, True)
        if future is None:
            batch.close_for_record_appends()
            return None
        ready = batch.is_ready
        self._open(queue, entry, sticky, snapshot, ready)
        # A batch that was ready before gives the I/O thread no new work.
        wake = ready and before < batch.ready_size and len(batches) == 1
        return RecordAppendResult(future, queue.topic_partition.partition, wake, False)

    def _append_to_new(
        self,
        queue: PartitionQueue,
        entry: TopicQueues,
        sticky: StickyPartitionInfo | None,
        record: SerializedRecord,
        snapshot: MetadataSnapshot,
    ) -> RecordAppendResult:
        """Appends to a new batch, whose memory is reserved, at the end of a queue, whose lock is held."""
        batch = self.add_batch(queue, record.size)
        future = batch.builder.accept(*record[:_ACCEPTED], sticky is not None, True)
        assert future is not None, "the first record always fits"
        self._open(queue, entry, sticky, snapshot, batch.is_ready)
        # A third batch gives the I/O thread no new work: with two, the first one was ready.
        return RecordAppendResult(future, queue.topic_partition.partition, len(queue.batches) <= 2, True)

    def _open(
        self,
        queue: PartitionQueue,
        entry: TopicQueues,
        sticky: StickyPartitionInfo | None,
        snapshot: MetadataSnapshot,
        ready: bool,
    ) -> None:
        """Counts the bytes of a sticky choice, and sets the size up to which ``builder.accept`` needs no lock.

        At that size the batch becomes ready and the I/O thread is woken up. Before, the sticky partition may change.
        """
        batch = queue.batches[-1]
        builder = batch.builder
        queue.open_batch_is_ready = ready
        builder.limit = self._record_limit if ready else min(self._record_limit, batch.ready_size)
        if sticky is not None:
            partitioner = entry.partitioner
            partitioner.update_partition_info(sticky, builder.take_sticky_bytes(), snapshot, ready)
            partitioner.stick_to(sticky, builder, ready)
            entry.stick_to_open_batch(sticky)

    def note_error(self, partition: TopicPartition, error: str) -> None:
        """Records why a batch is sent again."""
        self.last_errors.pop(partition, None)
        self.last_errors[partition] = error

    def why_unsent(self, partition: TopicPartition) -> str | None:
        """Returns why the batches of a partition are not sent, if known."""
        error = self.last_errors.get(partition)
        if error is None and partition.topic in self.leaderless_topics:
            return "no leader is known"
        return error

    def _why_memory_is_not_freed(self) -> str:
        errors = list(self.last_errors.copy().items())
        if errors:
            partition, error = errors[-1]
            others = f" (and {len(errors) - 1} more partitions)" if len(errors) > 1 else ""
            return f". Batches wait to be sent again: the last error of {partition} was {error}{others}"
        topics = sorted(self.leaderless_topics)
        if topics:
            return f". Batches wait for a leader of partitions of {', '.join(topics[:3])}"
        return ""

    def open_queue(self, topic: str, partition: int) -> PartitionQueue:
        """Returns the queue of a partition; creates it if there is none."""
        return self._queue(self.entry(topic), partition)

    def append_batch(self, batch: ProducerBatch) -> bool:
        """Adds a finished batch to the end of its queue; returns whether the I/O thread has new work.

        The batch's memory belongs to the caller until this returns."""
        topic, partition = batch.topic_partition
        entry = self.topics.get(topic) or self.entry(topic)
        entry.touched = True
        queue = entry.queues.get(partition) or self._queue(entry, partition)
        with queue.lock:
            if self.closed:
                raise ProducerClosedError("Producer closed while send in progress")
            batches = queue.batches
            if batches:
                batches[-1].close_for_record_appends()
            batches.append(batch)
            self.incomplete.add(batch)
            return len(batches) <= 2

    def _partition_changed(
        self,
        partitioner: BuiltInPartitioner,
        sticky: StickyPartitionInfo,
        queue: PartitionQueue,
        snapshot: MetadataSnapshot,
    ) -> bool:
        if partitioner.sticky is not sticky:
            return True
        # The switch was put off because the last batch was not ready. Now it is ready or gone.
        if not queue.batches or queue.batches[-1].is_ready:
            partitioner.update_partition_info(sticky, 0, snapshot, enable_switch=True)
            return partitioner.sticky is not sticky
        return False

    def expand(self, batch: ProducerBatch, size: int) -> bool:
        """Makes room in the last batch of a queue, whose lock is held, for a record of at most ``size`` bytes with its
        batch header; false if the batch is to be closed instead."""
        builder = batch.builder
        # Later records may compress less well. Even uncompressed, they must fit into a request.
        limit = min(self._batch_max_size, int(self.config.max_request_size * builder.size_factor))
        room = builder.max_size
        if limit <= room or not builder.is_open or batch.topic_partition.topic in self._not_expanded:
            return False
        needed = builder.estimated_size + size - HEADER_SIZE
        if needed > limit:
            return False
        age_ms = self._clock.hi_res_milliseconds() - batch.created_ms
        if age_ms * _YOUNG >= self.config.delivery_timeout_ms:
            return False
        wanted = min(max(2 * room, needed), limit)
        if not self.pool.try_allocate(wanted - room):
            return False
        batch.reserved_bytes += wanted - room
        builder.max_size = wanted
        return True

    def add_batch(self, queue: PartitionQueue, record_size: int) -> ProducerBatch:
        """Adds a batch for a record of this size to the end of a queue, whose lock is held. Its memory is reserved."""
        config = self.config
        size = max(config.batch_size, record_size)
        builder = RecordBatchBuilder(
            compression=config.compression,
            level=config.compression_level,
            max_size=size,
        )
        batch = ProducerBatch(
            queue.topic_partition,
            builder,
            self._clock.hi_res_milliseconds(),
            self.estimator,
            reserved_bytes=size,
            now=self._now,
        )
        queue.batches.append(batch)
        queue.open_batch_is_ready = False
        queue.open_batch = builder
        self.incomplete.add(batch)
        return batch

    # -- ready

    @property
    def flush_in_progress(self) -> bool:
        return self._flushes_in_progress > 0

    def ready(self, snapshot: MetadataSnapshot, now: int) -> ReadyCheckResult:
        """Returns the nodes that have batches ready, and when to check again if there are none."""
        ready_nodes: dict[int, Node] = {}
        unknown_leader_topics: set[str] = set()
        manager = self._transaction_manager
        config = self.config
        send_all = (
            self._flushes_in_progress > 0
            or self.closed
            or self.pool.queued > 0
            or (manager is not None and manager.is_transactional and manager.machine.is_completing)
        )
        may_be_stuck = config.partition_availability_timeout_ms > 0
        delay_ms = FOREVER
        earliest_ms = FOREVER
        for entry in list(self.topics.values()):
            topic = entry.topic
            plan = self._plans.get(topic)
            if plan is None or plan.snapshot is not snapshot or plan.queues is not entry.queues:
                plan = self._plans[topic] = self._make_plan(entry, snapshot)
            sizes: list[int] = []
            oldest_ms, wait_ms, leaderless = self._scan_queues(plan, ready_nodes, sizes, send_all, now)
            earliest_ms = min(earliest_ms, oldest_ms)
            delay_ms = min(delay_ms, wait_ms)
            if leaderless:
                unknown_leader_topics.add(topic)
            if not plan.adaptive:
                entry.partitioner.update_partition_load_stats(None)
            elif may_be_stuck:
                kept = [index for index, leader in enumerate(plan.leaders) if not self._is_stuck(leader)]
                entry.partitioner.update_partition_load_stats(
                    [sizes[index] for index in kept],
                    [plan.partitions[index] for index in kept],
                    [plan.racks[index] for index in kept],
                    excluded=len(sizes) - len(kept),
                )
            else:
                entry.partitioner.update_partition_load_stats(sizes, plan.partitions, plan.racks)
        self.next_expiry_time_ms = FOREVER if earliest_ms == FOREVER else earliest_ms + config.delivery_timeout_ms
        return ReadyCheckResult(list(ready_nodes.values()), delay_ms, unknown_leader_topics)

    def _scan_queues(
        self, plan: _ReadyPlan, ready_nodes: dict[int, Node], sizes: list[int], send_all: bool, now: int
    ) -> tuple[int, int, bool]:
        """Adds the nodes that lead a partition with a ready batch to ``ready_nodes``, and the number of batches of each
        partition that has a leader to ``sizes``.

        Returns the time at which the oldest batch was created, the delay until the next check, and whether a partition
        with batches has no leader.
        """
        oldest_ms = delay_ms = FOREVER
        leaderless = False
        for queue, leader, node_id, leader_epoch in plan.rows:
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
                if plan.weigh_by:
                    # An expanded batch counts as the number of normal batches that it replaces.
                    size = max(size, sum([waiting.reserved_bytes for waiting in batches]) // plan.weigh_by)
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
            wait_ms = self._postponed(batch, full or send_all, now)
            if wait_ms < 0:
                ready_nodes[node_id] = leader
            elif wait_ms < delay_ms:
                delay_ms = wait_ms
        return oldest_ms, delay_ms, leaderless

    def _make_plan(self, entry: TopicQueues, snapshot: MetadataSnapshot) -> _ReadyPlan:
        queues = entry.queues
        rows: list[_PlanRow] = []
        for queue in queues.values():
            info = snapshot.partition(queue.topic_partition)
            leader, epoch = (None, None) if info is None else (info.leader, info.leader_epoch)
            rows.append((queue, leader, -1 if leader is None else leader.id, epoch))
        led = [(queue.topic_partition.partition, leader) for queue, leader, _, _ in rows if leader is not None]
        batch_size = self.config.batch_size
        adaptive = self.config.adaptive_partitioning and len(queues) >= (snapshot.partition_count(entry.topic) or 0)
        weighs = adaptive and self._batch_max_size > batch_size and entry.topic not in self._not_expanded
        return _ReadyPlan(
            snapshot,
            queues,
            rows,
            adaptive,
            batch_size if weighs else 0,
            [partition for partition, _ in led],
            [leader for _, leader in led],
            [leader.rack for _, leader in led],
        )

    def _postponed(self, batch: ProducerBatch, due: bool, now: int) -> int:
        """Returns how long the first batch of a queue must still wait; -1: not at all. ``due``: it does not linger."""
        waited_ms = batch.waited_time_ms(now)
        backing_off = self._should_back_off(batch, waited_ms)
        wait_ms = batch.retry_backoff_ms if backing_off else self.config.linger_ms
        if not backing_off and (due or waited_ms >= wait_ms):
            return -1
        return max(wait_ms - waited_ms, 0)

    def retry_backoff_ms(self, attempts: int) -> int:
        return self._retry_backoff.backoff(attempts)

    def _should_back_off(self, batch: ProducerBatch, waited_ms: int) -> bool:
        """Whether a failed batch waits before its retry. It does not if its partition has a new leader."""
        return (
            batch.attempts > 0
            and not batch.has_leader_changed_for_the_ongoing_retry
            and waited_ms < batch.retry_backoff_ms
        )

    def _is_stuck(self, leader: Node) -> bool:
        """Whether a node has had ready batches for too long without taking them."""
        limit_ms = self.config.partition_availability_timeout_ms
        if limit_ms <= 0:
            return False
        state = self._nodes.get(leader.id)
        stats = None if state is None else state.latency
        return stats is not None and stats.ready_time_ms - stats.drain_time_ms > limit_ms

    def update_node_latency_stats(self, node_id: int, now: int, can_drain: bool) -> None:
        """Records that a node had batches ready, and whether it could take them (``can_drain``)."""
        if self.config.partition_availability_timeout_ms <= 0:
            return
        state = self._nodes.setdefault(node_id, _NodeState())
        if state.latency is None:
            state.latency = NodeLatencyStats(now, now)
        if can_drain:
            state.latency.drain_time_ms = now
        state.latency.ready_time_ms = now

    # -- drain

    def drain(
        self, snapshot: MetadataSnapshot, nodes: Collection[Node], max_size: int, now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Takes the batches that can be sent to these nodes, at most ``max_size`` bytes each; returns them by node
        id."""
        drained: dict[int, list[ProducerBatch]] = {}
        for node in nodes:
            drained[node.id] = self._drain_batches_for_one_node(snapshot, node, max_size, now)
        return drained

    def _drain_batches_for_one_node(
        self, snapshot: MetadataSnapshot, node: Node, max_size: int, now: int
    ) -> list[ProducerBatch]:
        state = self._nodes.get(node.id)
        if state is None:
            state = self._nodes[node.id] = _NodeState()
        if state.snapshot is not snapshot or state.layout != self._layout:
            self._plan_drain(state, snapshot, node)
        rows = state.drain_rows
        if not rows:
            return []
        ready: list[ProducerBatch] = []
        size = 0
        count = len(rows)
        index = state.drain_index % count
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
                if batch.attempts and self._should_back_off(batch, batch.waited_time_ms(now)):
                    continue
                if ready and size + batch.estimated_size_in_bytes > max_size:
                    break  # it begins the next request
                if not self._prepare(batch):
                    continue
                batches.popleft()
                self._forget_open_batch(queue, batch)
            # Outside the lock: compression and checksum are slow, and no other thread has the batch.
            size += len(batch.close())
            ready.append(batch)
            batch.drained_ms = max(batch.drained_ms, now)
        state.drain_index = index
        return ready

    def _forget_open_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Drops references to a batch that has left its queue, whose lock is held.

        A reference would keep memory that the pool counts as free when the batch is done."""
        builder = batch.builder
        if queue.open_batch is builder:
            queue.open_batch = NO_BATCH
        self.topics[queue.topic_partition.topic].partitioner.forget(builder)

    def _plan_drain(self, state: _NodeState, snapshot: MetadataSnapshot, node: Node) -> None:
        """Finds the queues of a node's partitions. Valid until the metadata changes or a queue is added."""
        layout = self._layout  # read before the queues: a queue added later is found the next time
        rows: list[_DrainRow] = []
        for where in snapshot.partitions_for_node(node.id):
            queue = self.queue(where)
            rows.append(None if queue is None else (queue, snapshot.leader_epoch_for(where)))
        state.snapshot, state.layout, state.drain_rows = snapshot, layout, rows

    # -- re-enqueue

    def reenqueue(self, batch: ProducerBatch, now: int) -> None:
        """Puts a failed batch at the front of its queue, or in sequence order if the producer is idempotent."""
        batch.reenqueued(now, self._retry_backoff.backoff(batch.attempts))
        self._give_back_shared(batch)
        queue = self._queue(self.entry(batch.topic_partition.topic), batch.topic_partition.partition)
        with queue.lock:
            self._insert(queue, batch)

    def take(self, batch: ProducerBatch) -> bool:
        """Removes a batch from its queue; returns false if it is not there."""
        queue = self._queue(self.entry(batch.topic_partition.topic), batch.topic_partition.partition)
        with queue.lock:
            if batch not in queue.batches:
                return False
            queue.batches.remove(batch)
            return True

    def _insert(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self._transaction_manager is None:
            queue.batches.appendleft(batch)
        else:
            self._insert_in_sequence_order(queue.batches, batch)

    def _insert_in_sequence_order(self, batches: deque[ProducerBatch], batch: ProducerBatch) -> None:
        """Inserts a batch in sequence order. Batches in flight can fail in any order."""
        manager = self._transaction_manager
        assert manager is not None
        if not batch.has_sequence:
            raise RuntimeError(f"{batch!r} is sent again and has no sequence, although idempotence is on")
        if not manager.partitions.has_in_flight_batches(batch.topic_partition):
            raise RuntimeError(f"{batch!r} is sent again and is not tracked as in flight")
        position = 0
        for other in batches:
            # Sequences wrap to 0 after 2^31, so compare distances.
            if not other.has_sequence or decrement_sequence(other.base_sequence, batch.base_sequence) < 1 << 30:
                break
            position += 1
        batches.insert(position, batch)

    def split_and_reenqueue(self, big: ProducerBatch) -> int:
        """Replaces a batch that was too large by smaller ones; returns their number."""
        # The estimated compression ratio was too optimistic.
        self.estimator.set_estimation(
            big.topic_partition.topic, self.config.compression, max(1.0, big.compression_ratio)
        )
        # The topic's limit, which clients cannot see, is lower than usual: do not expand its batches again.
        self._not_expanded.add(big.topic_partition.topic)
        self._plans.pop(big.topic_partition.topic, None)
        size = self.config.batch_size
        if big.is_split_batch:
            # It was already split to this size, and the broker's limit is still lower.
            size = max(big.builder.max_record_size, big.estimated_size_in_bytes // 2)
        batches = big.split(size)
        queue = self._queue(self.entry(big.topic_partition.topic), big.topic_partition.partition)
        for batch in reversed(batches):
            self.incomplete.add(batch)
            with queue.lock:
                if self._transaction_manager is not None:
                    batch.ordinal = big.ordinal
                    self._transaction_manager.partitions.add_in_flight_batch(batch)
                self._insert(queue, batch)
        return len(batches)

    # -- expiry

    def expired_batches(self, now: int) -> list[ProducerBatch]:
        """Removes and returns the batches that have waited longer than ``delivery.timeout.ms``."""
        expired: list[ProducerBatch] = []
        if now < self.next_expiry_time_ms:
            return expired
        timeout_ms = self.config.delivery_timeout_ms
        for queue in self._queues():
            with queue.lock:
                while queue.batches and queue.batches[0].has_reached_delivery_timeout(timeout_ms, now):
                    batch = queue.batches.popleft()
                    batch.close_for_record_appends()
                    self._forget_open_batch(queue, batch)
                    expired.append(batch)
        return expired

    def _queues(self) -> Iterator[PartitionQueue]:
        for entry in list(self.topics.values()):
            yield from entry.queues.values()

    # -- memory

    def deallocate(self, batch: ProducerBatch) -> None:
        """Forgets a completed batch and frees its memory."""
        self.complete_batch(batch)
        self.release(batch)

    def deallocate_all(self, batches: Sequence[ProducerBatch]) -> None:
        """Deallocates several acknowledged batches, taking each lock once.

        Threads that wait for memory are woken once, when all of it is free."""
        self.incomplete.remove_all(batches)
        sizes: list[int] = []
        for batch in batches:
            if batch.reserved_bytes:
                sizes.append(batch.reserved_bytes)
                batch.reserved_bytes = 0
            buffer = batch.take_buffer()
            if buffer is not None:
                self.spare_buffers.give(buffer)
        if sizes:
            self.pool.deallocate_all(sizes)

    def complete_batch(self, batch: ProducerBatch) -> None:
        """Forgets a completed batch but keeps its memory reserved, because the network may still read its bytes."""
        self.incomplete.remove(batch)

    def release(self, batch: ProducerBatch) -> None:
        """Frees the memory of a batch, if that has not been done."""
        self._give_back_shared(batch)
        reserved, batch.reserved_bytes = batch.reserved_bytes, 0
        if reserved:
            self.pool.deallocate(reserved)

    def _give_back_shared(self, batch: ProducerBatch) -> None:
        """Moves a batch out of the memory that it shares with brokers, unless it is in flight.

        This concerns batches whose response did not complete them, or that will get no response. If a broker may still
        read the shared memory, that memory is not used again (`SharedMemory`). A batch that is in flight stays until
        its response."""
        if not batch.in_flight:
            buffer = batch.leave_shared_memory()
            if buffer is not None:
                self.spare_buffers.give(buffer)

    # -- flush and close

    @property
    def has_undrained(self) -> bool:
        return any(queue.batches for queue in self._queues())

    @property
    def has_incomplete(self) -> bool:
        return len(self.incomplete) > 0

    def begin_flush(self) -> None:
        with self._lock:
            self._flushes_in_progress += 1

    def await_flush_completion(self) -> None:
        """Blocks until all batches that are incomplete now, and their splits, are completed."""
        try:
            for result in self.incomplete.request_results():
                result.wait_for_all(self._clock)
        finally:
            with self._lock:
                self._flushes_in_progress -= 1

    def abort_incomplete_batches(self) -> None:
        """Aborts all remaining batches. Call it after `close`."""
        for queue in self._queues():
            with queue.lock:
                pass  # waits for a running append; later ones see `closed`
        self.abort_batches(ProducerClosedError("Producer is closed forcefully."))

    def abort_batches(self, reason: Exception) -> None:
        """Aborts all incomplete batches, including those in flight."""
        self._abort(reason, undrained_only=False)

    def abort_undrained_batches(self, reason: Exception) -> None:
        """Aborts the batches that have not been sent yet."""
        self._abort(reason, undrained_only=True)

    def _abort(self, reason: Exception, *, undrained_only: bool) -> None:
        for batch in self.incomplete.copy_all():
            queue = self._queue(self.entry(batch.topic_partition.topic), batch.topic_partition.partition)
            with queue.lock:
                drained = batch.is_closed if self._transaction_manager is None else batch.has_sequence
                if undrained_only and drained:
                    continue
                batch.close_for_record_appends()
                self._forget_open_batch(queue, batch)
                if batch in queue.batches:
                    queue.batches.remove(batch)
            if not batch.is_done:
                batch.abort(reason)
            self.deallocate(batch)

    def close(self) -> None:
        """Stops accepting records."""
        self.closed = True
        for queue in self._queues():
            with queue.lock:
                if queue.batches:
                    queue.batches[-1].close_for_record_appends()
        self.pool.close()
        self.spare_buffers.clear()

    # -- muting

    def mute_partition(self, partition: TopicPartition) -> None:
        self._queue(self.entry(partition.topic), partition.partition).muted = True

    def unmute_partition(self, partition: TopicPartition) -> None:
        self._queue(self.entry(partition.topic), partition.partition).muted = False

    # -- queries

    def queue(self, partition: TopicPartition) -> PartitionQueue | None:
        entry = self.topics.get(partition.topic)
        return None if entry is None else entry.queues.get(partition.partition)

    def take_touched(self, topic: str) -> bool:
        """Whether a topic was used since the last call. A topic with batches is in use: they may take records."""
        entry = self.topics.get(topic)
        if entry is None:
            return False
        touched, entry.touched = entry.touched, False
        return touched or any(queue.batches for queue in entry.queues.values())

    def __repr__(self) -> str:
        return f"RecordAccumulator({len(self.incomplete)} incomplete batches, {self.pool!r})"


def _close_for_appends(batch: ProducerBatch) -> bool:
    """Prepares a batch for sending without idempotence."""
    batch.close_for_record_appends()
    return True
