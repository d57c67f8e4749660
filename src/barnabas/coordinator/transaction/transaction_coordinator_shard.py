"""The state machine of the transaction coordinator, for one partition of ``__transaction_state``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from barnabas.common.errors import Errors, ProducerFencedError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.snapshot_registry import LATEST_EPOCH, TimelineHashMap
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.coordinator.transaction.pending_complete_txn import PendingCompleteTxn
from barnabas.coordinator.transaction.transaction_metadata import (
    NO_PRODUCER,
    ProducerIdAndEpoch,
    TransactionMetadata,
    is_epoch_exhausted,
)
from barnabas.coordinator.transaction.transaction_records import tombstone, transaction_of, transaction_record
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import FEATURE_NAME, TransactionVersion
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.control import ControlRecordType

logger = LimitedLogger(logging.getLogger(__name__))

_SEND_MARKERS: Final = "send-markers"
_MAX_TOMBSTONES: Final = 1000
"""The maximum number of IDs that are removed at once."""


class ProducerResult(NamedTuple):
    """The response to InitProducerId and EndTxn: a producer ID and epoch, or an error."""

    error: Errors
    producer: ProducerIdAndEpoch = NO_PRODUCER
    ongoing: ProducerIdAndEpoch = NO_PRODUCER
    """The producer of a transaction that InitProducerId keeps."""


class TransactionRef(NamedTuple):
    """Identifies a transaction of a producer for a later decision."""

    transactional_id: str
    producer: ProducerIdAndEpoch


class NeedsProducerIdError(Exception):
    """The operation needs a new producer ID, and must be retried with one."""


class MarkerSender(Protocol):
    """Writes markers to the partitions of a decided transaction, and reports when that is done."""

    def add_txn_markers_to_send(self, transaction: PendingCompleteTxn) -> None: ...


class TransactionCoordinatorShard:
    """The transactional IDs of one partition, and their transactions.

    Each method is an event. It uses the latest state, committed or not, and returns the records to write and the
    response. Errors are responses too, not exceptions: they may depend on a write in progress, and must not be sent if
    that fails.

    When a transaction is decided, its markers are sent. That must happen after the decision is committed, because a new
    coordinator might decide otherwise. So the write's `append_future` triggers it. If the outcome of the write is
    unknown in time, a timer looks for transactions that wait for markers, as after a load: `PREPARE_COMMIT` in the log
    is sufficient.
    """

    def __init__(
        self,
        context: ShardContext,
        markers: MarkerSender,
        coordinator_epoch: Callable[[], int],
    ) -> None:
        """`coordinator_epoch` returns the leader epoch in which this broker is the coordinator."""
        self._partition = context.partition.partition
        self._timer = context.timer
        self._now_ms = context.clock.milliseconds
        self._markers = markers
        self._coordinator_epoch = coordinator_epoch
        self._transactions: TimelineHashMap[str, TransactionMetadata] = TimelineHashMap(context.registry)
        self._prepared: tuple[TransactionLogValue, TransactionMetadata] | None = None
        """The last written state, because the record lacks a part of it: see `last_producer_epoch`."""
        self._server_version = TransactionVersion.TV_0

    # -- InitProducerId

    def init_producer_id(
        self,
        transactional_id: str,
        txn_timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_producer_id: int | None,
        *,
        keep_prepared_txn: bool = False,
    ) -> CoordinatorResult[ProducerResult]:
        """Initializes a producer (or continues one, given `expected`): assigns an epoch, which fences the previous one.

        An open transaction of the previous producer is aborted first, and the response is CONCURRENT_TRANSACTIONS until
        that is done. With `keep_prepared_txn` it stays open, and the response has its producer.
        """
        if keep_prepared_txn and not self._server_version.supports_epoch_bump:
            return _refused(Errors.UNSUPPORTED_VERSION)
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            metadata = TransactionMetadata(
                transactional_id=transactional_id,
                producer_id=_required(new_producer_id),
                txn_timeout_ms=txn_timeout_ms,
                txn_last_update_timestamp=self._now_ms(),
            )
        elif expected is not None and not _may_continue(metadata, expected):
            return _refused(Errors.PRODUCER_FENCED)
        if metadata.state.is_prepared:
            return _refused(Errors.CONCURRENT_TRANSACTIONS)
        if metadata.state is TransactionState.ONGOING and keep_prepared_txn:
            return self._keep(metadata, txn_timeout_ms, expected, new_producer_id)
        if metadata.state is TransactionState.ONGOING:
            aborted = self._fence_and_abort(metadata, new_producer_id)
            return self._write_decision(aborted, ProducerResult(Errors.CONCURRENT_TRANSACTIONS))
        try:
            after = self._next_producer(metadata, txn_timeout_ms, expected, new_producer_id)
        except ProducerFencedError as error:
            logger.info("%s: %s", transactional_id, error)
            return _refused(Errors.PRODUCER_FENCED)
        return CoordinatorResult([self._record(after)], ProducerResult(Errors.NONE, after.producer))

    def _keep(
        self,
        metadata: TransactionMetadata,
        txn_timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_producer_id: int | None,
    ) -> CoordinatorResult[ProducerResult]:
        next_id = _required(new_producer_id) if metadata.is_producer_epoch_exhausted else NO_PRODUCER_ID
        try:
            after = metadata.keep(next_id, txn_timeout_ms, None if expected is None else expected.epoch, self._now_ms())
        except ProducerFencedError as error:
            logger.info("%s: %s", metadata.transactional_id, error)
            return _refused(Errors.PRODUCER_FENCED)
        return CoordinatorResult(
            [self._record(after)], ProducerResult(Errors.NONE, after.client, ongoing=after.producer)
        )

    def _next_producer(
        self,
        metadata: TransactionMetadata,
        txn_timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_producer_id: int | None,
    ) -> TransactionMetadata:
        now_ms = self._now_ms()
        if metadata.is_producer_epoch_exhausted and (expected is None or expected.epoch == metadata.producer_epoch):
            return metadata.rotate_producer_id(
                _required(new_producer_id), txn_timeout_ms, now_ms, record_last_epoch=expected is not None
            )
        return metadata.increment_producer_epoch(txn_timeout_ms, None if expected is None else expected.epoch, now_ms)

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: TransactionVersion,
    ) -> CoordinatorResult[Errors]:
        """Adds partitions to the producer's transaction, which begins with the first of them."""
        metadata = self._transactions.get(transactional_id)
        error = _check_producer(metadata, producer)
        if metadata is None or error:
            return CoordinatorResult((), error)
        if metadata.state.is_prepared:
            return CoordinatorResult((), Errors.CONCURRENT_TRANSACTIONS)
        if metadata.is_kept:
            return CoordinatorResult((), Errors.INVALID_TXN_STATE)  # it can only be ended
        if metadata.state is TransactionState.ONGOING and metadata.topic_partitions.issuperset(partitions):
            return CoordinatorResult((), Errors.NONE)
        after = metadata.add_partitions(partitions, self._now_ms(), client_version)
        return CoordinatorResult([self._record(after)], Errors.NONE)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        committed_offset: int = LATEST_EPOCH,
    ) -> dict[TopicPartition, Errors]:
        """Returns whether partitions are part of the transaction, for brokers that have records of it (KIP-890)."""
        metadata = self._transactions.get(transactional_id, committed_offset)
        error = _check_producer(metadata, producer)
        if metadata is not None and not error and metadata.state.is_prepared:
            error = Errors.CONCURRENT_TRANSACTIONS
        if metadata is not None and not error and metadata.is_kept:
            error = Errors.INVALID_TXN_STATE
        if metadata is None or error:
            return dict.fromkeys(partitions, error)
        known = metadata.topic_partitions
        return {
            partition: Errors.NONE if partition in known else Errors.TRANSACTION_ABORTABLE for partition in partitions
        }

    # -- EndTxn

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        client_version: TransactionVersion,
        new_producer_id: int | None,
    ) -> CoordinatorResult[ProducerResult]:
        """Commits or aborts the transaction of a producer.

        With transaction version 2, the response has the producer ID and epoch of the next one.
        """
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            return _refused(Errors.INVALID_PRODUCER_ID_MAPPING)
        if client_version.supports_epoch_bump:
            decided = self._check_end_with_epoch_bump(metadata, producer, commit=commit)
        else:
            decided = self._check_end(metadata, producer, commit=commit)
        if decided is Errors.NONE and client_version.supports_epoch_bump:
            # It is already done, and the response was lost.
            return CoordinatorResult((), ProducerResult(Errors.NONE, metadata.producer))
        if decided is not None:
            return _refused(decided)
        next_producer_id = NO_PRODUCER_ID
        if client_version.supports_epoch_bump and metadata.is_producer_epoch_exhausted:
            next_producer_id = _required(new_producer_id)
        after = metadata.prepare_abort_or_commit(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            client_version,
            next_producer_id,
            self._now_ms(),
        )
        response = ProducerResult(Errors.NONE, after.complete(after.txn_last_update_timestamp).producer)
        return self._write_decision(after, response)

    @staticmethod
    def _check_end(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool) -> Errors | None:
        """Returns an immediate error; None if the transaction can be ended. For transaction versions before 2."""
        error = _check_producer(metadata, producer)
        if error:
            return error
        if metadata.is_kept:
            return Errors.INVALID_TXN_STATE  # the producer could not learn its next ID and epoch
        state = metadata.state
        if state is TransactionState.ONGOING:
            return None
        if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
            return Errors.NONE
        if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
            return Errors.CONCURRENT_TRANSACTIONS
        return Errors.INVALID_TXN_STATE

    @staticmethod
    def _check_end_with_epoch_bump(
        metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> Errors | None:
        """Does the same for transaction version 2.

        There the epoch distinguishes a repeated request from one for the next transaction: the former has the previous
        epoch, or the last one of the previous ID.
        """
        state, client = metadata.state, metadata.client
        is_retry = metadata.is_retry(producer)
        if state.is_prepared:
            is_valid = is_retry
        elif state in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}:
            is_valid = is_retry or producer == client
        else:
            is_valid = producer == client
        if not is_valid:
            is_known = producer.producer_id in {client.producer_id, metadata.producer_id}
            return Errors.PRODUCER_FENCED if is_known else Errors.INVALID_PRODUCER_ID_MAPPING
        if state is TransactionState.ONGOING:
            return None
        if state is TransactionState.EMPTY:
            return Errors.INVALID_TXN_STATE if commit else None
        if state.is_prepared:
            same = state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
            return Errors.CONCURRENT_TRANSACTIONS if same else Errors.INVALID_TXN_STATE
        if is_retry:
            same = state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
            return Errors.NONE if same else Errors.INVALID_TXN_STATE
        # It is for the next transaction, which has no partitions: it cannot be committed, but it can be aborted.
        return Errors.INVALID_TXN_STATE if commit else None

    def abort_timed_out(
        self, transaction: TransactionRef, new_producer_id: int | None
    ) -> CoordinatorResult[ProducerResult]:
        """Aborts a transaction that has timed out, unless it has ended meanwhile."""
        metadata = self._transactions.get(transaction.transactional_id)
        error = _check_producer(metadata, transaction.producer)
        if metadata is None or error:
            return _refused(error)
        if not metadata.is_timed_out(self._now_ms()):
            return _refused(Errors.CONCURRENT_TRANSACTIONS)
        aborted = self._fence_and_abort(metadata, new_producer_id)
        return self._write_decision(aborted, ProducerResult(Errors.NONE, aborted.producer))

    def _fence_and_abort(self, metadata: TransactionMetadata, new_producer_id: int | None) -> TransactionMetadata:
        version = self._server_version  # there is no client request, so the cluster's version applies
        next_producer_id = NO_PRODUCER_ID
        if version.supports_epoch_bump and metadata.is_producer_epoch_exhausted:
            next_producer_id = _required(new_producer_id)
        logger.info(
            "Aborting the open transaction of %s, left by producer %s",
            metadata.transactional_id,
            metadata.producer,
        )
        return metadata.fence_and_abort(version, next_producer_id, self._now_ms())

    def _write_decision(
        self, prepared: TransactionMetadata, response: ProducerResult
    ) -> CoordinatorResult[ProducerResult]:
        """Writes that a transaction is committed or aborted, and sends its markers when that is committed."""
        written: Future[None] = Future()
        pending = self._pending(prepared)

        def on_written(future: Future[None]) -> None:
            if future.exception() is None:
                self._markers.add_txn_markers_to_send(pending)
            else:
                # The record may be in the log nevertheless. If not, there is nothing to find.
                self._look_for_pending_markers()

        written.add_done_callback(on_written)
        return CoordinatorResult([self._record(prepared)], response, append_future=written)

    def _pending(self, prepared: TransactionMetadata) -> PendingCompleteTxn:
        return PendingCompleteTxn(self._partition, self._coordinator_epoch(), prepared)

    # -- markers

    def complete_transaction(self, transaction: PendingCompleteTxn) -> CoordinatorResult[bool]:
        """Completes a transaction whose markers are written. Returns whether this coordinator owned it."""
        prepared = transaction.metadata
        metadata = self._transactions.get(prepared.transactional_id)
        if metadata is None or metadata.state is not prepared.state or metadata.producer != prepared.producer:
            return CoordinatorResult((), False)
        return CoordinatorResult([self._record(metadata.complete(self._now_ms()))], True)

    def _look_for_pending_markers(self) -> None:
        self._timer.schedule(_SEND_MARKERS, 0, self.send_pending_markers)

    def send_pending_markers(self) -> CoordinatorResult[None]:
        """Sends the markers of all waiting transactions, when their decisions are committed."""
        pending = [self._pending(metadata) for metadata in self._transactions.values() if metadata.state.is_prepared]
        written: Future[None] = Future()

        def on_committed(future: Future[None]) -> None:
            if future.exception() is None:
                for transaction in pending:
                    self._markers.add_txn_markers_to_send(transaction)

        written.add_done_callback(on_committed)
        return CoordinatorResult((), None, append_future=written)

    # -- timeouts

    def timed_out_transactions(self, committed_offset: int = LATEST_EPOCH) -> list[TransactionRef]:
        now_ms = self._now_ms()
        return [
            TransactionRef(transactional_id, metadata.client)
            for transactional_id, metadata in self._transactions.items_at(committed_offset)
            if metadata.is_timed_out(now_ms)
        ]

    def remove_expired(self, expiration_ms: int) -> CoordinatorResult[int]:
        """Removes IDs that were unused for this time; returns their number. Some may be left for the next call."""
        now_ms = self._now_ms()
        expired = [
            metadata.expire().transactional_id
            for metadata in self._transactions.values()
            if metadata.is_expired(now_ms, expiration_ms)
        ][:_MAX_TOMBSTONES]
        return CoordinatorResult([tombstone(one) for one in expired], len(expired), is_atomic=False)

    # -- queries

    def transaction(self, transactional_id: str, committed_offset: int = LATEST_EPOCH) -> TransactionMetadata | None:
        return self._transactions.get(transactional_id, committed_offset)

    def transactions(self, committed_offset: int = LATEST_EPOCH) -> list[TransactionMetadata]:
        return [metadata for _, metadata in self._transactions.items_at(committed_offset)]

    # -- called by the runtime

    def _record(self, metadata: TransactionMetadata) -> CoordinatorRecord:
        record = transaction_record(metadata, self._server_version)
        assert isinstance(record.value, TransactionLogValue)
        self._prepared = record.value, metadata
        return record

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:  # noqa: ARG002
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self._transactions.pop(key.transactional_id)
            return
        assert isinstance(value, TransactionLogValue)
        prepared = self._prepared
        if prepared is not None and prepared[0] is value:
            self._transactions[key.transactional_id] = prepared[1]
            self._prepared = None
        else:
            self._transactions[key.transactional_id] = transaction_of(key, value)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        """Does nothing: this topic has no transactional records."""

    def on_loaded(self, image: MetadataImage) -> None:
        self._take_version(image)
        if any(metadata.state.is_prepared for metadata in self._transactions.values()):
            self._look_for_pending_markers()

    def on_unloaded(self) -> None:
        """Does nothing: the service stops the sending of markers."""

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.features is not None:
            self._take_version(image)

    def _take_version(self, image: MetadataImage) -> None:
        self._server_version = TransactionVersion.for_feature_level(image.features.level(FEATURE_NAME))


def _check_producer(metadata: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> Errors:
    if metadata is None:
        return Errors.INVALID_PRODUCER_ID_MAPPING
    present = metadata.client if metadata.is_kept else metadata.producer
    if producer == present:
        return Errors.NONE
    is_known = producer.producer_id in {present.producer_id, metadata.producer_id}
    return Errors.PRODUCER_FENCED if is_known else Errors.INVALID_PRODUCER_ID_MAPPING


def _may_continue(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Returns whether a producer with this ID and epoch may continue: no producer with another ID has replaced it.

    That is the case if its ID was just created (it recovers after it was removed), if the ID is the same (the epoch is
    checked later), or if it has the last epoch of the previous ID, and did not learn its new one.
    """
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.client.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_epoch_exhausted(expected.epoch))
    )


def _refused(error: Errors) -> CoordinatorResult[ProducerResult]:
    return CoordinatorResult((), ProducerResult(error))


def _required(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerIdError
    return producer_id
