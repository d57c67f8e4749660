"""Idempotent producers and transactions in a log: duplicates, sequence numbers, the last stable offset, aborts."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaStorageError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.log_to_clean import LogToClean
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.verification_state import SENTINEL
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.control import ControlRecordType
from log_fixtures import (
    NOW,
    LogBox,
    all_records,
    append,
    client_batch,
    end_transaction,
    fetched_batches,
    fetched_bytes,
    marker,
    offsets,
    read_from,
    values,
)

COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT
DAY = 24 * 60 * 60 * 1000


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> UnifiedLog:
    return box.open()


def produce(log: UnifiedLog, sequence: int, *, producer_id: int = 1, epoch: int = 0, count: int = 1) -> LogAppendInfo:
    contents = [b"%d" % number for number in range(sequence, sequence + count)]
    return append(log, *contents, producer_id=producer_id, epoch=epoch, sequence=sequence)


def transact(log: UnifiedLog, sequence: int, *, producer_id: int = 1, epoch: int = 0, count: int = 1) -> LogAppendInfo:
    """Part of a transaction that the coordinator knows of."""
    guard = log.producers.maybe_start_transaction_verification(producer_id, sequence, epoch, supports_epoch_bump=False)
    contents = [b"t%d-%d" % (producer_id, number) for number in range(sequence, sequence + count)]
    batch = client_batch(contents, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
    return log.append_as_leader(batch, 0, verification_guard=guard)


class TestIdempotence:
    def test_a_batch_that_comes_again_is_acknowledged_with_its_offsets(self, log: UnifiedLog) -> None:
        append(log, b"before")
        first = produce(log, 0, count=3)
        again = produce(log, 0, count=3)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (1, 3)
        assert again.log_append_time == -1
        assert log.log_end_offset == 4

    def test_the_append_time_of_a_duplicate_is_that_of_the_original(self, box: LogBox) -> None:
        log = box.open(box.config(message_timestamp_type="LogAppendTime"))
        produce(log, 0)
        box.clock.advance(500)
        assert produce(log, 0).log_append_time == NOW

    @pytest.mark.parametrize("back", [1, 2, 3, 4, 5])
    def test_any_of_the_last_five(self, log: UnifiedLog, back: int) -> None:
        infos = [produce(log, number * 2, count=2) for number in range(9)]
        again = produce(log, (9 - back) * 2, count=2)
        assert again.is_duplicate
        assert again.first_offset == infos[9 - back].first_offset

    def test_the_sixth_is_out_of_order(self, log: UnifiedLog) -> None:
        for number in range(9):
            produce(log, number)
        with pytest.raises(OutOfOrderSequenceError, match="the last one was 8"):
            produce(log, 3)

    def test_a_gap(self, log: UnifiedLog) -> None:
        produce(log, 0)
        with pytest.raises(OutOfOrderSequenceError):
            produce(log, 2)
        assert produce(log, 1).first_offset == 1

    def test_another_count_is_no_duplicate(self, log: UnifiedLog) -> None:
        produce(log, 0, count=3)
        with pytest.raises(OutOfOrderSequenceError):
            produce(log, 0, count=2)

    def test_an_old_epoch_is_fenced(self, log: UnifiedLog) -> None:
        produce(log, 0, epoch=3)
        with pytest.raises(InvalidProducerEpochError):
            produce(log, 1, epoch=2)
        assert produce(log, 0, epoch=4).first_offset == 1

    def test_a_duplicate_does_not_roll_the_log(self, box: LogBox) -> None:
        log = box.open(box.config(segment_bytes=150))
        produce(log, 0)
        box.clock.advance(1)
        produce(log, 0)
        assert len(log.segments) == 1

    def test_the_state_survives_a_clean_restart(self, box: LogBox, log: UnifiedLog) -> None:
        infos = [produce(log, number) for number in range(7)]
        log.close()
        reopened = box.open()
        for number in range(2, 7):
            assert produce(reopened, number).first_offset == infos[number].first_offset, "all of the last five"
        assert produce(reopened, 7).first_offset == 7

    def test_the_state_survives_a_crash(self, box: LogBox, log: UnifiedLog) -> None:
        for number in range(7):
            produce(log, number)
        reopened = box.open(had_clean_shutdown=False)
        for number in range(2, 7):
            assert produce(reopened, number).first_offset == number
        assert produce(reopened, 7).first_offset == 7

    def test_batches_before_a_roll_are_remembered_after_a_crash(self, box: LogBox, log: UnifiedLog) -> None:
        """A snapshot has only the last batch of a producer: the rest is found in the log."""
        for number in range(5):
            produce(log, number)
        log.roll()
        reopened = box.open(had_clean_shutdown=False)
        for number in range(5):
            assert produce(reopened, number).first_offset == number

    def test_batches_in_several_segments_are_remembered(self, box: LogBox) -> None:
        config = box.config(segment_bytes=200, index_interval_bytes=1)
        log = box.open(config)
        for number in range(20):
            produce(log, number)
            append(log, b"by somebody else")
        log.close()
        reopened = box.open(config)
        for number in range(15, 20):
            assert produce(reopened, number).is_duplicate
        with pytest.raises(OutOfOrderSequenceError):
            produce(reopened, 14)

    def test_batches_of_an_earlier_epoch_are_not_brought_back(self, box: LogBox, log: UnifiedLog) -> None:
        produce(log, 0)
        produce(log, 1)
        produce(log, 0, epoch=1)
        produce(log, 1, epoch=1)
        log.close()
        reopened = box.open()
        with pytest.raises(InvalidProducerEpochError):
            produce(reopened, 1)
        assert produce(reopened, 0, epoch=1).first_offset == 2

    def test_producers_are_forgotten_when_idle(self, box: LogBox, log: UnifiedLog) -> None:
        produce(log, 0)
        log.producers.remove_expired(NOW + DAY - 1)
        assert log.producers.count == 1
        log.producers.remove_expired(NOW + DAY)
        assert log.producers.count == 0
        produce(log, 17)

    def test_what_is_told_of_them(self, log: UnifiedLog) -> None:
        produce(log, 0, producer_id=5, epoch=2, count=3)
        transact(log, 0, producer_id=9)
        plain, transactional = log.producers.active()
        assert plain == (5, 2, 2, NOW, -1, -1)
        assert transactional.current_txn_start_offset == 3
        assert log.producers.last_records() == {5: (2, 2), 9: (3, 0)}


class TestTransactions:
    def test_the_last_stable_offset_is_where_the_oldest_open_one_began(self, log: UnifiedLog) -> None:
        append(log, b"before")
        transact(log, 0, producer_id=1)
        assert log.producers.state.first_undecided_offset == 1
        transact(log, 0, producer_id=2)
        append(log, b"between")
        log.watermarks.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 1
        end_transaction(log, COMMIT, 1, 0)
        assert log.last_stable_offset == 1, "the marker is not replicated"
        log.watermarks.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 2
        end_transaction(log, ABORT, 2, 0)
        log.watermarks.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == log.high_watermark == log.log_end_offset

    def test_it_is_never_beyond_the_high_watermark(self, log: UnifiedLog) -> None:
        append(log, b"a")
        append(log, b"b")
        transact(log, 0)
        stable = [log.last_stable_offset]
        for high_watermark in (1, 2, 3):
            log.watermarks.update_high_watermark(high_watermark)
            stable.append(log.last_stable_offset)
        assert stable == [0, 1, 2, 2]

    def test_a_committed_reader_stops_there(self, log: UnifiedLog) -> None:
        append(log, b"a")
        transact(log, 0, count=2)
        append(log, b"b")
        log.watermarks.update_high_watermark(log.log_end_offset)
        assert offsets(all_records(log, FetchIsolation.TXN_COMMITTED)) == [0]
        assert offsets(all_records(log, FetchIsolation.HIGH_WATERMARK)) == [0, 1, 2, 3]
        assert read_from(log, 1, FetchIsolation.TXN_COMMITTED).aborted_transactions == []
        end_transaction(log, COMMIT, 1, 0)
        log.watermarks.update_high_watermark(log.log_end_offset)
        assert offsets(all_records(log, FetchIsolation.TXN_COMMITTED)) == [0, 1, 2, 3, 4]

    def test_aborted_ones_are_named(self, log: UnifiedLog) -> None:
        transact(log, 0, producer_id=1)
        transact(log, 0, producer_id=2)
        end_transaction(log, ABORT, 1, 0)
        transact(log, 1, producer_id=2)
        end_transaction(log, ABORT, 2, 0)
        append(log, b"after")
        log.watermarks.update_high_watermark(log.log_end_offset)
        first = AbortedTxn(producer_id=1, first_offset=0, last_offset=2, last_stable_offset=1)
        second = AbortedTxn(producer_id=2, first_offset=1, last_offset=4, last_stable_offset=5)
        assert log.collect_aborted_transactions(0, 6) == [first, second]
        assert log.collect_aborted_transactions(3, 6) == [second]
        assert read_from(log, 0, FetchIsolation.TXN_COMMITTED).aborted_transactions == [first, second]
        assert read_from(log, 5, FetchIsolation.TXN_COMMITTED).aborted_transactions == []
        assert read_from(log, 0, FetchIsolation.HIGH_WATERMARK).aborted_transactions is None

    def test_an_abort_in_a_later_segment_is_found(self, log: UnifiedLog) -> None:
        transact(log, 0)
        log.roll()
        append(log, b"a")
        log.roll()
        end_transaction(log, ABORT, 1, 0)
        log.watermarks.update_high_watermark(log.log_end_offset)
        found = read_from(log, 0, FetchIsolation.TXN_COMMITTED).aborted_transactions
        assert [(txn.first_offset, txn.last_offset) for txn in found or ()] == [(0, 2)]

    def test_an_abort_is_found_if_its_segment_is_merged_during_the_read(
        self, box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the reader would get records of the old segment, and not the abort that was in the next one."""
        transact(log, 0)
        log.roll()
        end_transaction(log, ABORT, 1, 0)
        log.roll()
        append(log, b"after")
        log.watermarks.move_high_watermark_to_end()
        read = LogSegment.read

        def clean_after_read(segment: LogSegment, *arguments: Any) -> FetchDataInfo | None:
            found = read(segment, *arguments)
            monkeypatch.setattr(LogSegment, "read", read)
            cleaner = Cleaner(OffsetMap(10_000), box.clock, io_buffer_size=4096, load_factor=0.9)
            cleaner.clean(LogToClean.of(log, 0, log.active_segment.base_offset))
            assert log.segments.base_offsets == (0, 2)
            return found

        monkeypatch.setattr(LogSegment, "read", clean_after_read)
        info = read_from(log, 0, FetchIsolation.TXN_COMMITTED)
        aborted = {txn.producer_id for txn in info.aborted_transactions or ()}
        kept = [batch for batch in fetched_batches(info) if batch.record_count and not batch.is_control_batch]
        assert all(batch.producer_id in aborted for batch in kept)

    def test_a_marker_that_cannot_be_indexed_is_not_written(
        self, box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a file descriptor for the index, the coordinator has to try again, and aborts nothing before that."""
        transact(log, 0, producer_id=2)
        end_transaction(log, COMMIT, 2, 0)
        assert not any(name.endswith(".txnindex") for name in box.files())
        transact(log, 0)

        def no_descriptor(*_: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", no_descriptor)
            with pytest.raises(KafkaStorageError, match=os.strerror(errno.EMFILE)):
                end_transaction(log, ABORT, 1, 0)
        assert not box.channel.any_offline
        assert log.log_end_offset == 3
        end_transaction(log, ABORT, 1, 0)
        log.watermarks.move_high_watermark_to_end()
        assert log.last_stable_offset == log.log_end_offset == 4
        assert [txn.producer_id for txn in log.collect_aborted_transactions(0, 4)] == [1]

    def test_without_verification_nothing_is_appended(self, log: UnifiedLog) -> None:
        batch = client_batch([b"a"], producer_id=1, epoch=0, sequence=0, transactional=True)
        with pytest.raises(InvalidTxnStateError):
            log.append_as_leader(bytearray(batch), 0)
        guard = log.producers.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=False)
        assert log.producers.verification_guard(1) is guard
        log.append_as_leader(batch, 0, verification_guard=guard)
        assert log.producers.has_ongoing_transaction(1, 0)
        assert log.producers.maybe_start_transaction_verification(1, 1, 0, supports_epoch_bump=False) is SENTINEL
        transact(log, 1)  # now the transaction is known

    def test_an_old_coordinator_is_fenced(self, log: UnifiedLog) -> None:
        transact(log, 0)
        end_transaction(log, COMMIT, 1, 0, coordinator_epoch=5)
        with pytest.raises(TransactionCoordinatorFencedError):
            end_transaction(log, COMMIT, 1, 0, coordinator_epoch=4)

    def test_a_follower_learns_the_same(self, box: LogBox, log: UnifiedLog) -> None:
        transact(log, 0, producer_id=1)
        transact(log, 0, producer_id=2)
        end_transaction(log, ABORT, 1, 0)
        produce(log, 0, producer_id=3)
        follower = box.open(name="topic-1")
        follower.append_as_follower(fetched_bytes(read_from(log)), 0)
        log.watermarks.update_high_watermark(log.log_end_offset)
        follower.watermarks.update_high_watermark(follower.log_end_offset)
        assert follower.last_stable_offset == log.last_stable_offset == 1
        assert follower.collect_aborted_transactions(0, 9) == log.collect_aborted_transactions(0, 9)
        assert sorted(follower.producers.active()) == sorted(log.producers.active())

    @pytest.mark.parametrize("clean", [True, False])
    def test_open_ones_survive_a_restart(self, box: LogBox, log: UnifiedLog, clean: bool) -> None:
        append(log, b"a")
        transact(log, 0)
        append(log, b"b")
        if clean:
            log.close()
        reopened = box.open(had_clean_shutdown=clean)
        reopened.watermarks.update_high_watermark(reopened.log_end_offset)
        assert reopened.last_stable_offset == 1
        end_transaction(reopened, ABORT, 1, 0)
        reopened.watermarks.update_high_watermark(reopened.log_end_offset)
        assert reopened.last_stable_offset == 4
        assert len(reopened.collect_aborted_transactions(0, 9)) == 1

    def test_the_index_of_aborts_is_rebuilt_after_a_crash(self, box: LogBox, log: UnifiedLog) -> None:
        transact(log, 0, producer_id=1)
        transact(log, 0, producer_id=2)
        end_transaction(log, ABORT, 1, 0)
        before = log.collect_aborted_transactions(0, 9)
        (box.directory / "topic-0" / "00000000000000000000.txnindex").unlink()
        reopened = box.open(had_clean_shutdown=False)
        assert reopened.collect_aborted_transactions(0, 9) == before

    def test_the_start_of_the_log_stands_for_records_that_are_gone(self, log: UnifiedLog) -> None:
        transact(log, 0)
        append(log, b"a")
        append(log, b"b")
        log.watermarks.update_high_watermark(3)
        log.delete_records(2)
        assert log.last_stable_offset == 2

    def test_late_ones_are_noticed(self, log: UnifiedLog) -> None:
        transact(log, 0)
        limit = NOW + 15 * 60_000 + 5 * 60_000
        assert not log.producers.has_late_transaction(limit)
        assert log.producers.has_late_transaction(limit + 1)

    def test_the_place_of_the_first_unstable_offset_is_known(self, log: UnifiedLog) -> None:
        append(log, b"a")
        position = log.watermarks.offsets.log_end_offset.relative_position_in_segment
        transact(log, 0)
        log.watermarks.update_high_watermark(2)
        assert log.fetch_offset_snapshot().last_stable_offset == LogOffsetMetadata(1, 0, position)

    def test_a_marker_for_nothing_is_appended_all_the_same(self, log: UnifiedLog) -> None:
        log.append_as_leader(marker(COMMIT, 4, 0), 0, AppendOrigin.COORDINATOR, transaction_version=1)
        assert log.log_end_offset == 1
        assert log.producers.state.first_unstable_offset is None
        assert values(all_records(log)) != []
