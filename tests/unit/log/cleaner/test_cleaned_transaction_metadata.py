"""Which traces of transactions can go."""

from __future__ import annotations

from pathlib import Path

from barnabas.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
from barnabas.log.index.transaction_index import TransactionIndex
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    control_batch,
    end_transaction_marker_batch,
)


def data(offset: int, producer_id: int, *, transactional: bool = True) -> RecordBatch:
    builder = RecordBatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
    )
    builder.append(0, b"k", b"v")
    return RecordBatch(builder.close())


def end(offset: int, producer_id: int, kind: ControlRecordType) -> RecordBatch:
    marker = EndTransactionMarker(kind, 0)
    return RecordBatch(
        end_transaction_marker_batch(
            marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=offset
        )
    )


def aborted(producer_id: int, first: int, last: int) -> AbortedTxn:
    return AbortedTxn(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=last + 1)


ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def test_aborted_batches_go_and_their_marker_stays_with_an_entry(tmp_path: Path) -> None:
    transactions = CleanedTransactionMetadata()
    transactions.cleaned_index = TransactionIndex(0, tmp_path / "0.txnindex")
    # As it comes where a transaction spans two segments: twice.
    transactions.add_aborted_transactions([aborted(7, 1, 3), aborted(8, 5, 6)])
    transactions.add_aborted_transactions([aborted(7, 1, 3)])
    assert not transactions.on_batch_read(data(0, 7))  # of an earlier transaction
    assert transactions.on_batch_read(data(1, 7))
    assert not transactions.on_batch_read(data(2, 9))
    assert not transactions.on_batch_read(data(2, 7, transactional=False))
    assert not transactions.on_control_batch_read(end(3, 7, ABORT))
    assert not transactions.on_batch_read(data(4, 7))  # its next transaction commits
    assert transactions.on_control_batch_read(end(6, 8, ABORT))  # all of its batches are gone
    assert not transactions.on_control_batch_read(end(7, 7, COMMIT))
    assert transactions.on_control_batch_read(end(8, 7, COMMIT))  # nothing before it any more
    assert not transactions.on_control_batch_read(end(9, 9, COMMIT))
    assert transactions.cleaned_index.all_aborted_txns() == [aborted(7, 1, 3)]


def test_markers_that_were_emptied_can_go_and_other_control_records_stay() -> None:
    transactions = CleanedTransactionMetadata()
    empty = RecordBatchBuilder(base_offset=5, is_control=True)
    empty.override_last_offset(5)
    assert transactions.on_control_batch_read(RecordBatch(empty.close()))
    leader_change = control_batch([(ControlRecordType.LEADER_CHANGE, b"")], timestamp_ms=0)
    assert not transactions.on_control_batch_read(RecordBatch(leader_change))
    transactions.add_aborted_transactions([aborted(7, 6, 7)])
    assert transactions.on_batch_read(data(6, 7))
    assert not transactions.on_control_batch_read(end(7, 7, ABORT))  # with no index to note it in
