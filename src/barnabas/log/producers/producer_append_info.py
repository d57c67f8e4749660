"""Checks a producer's batches and computes the producer state that results from them.

A producer numbers its records per partition with sequence numbers from 0 on. The batch header carries the first one;
the others follow from it. The log knows the last sequence number and classifies each batch:

    last number 41, batch 42-45     the next one: append
    last number 41, batch 40-41     one of the last five again: respond with its known offsets, append nothing
    last number 41, batch 44-47     42 and 43 are missing: out of order, the producer has to send them first

The producer's *epoch* identifies its incarnation: a batch with a lower epoch is from a fenced process.

This module does not access files or change the log's state. `ProducerAppendInfo` collects the changes. It is passed to
`ProducerStates.update` once the bytes are in the log.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.common.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.txn_metadata import CompletedTxn, TxnMetadata
from barnabas.log.producers.verification_state import VerificationStateEntry
from barnabas.records.batch import CONTROL_MASK, NO_PRODUCER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_MASK, RecordBatch
from barnabas.records.control import ControlRecordType, EndTransactionMarker
from barnabas.records.reader import read_records

logger = LimitedLogger(logging.getLogger(__name__))

# Looked up once, because access to an enum member costs as much as a call.
CLIENT: Final = AppendOrigin.CLIENT

TRANSACTION_VERSION_UNKNOWN: Final = -1
TRANSACTION_VERSION_WITH_EPOCH_BUMP: Final = 2
"""From this version of the transaction protocol on, each transaction has its own epoch (KIP-890)."""

_MAX_SEQUENCE: Final = 2**31 - 1
_new_tuple = tuple.__new__
"""Creates a named tuple in one call; its class would add a Python call."""
_MAX_EPOCH: Final = 2**15 - 1


class ProducerAppendInfo:
    """The batches of one producer in one append, each checked against the ones before it.

    The checks depend on the `AppendOrigin`: epochs and sequence numbers for clients, epochs for coordinators. Anomalies
    from replication are only logged.
    """

    __slots__ = ("_current", "_origin", "_partition", "_verification", "entry", "producer_id", "started_transactions")

    def __init__(
        self,
        partition: TopicPartition,
        producer_id: int,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationStateEntry | None = None,
    ) -> None:
        """`current` is the producer's state in the log, `verification` the ongoing verification of a transaction."""
        self._partition = partition
        self.producer_id = producer_id
        self._current = current
        self._origin = origin
        self._verification = verification
        self.entry = current.without_batches()
        """The producer's state after this append, with only the batches of this append."""
        self.started_transactions: list[TxnMetadata] = []
        """The transactions that this append begins. Only replication, with markers in between, has more than one."""

    def append(
        self,
        batch: RecordBatch,
        first_offset: LogOffsetMetadata | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> CompletedTxn | None:
        """Checks and adds a batch; returns the transaction that a marker completes, if it has records here.

        Reads only the header, except for markers, whose single record has to be read.
        """
        attributes = batch.attributes
        if not attributes & CONTROL_MASK:
            first_seq, delta = batch.base_sequence, batch.last_offset_delta
            self.append_data_batch(
                batch.producer_epoch,
                first_seq,
                NO_SEQUENCE if first_seq == NO_SEQUENCE else (first_seq + delta) & _MAX_SEQUENCE,
                batch.max_timestamp,
                batch.base_offset,
                batch.base_offset + delta,
                attributes & TRANSACTIONAL_MASK != 0,
                first_offset,
            )
            return None
        record = next(iter(read_records(batch, copy=False)), None)
        if record is None:
            return None  # compaction has removed the marker and the transaction's records
        marker = EndTransactionMarker.parse(record)
        return self.append_end_txn_marker(
            marker, batch.producer_epoch, batch.base_offset, record.timestamp, transaction_version
        )

    def append_data_batch(
        self,
        epoch: int,
        first_seq: int,
        last_seq: int,
        last_timestamp: int,
        offset: int,
        last_offset: int,
        is_transactional: bool,
        first_offset: LogOffsetMetadata | None = None,
    ) -> None:
        """Adds a batch of records, or raises if it is invalid. `first_offset` is the log position of `offset`."""
        updated = self.entry
        if epoch < updated.producer_epoch:
            self._check_producer_epoch(epoch, offset, TRANSACTION_VERSION_UNKNOWN)
        if self._origin is CLIENT:
            self._check_sequence(epoch, first_seq, offset)
        if not is_transactional and updated.current_txn_first_offset is not None:
            raise InvalidTxnStateError(
                f"Producer {self.producer_id} wrote outside of a transaction at offset {offset} of {self._partition}, "
                f"while the one it began at offset {updated.current_txn_first_offset} is still open"
            )
        updated.add_batch(
            epoch, _new_tuple(BatchMetadata, (last_seq, last_offset, last_offset - offset, last_timestamp))
        )
        if is_transactional and updated.current_txn_first_offset is None:
            updated.current_txn_first_offset = offset
            self.started_transactions.append(TxnMetadata(self.producer_id, first_offset or LogOffsetMetadata(offset)))

    def append_end_txn_marker(
        self,
        marker: EndTransactionMarker,
        producer_epoch: int,
        offset: int,
        timestamp: int,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> CompletedTxn | None:
        """Adds a marker, or raises if it is invalid. Returns None if the transaction has no records here.

        The writer of a marker knows the transaction version. The log does not store it, so replication applies the rule
        of the older versions.
        """
        if transaction_version == TRANSACTION_VERSION_UNKNOWN and self._origin is not AppendOrigin.REPLICATION:
            raise ValueError(f"a marker from {self._origin.name} needs the version of its transaction's protocol")
        self._check_producer_epoch(producer_epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker.coordinator_epoch, offset)
        updated = self.entry
        first_offset = updated.current_txn_first_offset
        updated.end_transaction(producer_epoch, marker.coordinator_epoch, timestamp)
        if first_offset is None:
            return None
        return CompletedTxn(self.producer_id, first_offset, offset, marker.control_type is ControlRecordType.ABORT)

    def _check_producer_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        """Raises if the epoch is older than the last one; only logs for replication.

        A marker of transaction version 2 must have a newer epoch: the coordinator raises the epoch before it writes
        markers, so a marker with the epoch of the records would belong to an earlier transaction. An equal epoch is
        valid in two cases: a repeated marker (no transaction is open), and the highest epoch, which cannot be raised.
        """
        last = self.entry.producer_epoch
        if transaction_version < TRANSACTION_VERSION_WITH_EPOCH_BUMP:
            if epoch >= last:
                return
            relation = "is below"
        else:
            if epoch > last:
                return
            if epoch == last and (self.entry.current_txn_first_offset is None or epoch == _MAX_EPOCH):
                logger.info(
                    "%s: a marker of producer %d with epoch %d comes again", self._partition, self.producer_id, epoch
                )
                return
            relation = "is not above"
        message = (
            f"Epoch {epoch} of producer {self.producer_id} at offset {offset} of {self._partition} {relation} {last}, "
            f"the last one seen"
        )
        if self._origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(message)
        logger.warning("%s", message)

    def _check_sequence(self, epoch: int, first_seq: int, offset: int) -> None:
        verification, current, updated = self._verification, self._current, self.entry
        if verification is not None:
            if verification.supports_epoch_bump and first_seq != 0 and current.is_empty:
                # Each transaction of version 2 starts a new epoch, hence at sequence 0. A first batch with another
                # sequence number means that earlier batches have not arrived yet.
                raise self._out_of_order(offset, first_seq, "the transaction's first batch here has to start at 0")
            if first_seq > verification.lowest_sequence:
                raise self._out_of_order(offset, first_seq, f"batch {verification.lowest_sequence} waits before it")
        if epoch != updated.producer_epoch:
            if first_seq != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                reason = f"epoch {epoch} is new (the last one was {updated.producer_epoch}) and has to start at 0"
                raise self._out_of_order(offset, first_seq, reason)
            return
        if current.producer_epoch == NO_PRODUCER_EPOCH:
            # The producer is unknown: it is new here, its records were deleted, or it expired while idle. It may
            # continue with any sequence number.
            return
        last_seq = updated.last_seq
        if last_seq == NO_SEQUENCE and epoch == current.producer_epoch:
            last_seq = current.last_seq
        if first_seq != last_seq + 1 and not (first_seq == 0 and last_seq == _MAX_SEQUENCE):
            raise self._out_of_order(offset, first_seq, f"the last one was {last_seq}")

    def _out_of_order(self, offset: int, first_seq: int, reason: str) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"Sequence number {first_seq} of producer {self.producer_id} at offset {offset} of {self._partition} is "
            f"out of order: {reason}"
        )

    def _check_coordinator_epoch(self, coordinator_epoch: int, offset: int) -> None:
        last = self.entry.coordinator_epoch
        if coordinator_epoch >= last:
            return
        message = (
            f"Coordinator epoch {coordinator_epoch} of a marker of producer {self.producer_id} at offset {offset} of "
            f"{self._partition} is below {last}, the last one seen"
        )
        if self._origin is not AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(message)
        logger.info("%s", message)

    def __repr__(self) -> str:
        return f"ProducerAppendInfo({self.entry!r}, started_transactions={self.started_transactions})"
