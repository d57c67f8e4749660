"""Queues batches per partition: any thread appends records, the I/O thread drains batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.errors import BufferExhaustedError, ProducerClosedError
from barnabas.clients.producer.internals.accumulator_config import AccumulatorConfig
from barnabas.clients.producer.internals.batch_drain import BatchDrain
from barnabas.clients.producer.internals.buffer_pool import BufferPool
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner, StickyPartitionInfo
from barnabas.clients.producer.internals.compression_ratio_estimator import CompressionRatioEstimator
from barnabas.clients.producer.internals.delivery_errors import DeliveryErrors
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.incomplete_batches import IncompleteBatches
from barnabas.clients.producer.internals.partition_queue import PartitionQueue, PartitionQueues, TopicQueues
from barnabas.clients.producer.internals.producer_batch import Callback, ProducerBatch
from barnabas.clients.producer.internals.ready_check import ReadyCheck, ReadyCheckResult
from barnabas.clients.producer.internals.spare_buffers import SpareBuffers
from barnabas.clients.producer.record_metadata import UNKNOWN_PARTITION
from barnabas.common.clock import SYSTEM_CLOCK, Clock, SystemClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Metrics
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.records.batch import HEADER_SIZE, MAX_RECORD_OVERHEAD, decrement_sequence
from barnabas.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager

METRIC_GROUP: Final = "producer-metrics"
NO_WAIT: Final = -1
"""Time to block for callers that never wait. A refused record is not counted as dropped."""
_YOUNG: Final = 10
"""A batch older than ``delivery.timeout.ms`` / 10 is not expanded any more: all of its records fail with the first one,
so late records would have hardly any time."""

_GROWTH: Final = 4
"""How many times as large a batch becomes when it is expanded, but for the last step, which at most doubles it: two
large records would otherwise reserve the memory of three. For records of 1 KiB, each expansion fewer is 2 % of the
producer's processor time."""

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]
AcceptArguments: TypeAlias = tuple[int | None, bytes | None, bytes | None, RecordHeaders, Callback | None]
"""Timestamp (None: the time of the append), key, value, headers and callback of a serialized record."""


