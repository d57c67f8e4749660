from __future__ import annotations

import logging

import pytest

from barnabas.common.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_append_info import ProducerAppendInfo
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.txn_metadata import CompletedTxn
from barnabas.log.producers.verification_state import VerificationStateEntry
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType
from unit.log.producers.producer_samples import NOW, PARTITION, data_batch, entry, marker_batch

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
MAX_SEQUENCE = 2**31 - 1

KNOWN = entry(1, BatchMetadata(9, 99, 9, NOW), epoch=3)
"""A producer in epoch 3 that has written the sequence numbers up to 9."""


def append_info(
    current: ProducerStateEntry = KNOWN,
    origin: AppendOrigin = CLIENT,
    verification: VerificationStateEntry | None = None,
) -> ProducerAppendInfo:
    return ProducerAppendInfo(PARTITION, 1, current, origin, verification)


def verification(sequence: int, *, supports_epoch_bump: bool = False) -> VerificationStateEntry:
    return VerificationStateEntry(NOW, sequence, 3, supports_epoch_bump=supports_epoch_bump)


# Sequence numbers


def test_the_next_batch() -> None:
    info = append_info()
    assert info.append(data_batch(1, 100, 10, 5, epoch=3, timestamp=77)) is None
    assert info.entry == entry(1, BatchMetadata(14, 104, 4, 77), epoch=3, timestamp=77)
    assert KNOWN.last_seq == 9  # what the log knows has not changed


def test_several_batches_of_one_append_follow_each_other() -> None:
    info = append_info()
    for start in range(10, 80, 10):
        info.append(data_batch(1, start + 90, start, 10, epoch=3))
    assert [batch.last_seq for batch in info.entry.batches] == [39, 49, 59, 69, 79]
    with pytest.raises(OutOfOrderSequenceError, match=r"Sequence number 81 .*the last one was 79"):
        info.append(data_batch(1, 170, 81, epoch=3))


@pytest.mark.parametrize("sequence", [0, 8, 9, 11, MAX_SEQUENCE])
def test_a_gap_or_a_step_back(sequence: int) -> None:
    with pytest.raises(
        OutOfOrderSequenceError, match=f"Sequence number {sequence} of producer 1 at offset 100 of topic-0"
    ):
        append_info().append(data_batch(1, 100, sequence, epoch=3))


def test_sequence_numbers_start_again_after_the_last_one() -> None:
    current = entry(1, BatchMetadata(MAX_SEQUENCE, 99, 9, NOW), epoch=3)
    info = append_info(current)
    info.append(data_batch(1, 100, 0, epoch=3))
    assert info.entry.last_seq == 0
    with pytest.raises(OutOfOrderSequenceError):
        append_info(current).append(data_batch(1, 100, 1, epoch=3))


def test_a_batch_across_the_last_number() -> None:
    info = append_info(entry(1, BatchMetadata(MAX_SEQUENCE - 2, 99, 9, NOW), epoch=3))
    batch = data_batch(1, 100, MAX_SEQUENCE - 1, 5, epoch=3)
    info.append(batch)
    (known,) = info.entry.batches
    assert (known.first_seq, known.last_seq) == (MAX_SEQUENCE - 1, 2)
    assert info.entry.find_duplicate_batch(batch) == known
    info.append(data_batch(1, 105, 3, epoch=3))


def test_a_new_epoch_starts_at_zero() -> None:
    info = append_info()
    info.append(data_batch(1, 100, 0, 2, epoch=4))
    assert info.entry.producer_epoch == 4
    info.append(data_batch(1, 102, 2, epoch=4))
    assert [batch.last_seq for batch in info.entry.batches] == [1, 2]
    with pytest.raises(OutOfOrderSequenceError, match=r"epoch 4 is new \(the last one was 3\) and has to start at 0"):
        append_info().append(data_batch(1, 100, 10, epoch=4))


def test_an_unknown_producer_may_start_anywhere() -> None:
    info = append_info(ProducerStateEntry(1))
    info.append(data_batch(1, 0, 1234, epoch=7))
    assert info.entry.producer_epoch == 7
    # Kafka does not look at the order within the first append either.
    info.append(data_batch(1, 1, 99, epoch=7))


def test_an_epoch_that_has_only_a_marker_starts_at_zero() -> None:
    current = entry(1, epoch=3)
    append_info(current).append(data_batch(1, 100, 0, epoch=3))
    with pytest.raises(OutOfOrderSequenceError, match="the last one was -1"):
        append_info(current).append(data_batch(1, 100, 1, epoch=3))


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_have_sequence_numbers_to_check(origin: AppendOrigin) -> None:
    info = append_info(origin=origin)
    info.append(data_batch(1, 100, 500, epoch=3))
    assert info.entry.last_seq == 500


