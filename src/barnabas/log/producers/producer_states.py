"""The in-memory state of a log's producers and transactions.

It decides two questions for every batch:

**May it be appended?** `find_duplicate_batch` finds a batch that is already in the log. `analyze` checks the batches of
an append and rejects those that are out of order or from a fenced producer. See
`barnabas.log.producers.producer_append_info`.

**How far may a read-committed consumer read?** Up to the *first unstable offset*: the first record of the oldest
transaction that has no marker yet, or whose marker is not replicated yet::

      offset   10  11  12  13  14  15  16
      producer  A   B   A  cA   B  cB          (c: the commit marker)
                                               first unstable offset
      after 12: A and B are open               10
      after 13: A is committed, but the high watermark is 12        10
      the high watermark reaches 14: A's marker is replicated       11
      after 15, and the high watermark reaches 16                   none: all is stable

A transaction is in one of two tables, both ordered by first offset: *ongoing* until its marker is appended,
*unreplicated* until the high watermark is past the marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import InvalidProducerEpochError, InvalidTxnStateError
from barnabas.common.sorted_map import SortedMap
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN, ProducerAppendInfo
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.txn_metadata import CompletedTxn, TxnMetadata
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard, VerificationStateEntry
from barnabas.records.batch import LOG_OVERHEAD, NO_PRODUCER_ID, TRANSACTIONAL_MASK, RecordBatch

# Looked up once, because access to an enum member costs as much as a call.
CLIENT: Final = AppendOrigin.CLIENT
COORDINATOR: Final = AppendOrigin.COORDINATOR

_new_tuple = tuple.__new__
"""Creates a named tuple in one call; its class would add a Python call."""

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""How long a transaction may exceed its maximum timeout before it counts as late."""


@dataclass(slots=True)
class ProducerStateManagerConfig:
    """Dynamic settings: all logs share one object and read it at each use."""

    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    """``producer.id.expiration.ms``: how long an idle producer is remembered."""
    transaction_verification_enabled: bool = True
    """``transaction.partition.verification.enable``"""


class ProducerAnalysis(NamedTuple):
    """The result of `ProducerStates.analyze` for one append."""

    updated: dict[int, ProducerAppendInfo]
    """By producer id; passed to `ProducerStates.update` once the batches are in the log."""
    completed: list[CompletedTxn]
    """Transactions whose markers are among the batches; passed to `complete_txn` once their aborts are indexed."""


