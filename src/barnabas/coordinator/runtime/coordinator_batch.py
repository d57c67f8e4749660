"""A batch of records that is about to be appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, CompressionType
from barnabas.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from barnabas.common.events.deferred_event_queue import DeferredEvent
    from barnabas.server.timer.timer_task import TimerTask


class CoordinatorBatch:
    """The records of some operations, which are appended together.

    The records have already been replayed, at the offsets they will have. Operations that wait for them are deferred
    here.
    """

    __slots__ = ("base_offset", "builder", "events", "guard", "linger_task", "next_offset")

    def __init__(
        self,
        base_offset: int,
        max_size: int,
        compression: CompressionType,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: VerificationGuard = SENTINEL,
    ) -> None:
        self.base_offset = self.next_offset = base_offset
        transactional = producer_id != NO_PRODUCER_ID
        self.builder = RecordBatchBuilder(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            # Coordinators do not number their batches, and the log does not check the sequence; but it must not be -1.
            base_sequence=0 if transactional else NO_SEQUENCE,
            is_transactional=transactional,
            max_size=max_size,
        )
        self.guard = guard
        self.events: list[DeferredEvent] = []
        self.linger_task: TimerTask | None = None

    def append(self, timestamp_ms: int, key: bytes, value: bytes | None) -> None:
        self.builder.append(timestamp_ms, key, value)
        self.next_offset += 1
