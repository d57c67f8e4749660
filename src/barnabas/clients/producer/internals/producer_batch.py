"""A batch of records for one partition, from its first record to its last callback."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from barnabas._kernels import checksum
from barnabas.clients.producer.internals.compression_ratio_estimator import CompressionRatioEstimator
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.produce_request_result import (
    INVALID_OFFSET,
    ProduceRequestResult,
    RecordErrors,
    SplitPart,
)
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    CompressionType,
    RecordBatch,
    increment_sequence,
)
from barnabas.records.builder import RecordBatchBuilder, estimate_size_in_bytes_upper_bound
from barnabas.records.reader import read_records

crc32c = checksum.crc32c

log = logging.getLogger(__name__)

Callback: TypeAlias = Callable[[RecordMetadata, Exception | None], object]
"""Called with the record's metadata and None, or with metadata without an offset and the error."""

_PRODUCER_STATE: Final = struct.Struct(">qhi")
_PRODUCER_STATE_OFFSET: Final = 43
_CRC: Final = struct.Struct(">I")
_UNCOMPRESSED: Final = CompressionType.NONE


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity. Of two producers with one id, the one with the higher epoch fences the other."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"(producerId={self.producer_id}, epoch={self.epoch})"


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class FinalState(Enum):
    """How a batch ended.

    =========  ===================================================================================
    from       may be followed by
    =========  ===================================================================================
    (open)     SUCCEEDED, FAILED, ABORTED
    FAILED     FAILED (ignored), SUCCEEDED (logged: the broker had it after all)
    ABORTED    the same
    SUCCEEDED  nothing; anything else is a bug
    =========  ===================================================================================

    Only the first final state reaches futures and callbacks. A second one occurs if a batch expires while it is in
    flight: it has failed for the application, and the broker's response comes later.
    """

    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


_SUCCEEDED: Final = FinalState.SUCCEEDED


