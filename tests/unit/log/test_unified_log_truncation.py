"""Cutting off the end of a log, deleting its beginning by request, and moving its directory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from barnabas.common.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, PolicyViolationError
from barnabas.common.identifiers import random_uuid
from barnabas.log.dirs.log_dir_names import log_delete_dir_name, log_future_dir_name
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.records.control import ControlRecordType
from log_fixtures import (
    LogBox,
    all_records,
    append,
    client_batch,
    end_transaction,
    fetched_batches,
    offsets,
    read_from,
    values,
)


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> UnifiedLog:
    """Ten records in segments of three."""
    log = box.open(box.config(segment_bytes=3 * len(client_batch([b"0"])), index_interval_bytes=1))
    for number in range(10):
        append(log, b"%d" % number, leader_epoch=number // 4)
    assert log.segments.base_offsets == (0, 3, 6, 9)
    return log


class TestTruncateTo:
    @pytest.mark.parametrize("offset", range(11))
    def test_what_is_behind_goes(self, log: UnifiedLog, offset: int) -> None:
        assert log.truncate_to(offset) == (offset < 10)
        assert log.log_end_offset == min(offset, 10)
        assert offsets(all_records(log)) == list(range(offset))
        append(log, b"new", leader_epoch=9)
        assert values(all_records(log))[-1] == b"new"
        assert log.log_end_offset == min(offset, 10) + 1

    @pytest.mark.parametrize("offset", range(11))
    def test_it_is_the_same_after_a_restart(self, box: LogBox, log: UnifiedLog, offset: int) -> None:
        log.truncate_to(offset)
        log.close()
        assert offsets(all_records(box.open(log.config))) == list(range(offset))

    def test_leader_epochs_follow(self, log: UnifiedLog) -> None:
        log.truncate_to(5)
        assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(0, 0), (1, 4)]

    def test_an_epoch_without_records_goes_even_if_nothing_else_does(self, log: UnifiedLog) -> None:
        log.maybe_assign_epoch_start_offset(7, 10)
        assert not log.truncate_to(10)
        assert log.leader_epochs.latest_epoch == 2

    def test_watermarks_follow(self, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(10)
        log.truncate_to(4)
        assert log.high_watermark == 4
        log.delete_records(3)
        log.truncate_to(2)
        assert log.log_start_offset == 2

    def test_the_recovery_point_follows(self, log: UnifiedLog) -> None:
        log.flush()
        assert log.recovery_point == 10
        log.truncate_to(4)
        assert log.recovery_point == 4

    def test_producers_are_taken_back(self, box: LogBox) -> None:
        log = box.open()
        for number in range(6):
            append(log, b"%d" % number, producer_id=1, epoch=0, sequence=number)
            if number == 2:
                log.roll()
        log.truncate_to(4)
        with pytest.raises(OutOfOrderSequenceError, match="the last one was 3"):
            append(log, b"x", producer_id=1, epoch=0, sequence=5)
        assert append(log, b"3", producer_id=1, epoch=0, sequence=3).is_duplicate
        assert append(log, b"4", producer_id=1, epoch=0, sequence=4).first_offset == 4

    def test_transactions_are_taken_back(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        guard = log.producers.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=False)
        batch = client_batch([b"t"], producer_id=1, epoch=0, sequence=0, transactional=True)
        log.append_as_leader(batch, 0, verification_guard=guard)
        end_transaction(log, ControlRecordType.ABORT, 1, 0)
        assert len(log.collect_aborted_transactions(0, 9)) == 1
        log.truncate_to(2)
        assert log.collect_aborted_transactions(0, 9) == []
        assert log.producers.state.first_undecided_offset == 1
        log.truncate_to(1)
        assert log.producers.state.first_unstable_offset is None

    def test_the_inside_of_a_batch(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", b"b", b"c")
        log.truncate_to(2)
        assert all_records(log) == [], "batches go as a whole"

    def test_files_go_later(self, box: LogBox, log: UnifiedLog) -> None:
        log.truncate_to(4)
        assert [name for name in box.files() if name.endswith(".log.deleted")] == [
            "00000000000000000006.log.deleted",
            "00000000000000000009.log.deleted",
        ]
        box.scheduler.advance(60_000)
        assert not [name for name in box.files() if name.endswith(".deleted")]

    def test_before_the_first_segment(self, box: LogBox) -> None:
        log = box.open()
        log.truncate_fully_and_start_at(50)
        append(log, b"a")
        assert log.truncate_to(20)
        assert log.log_end_offset == log.log_start_offset == 20

    def test_a_negative_offset(self, log: UnifiedLog) -> None:
        with pytest.raises(ValueError, match="-1"):
            log.truncate_to(-1)


class TestTruncateFully:
    def test_the_log_goes_on_elsewhere(self, box: LogBox, log: UnifiedLog) -> None:
        log.truncate_fully_and_start_at(100)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
        assert log.leader_epochs.entries == ()
        append(log, b"new")
        assert offsets(all_records(log)) == [100]
        log.close()
        assert offsets(all_records(box.open())) == [100]

    def test_at_the_offset_where_it_began(self, box: LogBox, log: UnifiedLog) -> None:
        log.truncate_fully_and_start_at(9)
        append(log, b"new")
        assert values(all_records(log)) == [b"new"]
        box.scheduler.advance(60_000)
        assert values(all_records(log)) == [b"new"], "the files of the old segment had the same names"

    def test_with_another_start(self, log: UnifiedLog) -> None:
        log.truncate_fully_and_start_at(100, log_start_offset=90)
        assert log.log_start_offset == 90

    def test_producers_are_forgotten(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", producer_id=1, epoch=0, sequence=0)
        log.roll()
        log.truncate_fully_and_start_at(10)
        assert log.producers.count == 0
        assert not [name for name in box.files() if name.endswith(".snapshot")]
        append(log, b"b", producer_id=1, epoch=0, sequence=7)


class TestDeleteRecords:
    def test_the_start_moves(self, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(8)
        assert log.delete_records(5) == 5
        assert offsets(all_records(log)) == [5, 6, 7, 8, 9]
        assert log.delete_records(3) == 5
        assert log.delete_records(-1) == 8

    def test_not_beyond_the_high_watermark(self, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(5)
        with pytest.raises(OffsetOutOfRangeError, match="high watermark"):
            log.delete_records(6)
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_records(-2)

    def test_inside_a_batch(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", b"b", b"c")
        log.watermarks.update_high_watermark(3)
        log.delete_records(1)
        assert fetched_batches(read_from(log, 1))[0].base_offset == 0
        with pytest.raises(OffsetOutOfRangeError):
            read_from(log, 0)

    def test_compacted_topics(self, box: LogBox) -> None:
        log = box.open(box.config(cleanup_policy=("compact",)))
        with pytest.raises(PolicyViolationError):
            log.delete_records(0)

    def test_epochs_and_recovery_point_follow(self, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(10)
        log.delete_records(9)
        assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(2, 9)]
        assert log.recovery_point == 9

    def test_a_follower_follows_its_leader(self, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(10)
        reason = LogStartOffsetIncrementReason.LEADER_OFFSET_INCREMENTED
        assert log.maybe_increment_log_start_offset(4, reason)
        assert not log.maybe_increment_log_start_offset(4, reason)

    def test_it_is_remembered_through_the_checkpoint(self, box: LogBox, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(10)
        log.delete_records(5)
        log.close()
        assert box.open(log.config, log_start_offset=5).log_start_offset == 5


class TestRename:
    def test_everything_goes_on(self, box: LogBox, log: UnifiedLog) -> None:
        log.rename_dir(log_future_dir_name(log.topic_partition))
        assert log.is_future
        append(log, b"10", leader_epoch=8)
        log.roll()
        append(log, b"11", leader_epoch=9)
        log.flush()
        assert offsets(all_records(log)) == list(range(12))
        log.rename_dir("topic-0")
        log.close()
        reopened = box.open(log.config)
        assert not reopened.is_future
        assert offsets(all_records(reopened)) == list(range(12))
        assert reopened.end_offset_for_epoch(8) == (8, 11)

    def test_the_topic_id_goes_along(self, box: LogBox) -> None:
        topic_id = random_uuid()
        log = box.open(topic_id=topic_id)
        log.rename_dir("topic-0.abc-future")
        assert box.open(name="topic-0.abc-future").topic_id == topic_id

    def test_files_that_wait_for_their_deletion_go_along(self, box: LogBox, log: UnifiedLog) -> None:
        log.truncate_to(4)
        log.rename_dir("topic-0.abc-future")
        box.scheduler.advance(60_000)
        assert not [name for name in box.files("topic-0.abc-future") if name.endswith(".deleted")]
        assert not box.channel.offline_log_dirs

    def test_a_late_write_of_leader_epochs_does_no_harm(self, box: LogBox, log: UnifiedLog) -> None:
        log.watermarks.update_high_watermark(10)
        log.delete_records(9)
        log.rename_dir(log_delete_dir_name(log.topic_partition))
        box.scheduler.tick()
        assert not box.channel.offline_log_dirs
        assert not (box.directory / "topic-0").exists()

    def test_readers_do_not_mistake_a_rename_for_a_broken_disk(self, box: LogBox, log: UnifiedLog) -> None:
        log.close()
        log = box.open(log.config)
        done = threading.Event()
        problems: list[BaseException] = []

        def consume() -> None:
            try:
                while not done.is_set():
                    for offset in range(10):
                        read_from(log, offset, FetchIsolation.LOG_END)
                        log.fetch_offset_by_timestamp(offset)
            except BaseException as error:  # noqa: BLE001 - shown below
                problems.append(error)

        reader = threading.Thread(target=consume)
        reader.start()
        for number in range(50):
            log.rename_dir(f"topic-0.{number}-future")
            log.segments.active.offset_index.trim_to_valid_size()
        done.set()
        reader.join()
        assert problems == []
        assert not box.channel.offline_log_dirs