def test_batches_without_sequence_numbers() -> None:
    info = append_info(origin=COORDINATOR)
    info.append_data_batch(3, -1, -1, NOW, 100, 102, is_transactional=True)
    assert info.entry.last_seq == -1
    assert info.entry.current_txn_first_offset == 100


# Epochs


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_an_old_epoch_is_refused(origin: AppendOrigin) -> None:
    with pytest.raises(InvalidProducerEpochError, match="Epoch 2 of producer 1 at offset 100 of topic-0 is below 3"):
        append_info(origin=origin).append(data_batch(1, 100, 10, epoch=2))


def test_replication_takes_what_the_leader_has(caplog: pytest.LogCaptureFixture) -> None:
    info = append_info(origin=REPLICATION)
    with caplog.at_level(logging.WARNING):
        info.append(data_batch(1, 100, 10, epoch=2))
    assert "Epoch 2 of producer 1" in caplog.text
    assert info.entry.producer_epoch == 2


# Transactions


def test_a_transaction_begins_with_its_first_batch() -> None:
    info = append_info()
    where = LogOffsetMetadata(100, 50, 4096)
    info.append(data_batch(1, 100, 10, 5, epoch=3, transactional=True), where)
    info.append(data_batch(1, 105, 15, 5, epoch=3, transactional=True), LogOffsetMetadata(105, 50, 5000))
    (started,) = info.started_transactions
    assert (started.producer_id, started.first_offset, started.last_offset) == (1, where, None)
    assert info.entry.current_txn_first_offset == 100


def test_a_transaction_that_is_open_goes_on() -> None:
    info = append_info(entry(1, BatchMetadata(9, 99, 9, NOW), epoch=3, txn_first_offset=90))
    info.append(data_batch(1, 100, 10, epoch=3, transactional=True))
    assert info.started_transactions == []
    assert info.entry.current_txn_first_offset == 90


def test_nothing_else_is_written_during_a_transaction() -> None:
    info = append_info(entry(1, BatchMetadata(9, 99, 9, NOW), epoch=3, txn_first_offset=90))
    with pytest.raises(InvalidTxnStateError, match="began at offset 90 is still open"):
        info.append(data_batch(1, 100, 10, epoch=3))
    assert info.entry.is_empty


OPEN = entry(1, BatchMetadata(9, 99, 9, NOW), epoch=3, coordinator_epoch=5, txn_first_offset=90)


@pytest.mark.parametrize("abort", [True, False])
def test_a_marker_ends_a_transaction(abort: bool) -> None:
    info = append_info(OPEN, COORDINATOR)
    batch = marker_batch(1, 100, epoch=3, coordinator_epoch=6, abort=abort, timestamp=88)
    assert info.append(batch, transaction_version=1) == CompletedTxn(1, 90, 100, abort)
    assert info.entry == entry(1, epoch=3, coordinator_epoch=6, timestamp=88)
    assert info.started_transactions == []


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    info = append_info(KNOWN, COORDINATOR)
    assert info.append(marker_batch(1, 100, epoch=3), transaction_version=0) is None
    assert info.entry.coordinator_epoch == 0


def test_transactions_within_one_replicated_append() -> None:
    info = append_info(ProducerStateEntry(1), REPLICATION)
    info.append(data_batch(1, 0, 0, transactional=True))
    assert info.append(marker_batch(1, 1)) == CompletedTxn(1, 0, 1, is_aborted=False)
    info.append(data_batch(1, 2, 1, transactional=True))
    assert [started.first_offset.message_offset for started in info.started_transactions] == [0, 2]
    assert info.entry.current_txn_first_offset == 2


def test_an_old_coordinator_is_refused() -> None:
    batch = marker_batch(1, 100, epoch=3, coordinator_epoch=4)
    with pytest.raises(TransactionCoordinatorFencedError, match=r"Coordinator epoch 4 .* is below 5"):
        append_info(OPEN, COORDINATOR).append(batch, transaction_version=1)
    info = append_info(OPEN, REPLICATION)
    assert info.append(batch) is not None
    assert info.entry.coordinator_epoch == 4


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_the_older_versions_has_the_epoch_of_the_records(version: int) -> None:
    for epoch in (3, 4):
        assert append_info(OPEN, COORDINATOR).append(
            marker_batch(1, 100, epoch=epoch, coordinator_epoch=5), None, version
        )
    with pytest.raises(InvalidProducerEpochError, match="is below 3"):
        append_info(OPEN, COORDINATOR).append(marker_batch(1, 100, epoch=2, coordinator_epoch=5), None, version)