class ProducerStates:
    """The producers and transactions of one log.

    It has no lock of its own: every change requires the log's lock. Only `producer_id_count` and
    `has_late_transaction` may be read without it, for metrics.
    """

    def __init__(
        self,
        partition: TopicPartition,
        max_transaction_timeout_ms: int,
        config: ProducerStateManagerConfig,
        clock: Clock,
    ) -> None:
        self.partition = partition
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.config = config
        self._clock = clock
        self._producers: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, VerificationStateEntry] = {}
        self._ongoing: SortedMap[TxnMetadata] = SortedMap()
        self._unreplicated: SortedMap[TxnMetadata] = SortedMap()
        self._oldest_txn_last_timestamp = -1
        self.may_have_transactions = False
        """False if both tables are empty, so that every offset is stable. Every append checks this."""

    # Producers

    @property
    def producer_id_count(self) -> int:
        return len(self._producers)

    @property
    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def load_producer_entry(self, entry: ProducerStateEntry) -> None:
        """Adds an entry from a snapshot, with its open transaction."""
        self._producers[entry.producer_id] = entry
        first_offset = entry.current_txn_first_offset
        if first_offset is not None:
            self._ongoing[first_offset] = TxnMetadata(entry.producer_id, LogOffsetMetadata(first_offset))
            self.may_have_transactions = True
            self._note_oldest_transaction()

    def remove_expired_producers(self, now_ms: int) -> None:
        """Removes producers that have been idle for too long, and verifications that never finished."""
        expired = [id_ for id_, entry in self._producers.items() if self.is_producer_expired(now_ms, entry)]
        for producer_id in expired:
            del self._producers[producer_id]
        limit = self.config.producer_id_expiration_ms
        stale = [id_ for id_, entry in self._verifications.items() if now_ms - entry.timestamp >= limit]
        for producer_id in stale:
            del self._verifications[producer_id]

    def is_producer_expired(self, now_ms: int, entry: ProducerStateEntry) -> bool:
        """Whether a producer can be removed: never while it has an open transaction."""
        return (
            entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= self.config.producer_id_expiration_ms
        )

    def clear(self) -> None:
        """Removes producers and transactions. Verifications stay: they belong to requests in progress."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.may_have_transactions = False
        self._note_oldest_transaction()

    # Appends

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begins an append by a producer."""
        current = self._producers.get(producer_id) or ProducerStateEntry(producer_id)
        return ProducerAppendInfo(self.partition, producer_id, current, origin, self._verifications.get(producer_id))

    def update(self, info: ProducerAppendInfo) -> None:
        """Applies an append after its batches are in the log."""
        producer_id = info.producer_id
        if producer_id == NO_PRODUCER_ID:
            raise ValueError(f"{self.partition}: batches without a producer id have no state")
        current = self._producers.get(producer_id)
        if current is None:
            self._producers[producer_id] = info.entry
        else:
            current.update(info.entry)
        for transaction in info.started_transactions:
            self._ongoing[transaction.first_offset.message_offset] = transaction
            self.may_have_transactions = True
        if self.may_have_transactions:
            self._note_oldest_transaction()

    def analyze(
        self,
        batches: Iterable[RecordBatch],
        origin: AppendOrigin,
        *,
        append_offset: LogOffsetMetadata | None = None,
        guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> ProducerAnalysis:
        """Checks the batches of an append, which already have offsets and are not duplicates.

        Raises the error of the first invalid batch. `append_offset` is where the batches will be in the log. `guard` is
        the one that the request got when verification began. The writer of markers sets `transaction_version`.
        """
        updated: dict[int, ProducerAppendInfo] = {}
        completed: list[CompletedTxn] = []
        position = 0 if append_offset is None else append_offset.relative_position_in_segment
        for batch in batches:
            if batch.producer_id >= 0:
                first_offset = None
                if batch.attributes & TRANSACTIONAL_MASK:
                    if origin is CLIENT or origin is COORDINATOR:
                        self._check_transaction(batch, guard)
                    if append_offset is not None:
                        first_offset = LogOffsetMetadata(batch.base_offset, append_offset.segment_base_offset, position)
                done = self.update_producers(batch, updated, origin, first_offset, transaction_version)
                if done is not None:
                    completed.append(done)
            position += batch.batch_length + LOG_OVERHEAD
        return _new_tuple(ProducerAnalysis, (updated, completed))

    def find_duplicate_batch(self, batch: RecordBatch) -> BatchMetadata | None:
        """Returns the batch of the same producer that this one repeats."""
        entry = self._producers.get(batch.producer_id)
        return None if entry is None else entry.find_duplicate_batch(batch)

    def update_producers(
        self,
        batch: RecordBatch,
        infos: dict[int, ProducerAppendInfo],
        origin: AppendOrigin,
        first_offset: LogOffsetMetadata | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> CompletedTxn | None:
        """Adds one batch to `infos`, which earlier calls have filled; also used when a log is read again."""
        producer_id = batch.producer_id
        info = infos.get(producer_id)
        if info is None:
            info = infos[producer_id] = self.prepare_update(producer_id, origin)
        completed = info.append(batch, first_offset, transaction_version)
        if batch.attributes & TRANSACTIONAL_MASK:
            verification = self._verifications.get(producer_id)
            # A verification ends with its batch or with the transaction. But a marker of version 2 carries the epoch
            # of the *next* transaction: if that transaction is being verified, the verification continues.
            if verification is not None and not (
                verification.supports_epoch_bump
                and batch.is_control_batch
                and batch.producer_epoch == verification.epoch
            ):
                self.clear_verification_state_entry(producer_id)
        return completed

    def _check_transaction(self, batch: RecordBatch, guard: VerificationGuard) -> None:
        """Raises unless a transactional batch belongs to a transaction that is open here or has been verified."""
        if self.has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
            return
        self._check_epoch_is_current(batch.producer_id, batch.producer_epoch)
        if self.batch_missing_required_verification(batch, guard):
            raise InvalidTxnStateError(
                f"A batch of producer {batch.producer_id} for {self.partition} is not part of an ongoing transaction"
            )

    # Verification of transactions

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == epoch

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Returns the guard for the verification of a transactional batch; `SENTINEL` if none is needed.

        `InvalidProducerEpochError` if the batch would be rejected anyway.
        """
        self._check_epoch_is_current(producer_id, epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return SENTINEL
        return self.maybe_create_verification_state_entry(
            producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump
        ).verification_guard

    def _check_epoch_is_current(self, producer_id: int, epoch: int) -> None:
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"Epoch {epoch} of producer {producer_id} is below {entry.producer_epoch}, the last one seen in "
                f"{self.partition}"
            )

    def maybe_create_verification_state_entry(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationStateEntry:
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = self._verifications[producer_id] = VerificationStateEntry(
                self._clock.milliseconds(), sequence, epoch, supports_epoch_bump=supports_epoch_bump
            )
        else:
            entry.maybe_update_lowest_sequence_and_epoch(sequence, epoch)
        return entry

    def verification_state_entry(self, producer_id: int) -> VerificationStateEntry | None:
        return self._verifications.get(producer_id)

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        entry = self._verifications.get(producer_id)
        return SENTINEL if entry is None else entry.verification_guard

    def clear_verification_state_entry(self, producer_id: int) -> None:
        self._verifications.pop(producer_id, None)

    def batch_missing_required_verification(self, batch: RecordBatch, guard: VerificationGuard) -> bool:
        """Whether a transactional batch lacks the verification that it needs. Markers need none."""
        return (
            self.config.transaction_verification_enabled
            and not batch.is_control_batch
            and not self.verification_guard(batch.producer_id).verify(guard)
        )

    # Transactions

    @property
    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """The first offset that a read-committed consumer may not read yet; None if all offsets are stable."""
        undecided, unreplicated = self._ongoing.first(), self._unreplicated.first()
        if unreplicated is None:
            return None if undecided is None else undecided.first_offset
        if undecided is None or unreplicated.first_offset.message_offset <= undecided.first_offset.message_offset:
            return unreplicated.first_offset
        return undecided.first_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of a transaction without a marker, replicated or not."""
        oldest = self._ongoing.first()
        return None if oldest is None else oldest.first_offset.message_offset

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset after `completed` is applied: the transaction index needs it before that."""
        for transaction in self._ongoing.values():
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset.message_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Moves a transaction to *unreplicated*, once its marker is in the log and an abort in the index."""
        transaction = self._ongoing.pop(completed.first_offset)
        if transaction is None:
            raise ValueError(f"{self.partition}: {completed} was never begun")
        transaction.last_offset = completed.last_offset
        self._unreplicated[completed.first_offset] = transaction
        self._note_oldest_transaction()

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Removes the transactions whose markers are now replicated."""
        self.remove_unreplicated_transactions(high_watermark)

    def remove_unreplicated_transactions(self, offset: int) -> None:
        if not self._unreplicated:
            return
        # A transaction that began at `offset` or later also ends later.
        for first_offset in self._unreplicated.keys_below(offset):
            last_offset = self._unreplicated[first_offset].last_offset
            if last_offset is not None and last_offset < offset:
                self._unreplicated.pop(first_offset)
        self.may_have_transactions = bool(self._ongoing) or bool(self._unreplicated)

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether a transaction has been open beyond the maximum timeout, so that nothing will end it.

        The age counts from the producer's last batch, so this errs on the side of reporting too late.
        """
        last = self._oldest_txn_last_timestamp
        return last > 0 and now_ms - last > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def _note_oldest_transaction(self) -> None:
        oldest = self._ongoing.first()
        entry = None if oldest is None else self._producers.get(oldest.producer_id)
        self._oldest_txn_last_timestamp = -1 if entry is None else entry.last_timestamp
