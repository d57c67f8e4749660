"""One partition of a coordinator: its state machine, its timers, and its current batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.errors import NotCoordinatorError, RecordTooLargeError
from barnabas.common.events.deferred_event_queue import DeferredEvent, DeferredEventQueue
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_batch import CoordinatorBatch
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_shard import CoordinatorShard
from barnabas.coordinator.runtime.coordinator_state import CoordinatorState
from barnabas.coordinator.runtime.partition_writer import PartitionWriter
from barnabas.coordinator.runtime.snapshottable_coordinator import SnapshottableCoordinator
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, CompressionType
from barnabas.records.builder import record_size_in_bytes

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.coordinator_executor import EventBasedCoordinatorExecutor
    from barnabas.coordinator.runtime.coordinator_timer import EventBasedCoordinatorTimer

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)

LINGER_ADAPTIVE: Final = -1
"""A linger time: the batch is appended when no other event waits for its partition."""


class CoordinatorContext(Generic[S]):
    """A partition that this broker coordinates, or is loading.

    **Writing.** The records of an operation are replayed into the state machine at once, at the offsets they will have,
    and added to the *current batch*. The batch is appended when it has lingered long enough, when it is full, or when a
    record arrives that cannot share it. With the adaptive linger, it waits while more events are queued for the
    partition: a partition under load writes large batches, an idle one never waits. Responses then wait for the high
    watermark. With one replica it advances with the append, and responses are sent at once.

    **Failures.** If the append fails, the state machine reverts to the start of the batch, and all its operations get
    the error.

    Only the partition's event loop uses this class.
    """

    def __init__(
        self,
        partition: TopicPartition,
        writer: PartitionWriter,
        serde: CoordinatorRecordSerde,
        clock: Clock,
        compression: CompressionType,
        linger_ms: int,
        schedule_flush: Callable[[CoordinatorContext[S], int], None],
    ) -> None:
        """`schedule_flush` schedules `maybe_flush_batch` for a batch after its linger time."""
        self.partition = partition
        self.epoch = -1
        self.state = CoordinatorState.INITIAL
        self.coordinator: SnapshottableCoordinator[S] | None = None
        self.timer: EventBasedCoordinatorTimer | None = None
        self.executor: EventBasedCoordinatorExecutor | None = None
        self.deferred = DeferredEventQueue()
        self.batch: CoordinatorBatch | None = None
        self.is_appending = False
        """Whether the loop is inside an append, after which it checks the high watermark itself."""
        self.high_watermark = -1
        """The last known high watermark. A single attribute, so that reads from other threads are consistent."""
        self._writer = writer
        self._serde = serde
        self._clock = clock
        self._compression = compression
        self._linger_ms = linger_ms
        self._schedule_flush = schedule_flush

    @property
    def active(self) -> SnapshottableCoordinator[S]:
        """The state machine; it exists from LOADING on."""
        assert self.coordinator is not None
        return self.coordinator

    def transition_to(self, target: CoordinatorState) -> None:
        if not self.state.can_transition_to(target):
            raise RuntimeError(f"{self.partition} cannot change from {self.state.value} to {target.value}")
        logger.debug("%s: changing from %s to %s", self.partition, self.state.value, target.value)
        self.state = target

    # -- writing

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        event: DeferredEvent,
        *,
        replay: bool = True,
        is_atomic: bool = True,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: VerificationGuard = SENTINEL,
    ) -> None:
        """Queues records for the log; `event` completes when they are committed, or have failed."""
        if not records:
            self._complete_after_all(event)
            return
        encoded = [self._serde.serialize(record) for record in records]
        transactional = producer_id != NO_PRODUCER_ID
        if transactional:
            self.flush()  # transactional records do not share a batch
        batch = self._batch_for(encoded, is_atomic, producer_id, producer_epoch, guard)
        now_ms = self._clock.milliseconds()
        coordinator = self.active
        replay_producer_id = producer_id if transactional else NO_PRODUCER_ID
        try:
            for record, (key, value) in zip(records, encoded, strict=True):
                if not is_atomic and batch.builder.record_count and not batch.builder.has_room_for(key, value):
                    self.flush()
                    batch = self._new_batch(producer_id, producer_epoch, guard)
                if replay:
                    coordinator.replay(batch.next_offset, replay_producer_id, producer_epoch, record)
                batch.append(now_ms, key, value)
        except Exception as error:
            # A part of the records may have been replayed.
            self._fail_batch(error)
            raise
        batch.events.append(event)
        if transactional or self._linger_ms == 0:
            self.flush()
        elif self._linger_ms > 0 and batch.linger_task is None:
            self._schedule_flush(self, self._linger_ms)

    def _complete_after_all(self, event: DeferredEvent) -> None:
        """Completes an event without records, when everything that it may have read is committed."""
        coordinator = self.active
        if self.batch is not None:
            self.batch.events.append(event)
        elif coordinator.last_written_offset > coordinator.last_committed_offset:
            self.deferred.add(coordinator.last_written_offset, event)
        else:
            event.complete(None)

    def _batch_for(
        self,
        encoded: Sequence[tuple[bytes, bytes | None]],
        is_atomic: bool,
        producer_id: int,
        producer_epoch: int,
        guard: VerificationGuard,
    ) -> CoordinatorBatch:
        if is_atomic:
            size = sum(record_size_in_bytes(at, 0, key, value) for at, (key, value) in enumerate(encoded))
            max_size = self._writer.max_batch_size(self.partition)
            if HEADER_SIZE + size > max_size:
                raise RecordTooLargeError(
                    f"an atomic write of {len(encoded)} records has {size} bytes, but a batch in {self.partition} may "
                    f"have only {max_size}"
                )
            # Offsets and timestamps in a batch that is not empty can take a few bytes more than counted.
            if self.batch is not None and (
                self.batch.builder.size_in_bytes + size + 10 * len(encoded) > self.batch.builder.max_size
            ):
                self.flush()
        return self.batch if self.batch is not None else self._new_batch(producer_id, producer_epoch, guard)

    def _new_batch(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> CoordinatorBatch:
        self.batch = CoordinatorBatch(
            self.active.last_written_offset,
            self._writer.max_batch_size(self.partition),
            self._compression,
            producer_id,
            producer_epoch,
            guard,
        )
        return self.batch

    def flush(self) -> None:
        """Appends the current batch, if there is one.

        If the append fails, all operations of the batch fail, and the error is also raised: an operation that has read
        the state of this batch must not continue.
        """
        batch = self.batch
        if batch is None:
            return
        if batch.linger_task is not None:
            batch.linger_task.cancel()
        try:
            self._write(batch.builder.close(), batch.next_offset, batch.guard)
        except Exception as error:
            self._fail_batch(error)
            self.advance_high_watermark()
            raise
        self.batch = None
        offset = batch.next_offset
        for event in batch.events:
            self.deferred.add(offset, event)
        self.advance_high_watermark()

    def _write(
        self,
        batch: bytearray,
        expected: int,
        guard: VerificationGuard,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> None:
        self.is_appending = True
        try:
            offset = self._writer.append(self.partition, batch, guard, transaction_version)
        finally:
            self.is_appending = False
        if offset != expected:
            raise OutOfSyncError(f"{self.partition} ends at offset {offset}, but its coordinator expected {expected}")
        self.active.update_last_written_offset(offset)

    def _fail_batch(self, error: Exception) -> None:
        batch, self.batch = self.batch, None
        if batch is None:
            return
        if batch.linger_task is not None:
            batch.linger_task.cancel()
        self.active.revert_last_written_offset(batch.base_offset)
        failure: Exception = NotCoordinatorError() if isinstance(error, OutOfSyncError) else error
        for event in batch.events:
            event.complete(failure)

    def complete_transaction(self, event: DeferredEvent, end: TransactionEnd) -> None:
        """Appends the marker that ends a transaction in this partition."""
        self.flush()
        coordinator = self.active
        before = coordinator.last_written_offset
        marker = end.marker_batch(self._clock.milliseconds())
        coordinator.replay_end_transaction_marker(end.producer_id, end.producer_epoch, end.result)
        try:
            self._write(marker, before + 1, SENTINEL, end.transaction_version)
        except Exception:
            coordinator.revert_last_written_offset(before)
            self.advance_high_watermark()
            raise
        self.deferred.add(coordinator.last_written_offset, event)
        self.advance_high_watermark()

    # -- committing

    def on_high_watermark(self, offset: int) -> bool:
        """Stores the high watermark; returns whether to notify the loop.

        Called on any thread, under the lock of the partition.

        It stores the value first, and then checks for an append in progress, which reads the value when it ends.
        """
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return not self.is_appending

    def advance_high_watermark(self) -> None:
        """Completes operations whose records are committed."""
        coordinator = self.coordinator
        if (
            self.state is CoordinatorState.ACTIVE
            and coordinator is not None
            and coordinator.update_last_committed_offset(self.high_watermark)
        ):
            self.deferred.complete_up_to(coordinator.last_committed_offset)

    # -- shutdown

    def fail_waiting(self, error: Exception) -> None:
        """Fails all operations that wait for a write, whose outcome is unknown."""
        batch, self.batch = self.batch, None
        if batch is not None:
            if batch.linger_task is not None:
                batch.linger_task.cancel()
            for event in batch.events:
                event.complete(error)
        self.deferred.fail_all(error)

    def __repr__(self) -> str:
        return f"<CoordinatorContext {self.partition} {self.state.value} epoch={self.epoch}>"


class OutOfSyncError(Exception):
    """The log has records that the state machine does not know: it must be loaded again."""