def test_a_marker_of_version_2_has_a_newer_epoch() -> None:
    info = append_info(OPEN, COORDINATOR)
    assert info.append(marker_batch(1, 100, epoch=4, coordinator_epoch=5), None, 2) == CompletedTxn(1, 90, 100, False)
    assert info.entry.producer_epoch == 4
    for epoch in (3, 2):
        with pytest.raises(InvalidProducerEpochError, match=f"Epoch {epoch} of producer 1 .* is not above 3"):
            append_info(OPEN, COORDINATOR).append(marker_batch(1, 100, epoch=epoch, coordinator_epoch=5), None, 2)


def test_a_marker_of_version_2_may_come_again() -> None:
    ended = entry(1, epoch=4, coordinator_epoch=5)
    assert append_info(ended, COORDINATOR).append(marker_batch(1, 101, epoch=4, coordinator_epoch=5), None, 2) is None
    with pytest.raises(InvalidProducerEpochError):
        append_info(ended, COORDINATOR).append(marker_batch(1, 101, epoch=3, coordinator_epoch=5), None, 2)


def test_the_highest_epoch_cannot_be_raised() -> None:
    current = entry(1, BatchMetadata(9, 99, 9, NOW), epoch=32767, txn_first_offset=90)
    batch = marker_batch(1, 100, epoch=32767)
    assert append_info(current, COORDINATOR).append(batch, None, 2) == CompletedTxn(1, 90, 100, False)


def test_who_writes_a_marker_must_know_its_version() -> None:
    with pytest.raises(ValueError, match="a marker from COORDINATOR needs the version"):
        append_info(OPEN, COORDINATOR).append(marker_batch(1, 100, epoch=3))


def test_what_compaction_left_of_a_transaction() -> None:
    header = bytearray(marker_batch(1, 100, epoch=3).view[:61])
    header[8:12] = (61 - 12).to_bytes(4)
    header[57:61] = bytes(4)
    info = append_info(OPEN, COORDINATOR)
    assert info.append(RecordBatch(header)) is None
    assert info.entry.current_txn_first_offset == 90


def test_a_control_batch_that_is_no_marker() -> None:
    builder = RecordBatchBuilder(base_offset=100, producer_id=1, producer_epoch=3, is_control=True)
    builder.append(NOW, ControlRecordType.LEADER_CHANGE.key(), b"")
    batch = RecordBatch(builder.close())
    with pytest.raises(InvalidRecordError, match="does not end a transaction"):
        append_info(OPEN, COORDINATOR).append(batch)
    damaged = bytearray(marker_batch(1, 100, epoch=3).view)
    damaged[61] = 0xFF
    with pytest.raises((CorruptRecordError, InvalidRecordError)):
        append_info(OPEN, COORDINATOR).append(RecordBatch(damaged))


# Verification


def test_a_batch_does_not_overtake_one_that_waits_to_be_verified() -> None:
    append_info(verification=verification(10)).append(data_batch(1, 100, 10, epoch=3, transactional=True))
    with pytest.raises(OutOfOrderSequenceError, match=r"Sequence number 10 .*batch 5 waits before it"):
        append_info(verification=verification(5)).append(data_batch(1, 100, 10, epoch=3, transactional=True))


def test_the_first_batch_of_a_transaction_of_version_2_starts_at_zero() -> None:
    waiting = verification(10, supports_epoch_bump=True)
    unknown = ProducerStateEntry(1)
    with pytest.raises(OutOfOrderSequenceError, match="first batch here has to start at 0"):
        append_info(unknown, verification=waiting).append(data_batch(1, 0, 10, epoch=3, transactional=True))
    append_info(unknown, verification=waiting).append(data_batch(1, 0, 0, epoch=3, transactional=True))
    append_info(KNOWN, verification=waiting).append(data_batch(1, 100, 10, epoch=3, transactional=True))
    # An older client keeps its epoch, and so may well go on from where it was.
    append_info(unknown, verification=verification(10)).append(data_batch(1, 0, 10, epoch=3, transactional=True))


def test_repr() -> None:
    info = append_info()
    info.append(data_batch(1, 100, 10, epoch=3, transactional=True))
    assert "TxnMetadata(producer_id=1, first_offset=100, last_offset=None)" in repr(info)
    assert "last_seq=10" in repr(info)