class ProducerBatch:
    """A batch of records for one partition, stored as the bytes that will be sent.

    While the batch is in a queue, the queue's lock guards it; a drained batch belongs to the I/O thread. Any thread may
    append records with ``builder.accept`` without the lock, until the builder is closed for appends.

    The producer's identity and the sequence number of the first record are kept beside the bytes, and written into the
    header by `close`. A batch that has been sent keeps its sequence, so that the broker can detect a duplicate. The
    exception is a bumped epoch, which restarts the sequences of a partition: then `reset_producer_state` is called, and
    `close` writes a *copy* with the new header, because the network may still hold the old bytes.
    """

    __slots__ = (
        "_estimator",
        "_records",
        "_reopened",
        "attempts",
        "attempts_when_leader_last_changed",
        "base_sequence",
        "builder",
        "created_ms",
        "current_leader_epoch",
        "drained_ms",
        "final_state",
        "in_flight",
        "is_split_batch",
        "is_transactional",
        "last_attempt_ms",
        "may_be_written",
        "ordinal",
        "produce_future",
        "producer_epoch",
        "producer_id",
        "ready_size",
        "reserved_bytes",
        "retry",
        "retry_backoff_ms",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: RecordBatchBuilder,
        created_ms: int,
        estimator: CompressionRatioEstimator,
        *,
        reserved_bytes: int = 0,
        is_split_batch: bool = False,
        now: Callable[[], int] | None = None,
    ) -> None:
        """``now`` returns the timestamp, in milliseconds, of records without one; None: the system clock."""
        self.topic_partition = topic_partition
        self.builder = builder
        self.produce_future = ProduceRequestResult(topic_partition)
        builder.give_futures(FutureRecordMetadata, self.produce_future, now)
        self.ready_size = max(builder.max_size, HEADER_SIZE + 1)
        """The batch is ready from this size on. It may take more records while it waits to be drained."""
        self.created_ms = created_ms
        self.drained_ms = 0
        self.reserved_bytes = reserved_bytes
        """The buffer pool memory that it holds; 0 for a part of a split batch."""
        self.attempts = 0
        self.current_leader_epoch: int | None = None
        self.last_attempt_ms = created_ms
        self.is_split_batch = is_split_batch
        self.retry = False
        self.retry_backoff_ms = 0
        """How long the next attempt waits after the one that failed. Drawn once per failure: it has jitter, and
        `RecordAccumulator.ready` and `drain` must agree on whether the time is over."""
        self.final_state: FinalState | None = None
        self.in_flight = False
        """Whether the network has its bytes. Their memory is in use until the request completes."""
        self.may_be_written = False
        """Whether it was sent with its sequence and its outcome is unknown."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.ordinal = 0
        """Its position among the batches of its partition that were assigned a sequence."""
        self.attempts_when_leader_last_changed = 0
        self._reopened = False
        self._records: bytearray | memoryview | None = None
        self._estimator = estimator
        if builder.compression is not _UNCOMPRESSED:
            builder.estimated_compression_ratio = estimator.estimation(topic_partition.topic, builder.compression)

    # -- receiving records

    @property
    def record_count(self) -> int:
        return self.builder.record_count

    @property
    def is_ready(self) -> bool:
        """Whether the batch is full or closed for another reason, so that lingering is pointless.

        A full batch may still take records: the accumulator decides that (``not builder.is_open``)."""
        builder = self.builder
        return not builder.is_open or builder.estimated_size >= self.ready_size

    @property
    def estimated_size_in_bytes(self) -> int:
        return len(self._records) if self._records is not None else self.builder.size_in_bytes

    @property
    def has_callbacks(self) -> bool:
        """Whether application callbacks run when it ends."""
        return self.builder.thunks is not None or self.produce_future.has_listeners

    def close_for_record_appends(self) -> None:
        self.builder.close_for_appends()

    # -- encoding

    def close(self) -> bytearray | memoryview:
        """Returns the bytes to be sent. Call it again after `reset_producer_state`."""
        if self._records is None:
            builder = self.builder
            builder.set_producer_state(self.producer_id, self.producer_epoch, self.base_sequence, self.is_transactional)
            self._records = builder.close()
            if builder.compression is not _UNCOMPRESSED:
                self._estimator.update_estimation(
                    self.topic_partition.topic, builder.compression, builder.compression_ratio
                )
        elif self._reopened:
            rewritten = bytearray(self._records)
            _PRODUCER_STATE.pack_into(
                rewritten, _PRODUCER_STATE_OFFSET, self.producer_id, self.producer_epoch, self.base_sequence
            )
            with memoryview(rewritten) as view:
                _CRC.pack_into(rewritten, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))
            self._records = rewritten
        self._reopened = False
        return self._records

    @property
    def is_closed(self) -> bool:
        return self._records is not None and not self._reopened

    @property
    def records(self) -> bytearray | memoryview:
        assert self._records is not None, "closed before it is sent"
        return self._records

    def take_buffer(self) -> bytearray | memoryview | None:
        """Takes the memory from a batch that has succeeded; None if it cannot be reused.

        Memory that was sent more than once cannot be reused: the network may still hold earlier attempts."""
        if self.attempts or self.final_state is not _SUCCEEDED:
            return None
        buffer = self.builder.take_buffer()
        if buffer is not None:
            self._records = None
        return buffer

    def leave_shared_memory(self) -> memoryview | None:
        """Copies the batch, as sent, to private memory; returns the shared memory that it was in, if any."""
        buffer = self.builder.leave_shared_memory()
        if buffer is not None and isinstance(self._records, memoryview):
            self._records = self.builder.close()
        return buffer

    @property
    def is_compressed(self) -> bool:
        return self.builder.compression is not _UNCOMPRESSED

    @property
    def compression_ratio(self) -> float:
        return self.builder.compression_ratio

    def set_producer_state(self, identity: ProducerIdAndEpoch, base_sequence: int, is_transactional: bool) -> None:
        if self._records is not None:
            raise RuntimeError(f"{self!r} has been closed; its sequence must not change")
        self.producer_id, self.producer_epoch = identity
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def reset_producer_state(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Assigns a new identity and sequence to a batch that is closed and was perhaps sent."""
        log.info(
            "Resetting the sequence number of a batch for %s from %d to %d",
            self.topic_partition,
            self.base_sequence,
            base_sequence,
        )
        self._reopened = self._records is not None
        self.may_be_written = False
        self.producer_id, self.producer_epoch = identity
        self.base_sequence = base_sequence

    @property
    def sequence_has_been_reset(self) -> bool:
        return self._reopened

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.builder.record_count - 1)

    # -- attempts

    def maybe_update_leader_epoch(self, latest: int | None) -> None:
        if latest is not None and (self.current_leader_epoch is None or self.current_leader_epoch < latest):
            self.attempts_when_leader_last_changed = self.attempts
            self.current_leader_epoch = latest

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        """Whether the retry goes to a new leader, so that no backoff is needed."""
        return self.attempts >= 1 and self.attempts == self.attempts_when_leader_last_changed

    def reenqueued(self, now: int, backoff_ms: int) -> None:
        self.attempts += 1
        self.retry_backoff_ms = backoff_ms
        self.last_attempt_ms = max(self.last_attempt_ms, now)
        self.retry = True

    def drained(self, now: int) -> None:
        self.drained_ms = max(self.drained_ms, now)

    @property
    def queue_time_ms(self) -> int:
        return self.drained_ms - self.created_ms

    def waited_time_ms(self, now: int) -> int:
        return max(0, now - self.last_attempt_ms)

    def backs_off(self, now: int) -> bool:
        """Whether a failed batch waits before its retry. It does not if its partition has a new leader."""
        return (
            self.attempts > 0
            and not self.has_leader_changed_for_the_ongoing_retry
            and self.waited_time_ms(now) < self.retry_backoff_ms
        )

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now: int) -> bool:
        return delivery_timeout_ms <= now - self.created_ms

    # -- completion

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    def abort(self, error: Exception) -> None:
        """Fails a batch that will not be sent any more."""
        if self.final_state is not None:
            raise RuntimeError(f"{self!r} has ended already")
        self.final_state = FinalState.ABORTED
        self._complete(INVALID_OFFSET, NO_TIMESTAMP, lambda _index: error)

    def complete(self, base_offset: int, log_append_time: int) -> bool:
        """Completes the batch as written. Returns whether that is its first final state."""
        if self.final_state is None and self.builder.thunks is None:
            self.final_state = _SUCCEEDED
            self.produce_future.succeed(base_offset, log_append_time)
            return True
        return self._done(_SUCCEEDED, base_offset, log_append_time, None)

    def complete_exceptionally(self, error: Exception, errors: RecordErrors | None = None) -> bool:
        """Fails the batch: all records with the same error, or each with its own."""
        return self._done(FinalState.FAILED, INVALID_OFFSET, NO_TIMESTAMP, errors or (lambda _index: error))

    def _done(self, state: FinalState, base_offset: int, log_append_time: int, errors: RecordErrors | None) -> bool:
        before = self.final_state
        if before is None:
            self.final_state = state
            self._complete(base_offset, log_append_time, errors)
            return True
        if before is _SUCCEEDED:
            raise RuntimeError(f"{self!r} has succeeded and cannot become {state.value}")
        if state is _SUCCEEDED:
            log.warning("The broker has a batch for %s that had %s here", self.topic_partition, before.value)
        else:
            log.debug("A batch for %s that had %s has failed once more", self.topic_partition, before.value)
        return False

    def _complete(self, base_offset: int, log_append_time: int, errors: RecordErrors | None) -> None:
        self.produce_future.set(base_offset, log_append_time, errors)
        thunks, self.builder.thunks = self.builder.thunks, None
        for index, callback, future in thunks or ():
            try:
                if errors is None:
                    callback(future.value(), None)
                else:
                    callback(RecordMetadata(*self.topic_partition, -1, NO_TIMESTAMP, -1, -1), errors(index))
            except Exception:
                log.exception("The callback of a record for %s failed", self.topic_partition)
        self.produce_future.done()

    # -- too large

    def split(self, split_batch_size: int) -> list[ProducerBatch]:
        """Splits the records into smaller batches, which take over sequence numbers, callbacks and futures.

        Splitting ends, because the first record of a batch always fits.
        """
        if self._records is None:
            raise RuntimeError(f"{self!r} has not been closed")
        batches: list[ProducerBatch] = []
        parts: list[SplitPart] = []
        batch: ProducerBatch | None = None
        thunks = {index: (callback, future) for index, callback, future in self.builder.thunks or ()}
        self.builder.thunks = None
        for index, record in enumerate(read_records(RecordBatch(self._records))):
            position = None
            if batch is not None:
                position = batch.builder.try_append(record.timestamp, record.key, record.value, record.headers)
            if batch is None or position is None:
                size = estimate_size_in_bytes_upper_bound(record.key, record.value, record.headers)
                batch = self._split_batch(max(size, split_batch_size))
                position = batch.builder.try_append(record.timestamp, record.key, record.value, record.headers)
                batches.append(batch)
                parts.append(SplitPart(index, batch.produce_future))
            if index in thunks:
                assert position is not None
                batch.builder.add_thunk(position, *thunks[index])
        sequence = self.base_sequence
        for part in batches:
            part.close_for_record_appends()
            if self.has_sequence:
                part.set_producer_state(
                    ProducerIdAndEpoch(self.producer_id, self.producer_epoch), sequence, self.is_transactional
                )
                sequence = increment_sequence(sequence, part.record_count)
        self.final_state = FinalState.FAILED
        self.produce_future.split_into(parts)
        return batches

    def _split_batch(self, size: int) -> ProducerBatch:
        builder = RecordBatchBuilder(compression=self.builder.compression, level=self.builder.level, max_size=size)
        return ProducerBatch(self.topic_partition, builder, self.created_ms, self._estimator, is_split_batch=True)

    def __repr__(self) -> str:
        state = "open" if self.final_state is None else self.final_state.value
        return (
            f"ProducerBatch({self.topic_partition}, {self.record_count} records, {state}, "
            f"sequence {self.base_sequence})"
        )
