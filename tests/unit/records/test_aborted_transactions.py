"""Which batches a read-committed consumer does not get to see."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import InvalidRecordError
from barnabas.records.aborted_transactions import AbortedTransactions
from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch


def data(offset: int, producer_id: int, *, is_transactional: bool = True, count: int = 1) -> RecordBatch:
    builder = RecordBatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        is_transactional=is_transactional,
    )
    for _ in range(count):
        builder.append(1000, None, b"value")
    return RecordBatch(builder.close())


def end(offset: int, producer_id: int, control_type: ControlRecordType) -> RecordBatch:
    marker = EndTransactionMarker(control_type, 0)
    return RecordBatch(
        end_transaction_marker_batch(
            marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1000, base_offset=offset
        )
    )


def test_from_the_first_offset_to_the_marker() -> None:
    transactions = AbortedTransactions([(7, 5)])
    assert not transactions.hides(data(4, 7))
    assert transactions.hides(data(5, 7))
    assert not transactions.hides(data(6, 9))
    assert not transactions.hides(data(7, 7, is_transactional=False))
    assert transactions.hides(data(8, 7))
    assert transactions.hides(end(9, 7, ControlRecordType.ABORT))
    assert not transactions.hides(data(10, 7))


def test_a_transaction_that_begins_inside_a_batch_begins_with_it() -> None:
    assert AbortedTransactions([(7, 5)]).hides(data(3, 7, count=3))
    assert not AbortedTransactions([(7, 6)]).hides(data(3, 7, count=3))


def test_one_producer_aborts_twice() -> None:
    transactions = AbortedTransactions([(7, 10), (7, 0)])
    seen = [
        transactions.hides(batch)
        for batch in (
            data(0, 7),
            end(1, 7, ControlRecordType.ABORT),
            data(2, 7),
            end(3, 7, ControlRecordType.COMMIT),
            data(10, 7),
            end(11, 7, ControlRecordType.ABORT),
            data(12, 7),
        )
    ]
    assert seen == [True, True, False, False, True, True, False]


def test_batches_of_nobody_and_empty_markers() -> None:
    transactions = AbortedTransactions([(7, 0)])
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"value")
    assert not transactions.hides(RecordBatch(builder.close()))
    assert transactions.hides(data(1, 7))
    # Compaction may take the marker's record and leave its header: that ends nothing.
    emptied = RecordBatchBuilder(base_offset=2, producer_id=7, producer_epoch=0, is_control=True, is_transactional=True)
    emptied.override_last_offset(2)
    assert transactions.hides(RecordBatch(emptied.close()))
    assert transactions.hides(data(3, 7))


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_a_marker_is_read_whatever_it_looks_like(compression: CompressionType) -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    for key, ends in ((ControlRecordType.ABORT.key(), True), (ControlRecordType.COMMIT.key(), False)):
        transactions = AbortedTransactions([(7, 0)])
        marker = RecordBatchBuilder(is_control=True, is_transactional=True, compression=compression, **options)
        marker.append(1000, key, b"")
        assert transactions.hides(RecordBatch(marker.close()))
        assert transactions.hides(data(1, 7)) is not ends
    broken = RecordBatchBuilder(is_control=True, is_transactional=True, compression=compression, **options)
    broken.append(1000, b"", b"")
    with pytest.raises(InvalidRecordError, match="control record"):
        AbortedTransactions([(7, 0)]).hides(RecordBatch(broken.close()))