class RecordAccumulator:
    """Holds records between the threads that send and the I/O thread.

    **Append** tries the last batch of the partition's queue. If the record does not fit, memory for another batch is
    taken from the pool. That may block, so the queue's lock is released first. The first thread to return creates the
    new batch; the others append to it and return their memory.

    **Expand** (KIP-782) comes between the two. The cost of a batch, here and in the broker, hardly depends on its size,
    and a ready batch still waits if the I/O thread is busy or five requests are in flight. While it waits, it takes
    more records, up to ``batch.max.size``, and its memory is quadrupled or doubled as needed. So batches are small
    under low load and large under high load, and nothing waits longer than before. Memory is only taken if it is free
    at once; else the batch is closed, and the record begins another one.

    **Ready** (`ReadyCheck`) finds the nodes that lead a partition whose first batch may be sent. If memory has run out,
    the producer is being flushed or closed, or a transaction is being completed, no batch lingers.

    **Drain** (`BatchDrain`) takes at most one batch of each partition of these nodes.

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
        self._clock = clock
        self._now = None if isinstance(clock, SystemClock) else clock.milliseconds
        self._record_limit = min(config.max_request_size, pool.total_memory) - MAX_RECORD_OVERHEAD
        """A batch below this size has no record that is too large for a request or for the pool."""
        self._random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        self.retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms,
            RETRY_BACKOFF_EXP_BASE,
            config.retry_backoff_max_ms,
            RETRY_BACKOFF_JITTER,
            self._random,
        )
        self._lock = threading.Lock()
        """Guards the count of flushes. No other lock is taken while it is held."""
        self.queues = PartitionQueues(self._make_partitioner)
        self.ready_check = ReadyCheck(config, self.queues)
        self.batch_drain = BatchDrain(
            self.queues, _close_for_appends if transaction_manager is None else transaction_manager.prepare_to_send
        )
        self.errors = DeliveryErrors()
        self.incomplete = IncompleteBatches()
        self.spare_buffers = SpareBuffers(pool.total_memory // 2)
        """Buffers for the batches of tables."""
        self._batch_max_size = max(config.batch_max_size or 0, config.batch_size)
        self.wake: Callable[[], object] = _nothing
        """Called after an append that gave the I/O thread new work, with no lock held."""
        self.closed = False
        self._flushes_in_progress = 0
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

    def _make_partitioner(self, topic: str) -> BuiltInPartitioner:
        chance = Random(self._random.getrandbits(64))  # noqa: S311 - spreads load, keeps no secret
        return BuiltInPartitioner(topic, self.config.batch_size, rack=self.config.rack, random=chance)

    # -- append

    def append(
        self,
        topic: str,
        partition: int,
        record: AcceptArguments,
        size: int,
        snapshot: MetadataSnapshot,
        max_time_to_block_ms: float,
        *,
        abort_on_new_batch: bool = False,
    ) -> FutureRecordMetadata | None:
        """Adds a record to the last batch or to a new one, and wakes the I/O thread if it has new work.

        If ``partition`` is `UNKNOWN_PARTITION`, the built-in partitioner chooses. ``size`` is an upper bound of the
        size of a batch with just this record. Returns None only with ``abort_on_new_batch``: the record needs a new
        batch.
        """
        entry = self.queues.topics.get(topic) or self.queues.topic(topic)
        entry.touched = True
        partitioner = entry.partitioner
        reserved = 0
        try:
            while True:
                sticky: StickyPartitionInfo | None = None
                effective = partition
                if partition == UNKNOWN_PARTITION:
                    sticky = partitioner.sticky or partitioner.peek_current_partition_info(snapshot)
                    effective = sticky.partition
                queue = entry.queues.get(effective) or self.queues.queue(TopicPartition(topic, effective))
                with queue.lock:
                    if self.closed:
                        raise ProducerClosedError("Producer closed while send in progress")
                    batches = queue.batches
                    batch = batches[-1] if batches else None
                    ready = batch is None or batch.is_ready
                    # A switch was put off because the last batch was not ready. Perhaps it is now, or is gone.
                    if sticky is not None and (
                        partitioner.sticky is not sticky
                        or (ready and partitioner.update_partition_info(sticky, 0, snapshot))
                    ):
                        continue
                    future: FutureRecordMetadata | None = None
                    wake = False
                    if batch is not None and batch.builder.is_open:
                        future = self._append_to_last(batch, record, size, sticky is not None)
                        # If the record did not fit, the batch is closed now, and so is ready.
                        if (
                            future is None
                            and sticky is not None
                            and partitioner.update_partition_info(sticky, 0, snapshot)
                        ):
                            continue
                    if future is None and not reserved and not abort_on_new_batch:
                        wanted = max(self.config.batch_size, size)
                        reserved = wanted if self.pool.try_allocate(wanted) else 0
                    if future is None and reserved:
                        batch = None
                        future = self._add_batch(queue, size, record, sticky is not None)
                        reserved = 0
                    if future is not None:
                        self._open(queue, entry, sticky, snapshot)
                        # A batch that was ready before gives the I/O thread no new work. Neither does a third batch:
                        # with two, the first one was ready.
                        wake = (
                            len(batches) <= 2
                            if batch is None
                            else not ready and len(batches) == 1 and queue.open_batch_is_ready
                        )
                if wake:
                    self.wake()
                if future is not None:
                    return future
                if abort_on_new_batch:
                    return None
                if max_time_to_block_ms == NO_WAIT:
                    raise BufferExhaustedError("No memory for another batch")
                try:
                    reserved = self.pool.allocate(max(self.config.batch_size, size), max_time_to_block_ms)
                except BufferExhaustedError as error:
                    raise BufferExhaustedError(f"{error}{self.errors.why_memory_is_not_freed()}") from None
        finally:
            if reserved:
                self.pool.deallocate(reserved)

    def _append_to_last(
        self, batch: ProducerBatch, record: AcceptArguments, size: int, sticky: bool
    ) -> FutureRecordMetadata | None:
        """Appends to the last batch of a queue, whose lock is held. Closes the batch if the record does not fit."""
        future = batch.builder.accept(*record, sticky, True)
        if future is None and self._expand(batch, size):
            future = batch.builder.accept(*record, sticky, True)
        if future is None:
            batch.close_for_record_appends()
        return future  # type: ignore[no-any-return]

    def _open(
        self,
        queue: PartitionQueue,
        entry: TopicQueues,
        sticky: StickyPartitionInfo | None,
        snapshot: MetadataSnapshot,
    ) -> None:
        """Counts the bytes of a sticky choice, and sets the size up to which ``builder.accept`` needs no lock.

        At that size the batch becomes ready and the I/O thread is woken up. Before, the sticky partition may change.
        """
        batch = queue.batches[-1]
        builder = batch.builder
        # The builder is open: it has just accepted a record, under the lock that closing it takes.
        ready = queue.open_batch_is_ready = builder.estimated_size >= batch.ready_size
        builder.limit = self._record_limit if ready else min(self._record_limit, batch.ready_size)
        partitioner = entry.partitioner
        if sticky is not None:
            chosen = partitioner.update_partition_info(sticky, builder.take_sticky_bytes(), snapshot, ready)
            if chosen is None:
                partitioner.stick_to(sticky, queue)
            else:
                partitioner.stick_to(chosen, entry.queues.get(chosen.partition))
        elif ready and partitioner.open_batch is builder and partitioner.sticky is not None:
            # A record with a partition of its own has made the batch ready, so a switch is possible sooner.
            partitioner.stick_to(partitioner.sticky, queue)

    def append_batch(self, batch: ProducerBatch) -> None:
        """Adds a finished batch to the end of its queue, and wakes the I/O thread if it has new work.

        The batch's memory belongs to the caller until this returns."""
        self.queues.topic(batch.topic_partition.topic).touched = True
        queue = self.queues.queue(batch.topic_partition)
        with queue.lock:
            if self.closed:
                raise ProducerClosedError("Producer closed while send in progress")
            batches = queue.batches
            if batches:
                batches[-1].close_for_record_appends()
            batches.append(batch)
            self.incomplete.add(batch)
            wake = len(batches) <= 2
        if wake:
            self.wake()

    def _expand(self, batch: ProducerBatch, size: int) -> bool:
        """Makes room in the last batch of a queue, whose lock is held, for a record of at most ``size`` bytes with its
        batch header; false if the batch is to be closed instead."""
        builder = batch.builder
        room = builder.max_size
        if self._batch_max_size <= room or batch.topic_partition.topic in self.ready_check.not_expanded:
            return False
        # Later records may compress less well. Even uncompressed, they must fit into a request.
        limit = min(self._batch_max_size, int(self.config.max_request_size * builder.size_factor))
        needed = builder.estimated_size + size - HEADER_SIZE
        if needed > limit:
            return False
        age_ms = self._clock.nanoseconds() // 1_000_000 - batch.created_ms
        if age_ms * _YOUNG >= self.config.delivery_timeout_ms:
            return False
        growth = _GROWTH if _GROWTH * room <= limit else 2
        wanted = min(max(growth * room, needed), limit)
        if not self.pool.try_allocate(wanted - room):
            return False
        batch.reserved_bytes += wanted - room
        builder.max_size = wanted
        return True

    def _add_batch(
        self, queue: PartitionQueue, size: int, record: AcceptArguments, sticky: bool
    ) -> FutureRecordMetadata:
        """Adds a batch with this record to the end of a queue, whose lock is held. Its memory is reserved."""
        config = self.config
        size = max(config.batch_size, size)
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
        # Before the batch is in the queue: a record that cannot be encoded raises, and an empty batch must not be sent.
        future: FutureRecordMetadata | None = builder.accept(*record, sticky, True)
        assert future is not None, "the first record always fits"
        queue.batches.append(batch)
        queue.open_batch_is_ready = False  # before `open_batch`, which is read without the lock
        queue.open_batch = builder
        self.incomplete.add(batch)
        return future

    # -- ready

    def ready(self, snapshot: MetadataSnapshot, now: int) -> ReadyCheckResult:
        """Returns the nodes that have batches ready, and when to check again if there are none."""
        manager = self._transaction_manager
        send_all = (
            self._flushes_in_progress > 0
            or self.closed
            or self.pool.queued > 0
            or (manager is not None and manager.is_transactional and manager.machine.is_completing)
        )
        return self.ready_check.ready(snapshot, now, send_all)

    # -- re-enqueue

    def reenqueue(self, batch: ProducerBatch, now: int) -> None:
        """Puts a failed batch at the front of its queue, or in sequence order if the producer is idempotent."""
        batch.reenqueued(now, self.retry_backoff.backoff(batch.attempts))
        self._give_back_shared(batch)
        queue = self.queues.queue(batch.topic_partition)
        with queue.lock:
            self._insert(queue, batch)

    def take(self, batch: ProducerBatch) -> bool:
        """Removes a batch from its queue; returns false if it is not there."""
        queue = self.queues.queue(batch.topic_partition)
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
        self.ready_check.do_not_expand(big.topic_partition.topic)
        size = self.config.batch_size
        if big.is_split_batch:
            # It was already split to this size, and the broker's limit is still lower.
            size = max(big.builder.max_record_size, big.estimated_size_in_bytes // 2)
        batches = big.split(size)
        queue = self.queues.queue(big.topic_partition)
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
        if now < self.ready_check.next_expiry_time_ms:
            return expired
        timeout_ms = self.config.delivery_timeout_ms
        for queue in self.queues:
            with queue.lock:
                while queue.batches and queue.batches[0].has_reached_delivery_timeout(timeout_ms, now):
                    batch = queue.batches.popleft()
                    batch.close_for_record_appends()
                    self.queues.forget_open_batch(queue, batch)
                    expired.append(batch)
        return expired

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
        return any(queue.batches for queue in self.queues)

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
        for queue in self.queues:
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
            queue = self.queues.queue(batch.topic_partition)
            with queue.lock:
                drained = batch.is_closed if self._transaction_manager is None else batch.has_sequence
                if undrained_only and drained:
                    continue
                batch.close_for_record_appends()
                self.queues.forget_open_batch(queue, batch)
                if batch in queue.batches:
                    queue.batches.remove(batch)
            if not batch.is_done:
                batch.abort(reason)
            self.deallocate(batch)

    def close(self) -> None:
        """Stops accepting records."""
        self.closed = True
        for queue in self.queues:
            with queue.lock:
                if queue.batches:
                    queue.batches[-1].close_for_record_appends()
        self.pool.close()
        self.spare_buffers.clear()

    # -- muting

    def mute_partition(self, partition: TopicPartition) -> None:
        self.queues.queue(partition).muted = True

    def unmute_partition(self, partition: TopicPartition) -> None:
        self.queues.queue(partition).muted = False

    # -- queries

    def take_touched(self, topic: str) -> bool:
        """Whether a topic was used since the last call. A topic with batches is in use: they may take records."""
        entry = self.queues.topics.get(topic)
        if entry is None:
            return False
        touched, entry.touched = entry.touched, False
        return touched or any(queue.batches for queue in entry.queues.values())

    def __repr__(self) -> str:
        return f"RecordAccumulator({len(self.incomplete)} incomplete batches, {self.pool!r})"


def _nothing() -> None:
    """Wakes nobody: there is no I/O thread yet."""


def _close_for_appends(batch: ProducerBatch) -> bool:
    """Prepares a batch for sending without idempotence."""
    batch.close_for_record_appends()
    return True
