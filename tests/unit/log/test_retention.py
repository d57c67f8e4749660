"""Which segments go, and when."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from barnabas.log.config.log_config import LogConfig
from barnabas.log.unified_log import UnifiedLog
from log_fixtures import NOW, LogBox, all_records, append, client_batch, offsets

DAY = 24 * 60 * 60 * 1000
SIZE = len(client_batch([b"0"]))


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


def filled(box: LogBox, config: LogConfig, *, replicated: int = 10) -> UnifiedLog:
    """Ten records, a day apart, in segments of two."""
    log = box.open(config)
    for number in range(10):
        box.clock.set_milliseconds(NOW + number * DAY)
        append(log, b"%d" % number, timestamp=NOW + number * DAY)
    assert log.segments.base_offsets == (0, 2, 4, 6, 8)
    log.watermarks.update_high_watermark(replicated)
    return log


def test_by_age(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=4 * DAY))
    assert log.delete_old_segments() == 2  # now is day 9; the newest of the second is from day 3, of the third from 5
    assert log.log_start_offset == 4
    assert offsets(all_records(log)) == [4, 5, 6, 7, 8, 9]
    assert log.delete_old_segments() == 0


def test_the_age_of_a_segment_is_that_of_its_newest_record(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=6 * DAY))
    assert log.delete_old_segments() == 1
    box.clock.set_milliseconds(NOW + 9 * DAY + 1)
    assert log.delete_old_segments() == 1, "the newest of the second was exactly six days old a moment ago"


def test_by_age_to_the_last_one(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=DAY))
    box.clock.advance(10 * DAY)
    assert log.delete_old_segments() == 5
    assert log.segments.base_offsets == (10,)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    append(log, b"new", timestamp=box.clock.milliseconds())
    assert offsets(all_records(log)) == [10]
    assert log.delete_old_segments() == 0


def test_an_empty_log_stays_as_it_is(box: LogBox) -> None:
    log = box.open(box.config(retention_ms=1, retention_bytes=0))
    segment = log.active_segment
    os.utime(segment.records.path, ns=(NOW * 1_000_000, NOW * 1_000_000))
    box.clock.advance(DAY)
    assert log.delete_old_segments() == 0
    assert log.segments.values() == (segment,)


def test_records_without_timestamps_go_by_the_file(box: LogBox) -> None:
    log = box.open(box.config(retention_ms=DAY))
    append(log, b"a", timestamp=-1)
    log.watermarks.update_high_watermark(1)
    path = log.active_segment.records.path
    os.utime(path, ns=((NOW - DAY) * 1_000_000, (NOW - DAY) * 1_000_000))
    assert log.delete_old_segments() == 0
    box.clock.advance(1)
    assert log.delete_old_segments() == 1


def test_a_record_from_the_future_keeps_what_is_behind_it(box: LogBox, caplog: pytest.LogCaptureFixture) -> None:
    log = box.open(box.config(segment_bytes=SIZE, retention_ms=DAY, message_timestamp_after_max_ms=100 * DAY))
    append(log, b"0", timestamp=NOW + 50 * DAY)
    append(log, b"1", timestamp=NOW)
    append(log, b"2", timestamp=NOW)
    log.watermarks.update_high_watermark(3)
    box.clock.advance(10 * DAY)
    with caplog.at_level(logging.WARNING):
        assert log.delete_old_segments() == 0
    assert "after now" in caplog.text


@pytest.mark.parametrize(
    ("retention_bytes", "expected"), [(-1, 0), (10 * SIZE, 0), (9 * SIZE, 0), (8 * SIZE, 1), (5 * SIZE, 2), (0, 5)]
)
def test_by_size(box: LogBox, retention_bytes: int, expected: int) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_bytes=retention_bytes, retention_ms=-1))
    assert log.delete_old_segments() == expected
    assert log.size >= min(retention_bytes, log.size)
    assert log.log_start_offset == 2 * expected


def test_nothing_that_is_not_replicated(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=1), replicated=5)
    assert log.delete_old_segments() == 2
    assert log.log_start_offset == 4 <= log.high_watermark


def test_for_ever(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=-1))
    box.clock.advance(1000 * DAY)
    assert log.delete_old_segments() == 0


def test_what_was_deleted_by_request(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=-1))
    log.delete_records(5)
    assert log.delete_old_segments() == 2
    assert log.segments.base_offsets == (4, 6, 8)
    assert log.log_start_offset == 5
    log.delete_records(10)
    assert log.delete_old_segments() == 2, "the active segment goes for its age, not for the start of the log"
    assert log.active_segment is log.segments.first


def test_compacted_logs_lose_only_what_was_deleted(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=1, retention_bytes=0, cleanup_policy=("delete",)))
    log.update_config(box.config(retention_ms=1, retention_bytes=0, cleanup_policy=("compact",)))
    assert log.delete_old_segments() == 0
    log.update_config(box.config(retention_ms=1, retention_bytes=0, cleanup_policy=()))
    assert log.delete_old_segments() == 0


def test_files_go_after_the_delay(box: LogBox) -> None:
    log = filled(box, box.config(segment_bytes=2 * SIZE, retention_ms=4 * DAY, file_delete_delay_ms=5000))
    log.delete_old_segments()
    deleted = [name for name in box.files() if name.endswith(".log.deleted")]
    assert deleted == ["00000000000000000000.log.deleted", "00000000000000000002.log.deleted"]
    box.scheduler.advance(4999)
    assert [name for name in box.files() if name.endswith(".log.deleted")] == deleted
    box.scheduler.advance(1)
    assert not [name for name in box.files() if name.endswith(".deleted")]


def test_snapshots_go_with_their_segments(box: LogBox) -> None:
    config = box.config(segment_bytes=2 * SIZE, retention_ms=4 * DAY)
    log = filled(box, config)
    assert [name for name in box.files() if name.endswith(".snapshot")] == [
        f"{offset:020d}.snapshot" for offset in (2, 4, 6, 8)
    ]
    log.delete_old_segments()
    box.scheduler.advance(60_000)
    assert [name for name in box.files() if ".snapshot" in name] == [f"{offset:020d}.snapshot" for offset in (4, 6, 8)]


def test_the_producers_of_deleted_records_are_still_known(box: LogBox) -> None:
    log = box.open(box.config(segment_bytes=SIZE, retention_ms=1))
    append(log, b"0", producer_id=1, epoch=0, sequence=0)
    append(log, b"1")
    log.watermarks.update_high_watermark(2)
    box.clock.advance(10)
    log.delete_old_segments()
    assert append(log, b"0", producer_id=1, epoch=0, sequence=0).is_duplicate


def test_it_is_the_same_after_a_restart(box: LogBox) -> None:
    config = box.config(segment_bytes=2 * SIZE, retention_ms=4 * DAY)
    log = filled(box, config)
    log.delete_old_segments()
    reopened = box.open(config, had_clean_shutdown=False)  # before the files are gone
    assert reopened.log_start_offset == 4
    assert offsets(all_records(reopened)) == [4, 5, 6, 7, 8, 9]
    assert not [name for name in box.files() if name.endswith(".deleted")]
