"""Appends of the leader that are not written yet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, RecordBatchTooLargeError
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.raft.client import ApiMessageAndVersion, Batch, NotLeaderError
from barnabas.raft.config import MAX_BATCH_SIZE_BYTES
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import RecordBatchBuilder, record_size_in_bytes
from barnabas.records.control import ControlRecordType, control_batch

MAX_NUMBER_OF_BATCHES: Final = 10
"""How many full batches may wait. At 8 MiB each, a leader that far behind its disk will not recover."""

_END_OF_OFFSETS: Final = 2**63 - 1


class AccumulatorFullError(BarnabasError):
    """Appends arrive faster than the disk can write."""


class CompletedBatch(NamedTuple):
    """A batch as written to the log, and its source records: none for Raft's control records."""

    base_offset: int
    last_offset: int
    epoch: int
    append_timestamp: int
    data: bytearray
    records: Sequence[ApiMessageAndVersion]

    def to_batch(self) -> Batch[ApiMessageAndVersion]:
        return Batch(
            self.base_offset, self.last_offset, self.epoch, self.append_timestamp, len(self.data), self.records
        )


class BatchAccumulator:
    """Collects appends in batches, assigns their offsets, and returns the batches to be written.

    An accumulator exists for one epoch of one leader. It knows every offset in advance, because only the leader writes.

    **Two halves.** Records appended with ``delay_drain`` stay until :meth:`allow_drain`, and so do all later records,
    because offsets must be written in order.

    **Group commit.** Appends that arrive while the disk is busy share a batch and a flush. ``linger_ms`` makes groups
    more likely: a drain is due that long after the *previous drain*. So a series of requests shares its writes, and a
    single request after a pause does not wait. (Kafka counts from the first append, so a single request always waits.)
    None drains full batches only; snapshots are written this way.

    An append is atomic: one batch holds all its records, or it is refused with `RecordBatchTooLargeError`.
    """

    def __init__(
        self,
        epoch: int,
        base_offset: int,
        *,
        linger_ms: int | None,
        clock: Clock,
        types: MetadataRecordTypes,
        max_batch_size: int = MAX_BATCH_SIZE_BYTES,
        max_batches: int = MAX_NUMBER_OF_BATCHES,
    ) -> None:
        self.epoch = epoch
        self._clock = clock
        self._linger_ms = linger_ms
        self._types = types
        self._max_batch_size = max_batch_size
        self._max_batches = max_batches
        self._lock = threading.Lock()
        """Guards everything below. While it is held, only the clock is called and batches are built."""
        self._next_offset = base_offset
        self._drain_limit = _END_OF_OFFSETS
        """The first offset that must not be drained."""
        self._completed: deque[CompletedBatch] = deque()
        self._builder: RecordBatchBuilder | None = None
        self._records: list[ApiMessageAndVersion] = []
        """The records in the builder."""
        self._timestamp = 0
        """When the builder's batch began. All its records have this timestamp: Kafka's reader requires it."""
        self._due_ms = 0
        """When to drain the builder's batch, on the steady clock."""
        self._last_drain_ms: int | None = None
        self._closed = False

    @property
    def next_offset(self) -> int:
        with self._lock:
            return self._next_offset

    @property
    def is_empty(self) -> bool:
        with self._lock:
            return self._builder is None and not self._completed

    # Appending: any thread

    def append(self, epoch: int, records: Sequence[ApiMessageAndVersion], *, delay_drain: bool = False) -> int:
        """Adds records and returns the offset of the last one.

        Raises `NotLeaderError` for a past epoch, ValueError for a future one.
        """
        if not records:
            raise ValueError("an append needs at least one record")
        self.check_epoch(epoch)
        encode = self._types.encode
        values = [encode(message, version) for message, version in records]
        with self._lock:
            self._check_open()
            builder = self._builder_for(values)
            if delay_drain:
                self._drain_limit = min(self._drain_limit, self._next_offset)
            for value in values:
                builder.append(self._timestamp, None, value)
            self._records.extend(records)
            self._next_offset += len(values)
            return self._next_offset - 1

    def allow_drain(self) -> None:
        """Allows everything appended so far to be drained."""
        with self._lock:
            self._drain_limit = _END_OF_OFFSETS

    def append_control_records(self, records: Sequence[tuple[ControlRecordType, bytes]]) -> int:
        """Adds a batch of control records, to be drained at once; returns the offset of the last."""
        if not records:
            raise ValueError("a control batch needs at least one record")
        with self._lock:
            self._check_open()
            self._complete()
            base_offset, now = self._next_offset, self._clock.milliseconds()
            data = control_batch(
                list(records), timestamp_ms=now, base_offset=base_offset, partition_leader_epoch=self.epoch
            )
            self._next_offset += len(records)
            last_offset = self._next_offset - 1
            self._completed.append(CompletedBatch(base_offset, last_offset, self.epoch, now, data, ()))
            return last_offset

    # Draining: Raft's thread only

    def time_until_drain(self) -> int | None:
        """Returns the milliseconds until :meth:`drain` is due, 0 for now; None if nothing may be drained."""
        with self._lock:
            if self._completed and self._completed[0].last_offset < self._drain_limit:
                return 0
            if self._builder is None or self._next_offset > self._drain_limit or self._linger_ms is None:
                return None
            return max(self._due_ms - self._clock.hi_res_milliseconds(), 0)

    def drain(self, *, complete: bool = True) -> list[CompletedBatch]:
        """Takes the batches that may be written, including the open one if `complete`."""
        with self._lock:
            if complete and self._next_offset <= self._drain_limit:
                self._complete()
            drained = []
            while self._completed and self._completed[0].last_offset < self._drain_limit:
                drained.append(self._completed.popleft())
            if any(batch.records for batch in drained):
                self._last_drain_ms = self._clock.hi_res_milliseconds()
            return drained

    def close(self) -> None:
        """Discards the rest: the epoch is over, and none of these records was reported as committed."""
        with self._lock:
            self._closed = True
            self._completed.clear()
            self._builder = None
            self._records = []

    # Internals

    def check_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise NotLeaderError(f"epoch {epoch} is over: the current one is {self.epoch}")
        if epoch > self.epoch:
            raise ValueError(f"epoch {epoch} has not come yet: the current one is {self.epoch}")

    def _check_open(self) -> None:
        if self._closed:
            raise NotLeaderError(f"epoch {self.epoch} is over")

    def _builder_for(self, values: Sequence[bytes]) -> RecordBatchBuilder:
        """Returns a builder with room for all values. The lock must be held."""
        builder = self._builder
        if builder is not None:
            if builder.size_in_bytes + _size(values, len(self._records)) <= self._max_batch_size:
                return builder
            self._check_size(values)
            self._complete()
        else:
            self._check_size(values)
        if len(self._completed) >= self._max_batches:
            raise AccumulatorFullError(f"{len(self._completed)} batches wait to be written already")
        self._timestamp = self._clock.milliseconds()
        now = self._clock.hi_res_milliseconds()
        since = self._last_drain_ms
        self._due_ms = now if since is None or self._linger_ms is None else max(now, since + self._linger_ms)
        self._builder = builder = RecordBatchBuilder(
            base_offset=self._next_offset, base_timestamp=self._timestamp, partition_leader_epoch=self.epoch
        )
        return builder

    def _check_size(self, values: Sequence[bytes]) -> None:
        size = HEADER_SIZE + _size(values, 0)
        if size > self._max_batch_size:
            raise RecordBatchTooLargeError(
                f"{len(values)} metadata records need a batch of {size} bytes; the limit is {self._max_batch_size}"
            )

    def _complete(self) -> None:
        builder, self._builder = self._builder, None
        if builder is None:
            return
        records, self._records = self._records, []
        self._completed.append(
            CompletedBatch(
                builder.base_offset, builder.last_offset, self.epoch, self._timestamp, builder.close(), records
            )
        )


def _size(values: Sequence[bytes], first_delta: int) -> int:
    return sum(record_size_in_bytes(first_delta + index, 0, None, value) for index, value in enumerate(values))
