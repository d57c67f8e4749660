"""Offsets for points in time, and for the ends of a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.log.offset_lookup import SpecialTimestamp
from barnabas.log.segment.file_records import TimestampAndOffset
from barnabas.log.unified_log import UnifiedLog
from log_fixtures import NOW, LogBox, all_records, append


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> UnifiedLog:
    """Timestamps that go up and down, in three segments."""
    log = box.open(box.config(index_interval_bytes=1))
    for number, timestamps in enumerate(([10, 30], [20], [50, 40], [45], [60], [55])):
        if number in {2, 4}:
            log.roll()
        append(log, *[b"x"] * len(timestamps), timestamps=[NOW + one for one in timestamps], leader_epoch=number // 2)
    log.watermarks.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (NOW + 10, 0, 0)),
        (NOW + 10, (NOW + 10, 0, 0)),
        (NOW + 11, (NOW + 30, 1, 0)),
        (NOW + 31, (NOW + 50, 3, 1)),
        (NOW + 51, (NOW + 60, 6, 2)),
        (NOW + 61, None),
    ],
)
def test_by_time(log: UnifiedLog, timestamp: int, expected: tuple[int, int, int] | None) -> None:
    assert log.fetch_offset_by_timestamp(timestamp) == expected


def test_the_ends(log: UnifiedLog) -> None:
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.EARLIEST) == TimestampAndOffset(-1, 0, 0)
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.EARLIEST_LOCAL) == TimestampAndOffset(-1, 0, 0)
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.LATEST) == TimestampAndOffset(-1, 8, 2)


def test_the_start_moves(log: UnifiedLog) -> None:
    log.delete_records(4)
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.EARLIEST) == TimestampAndOffset(-1, 4, 1)
    assert log.fetch_offset_by_timestamp(0) == TimestampAndOffset(NOW + 40, 4, 1)
    assert log.fetch_offset_by_timestamp(NOW + 46) == TimestampAndOffset(NOW + 60, 6, 2)


def test_a_deleted_record_does_not_hide_one_in_a_later_segment(log: UnifiedLog) -> None:
    log.delete_records(4)
    log.delete_old_segments()
    assert log.fetch_offset_by_timestamp(NOW + 50) == TimestampAndOffset(NOW + 60, 6, 2)


def test_nothing_is_tiered(log: UnifiedLog) -> None:
    for place in (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD):
        assert log.fetch_offset_by_timestamp(place) == TimestampAndOffset(-1, -1, -1)


class TestMaxTimestamp:
    def test_it_need_not_be_the_last(self, log: UnifiedLog) -> None:
        assert log.fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == TimestampAndOffset(NOW + 60, 6, 2)

    def test_the_record_not_the_batch(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", b"b", b"c", timestamps=[NOW, NOW + 5, NOW + 1])
        assert log.fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == TimestampAndOffset(NOW + 5, 1, 0)

    def test_append_time(self, box: LogBox) -> None:
        log = box.open(box.config(message_timestamp_type="LogAppendTime"))
        append(log, b"a", b"b")
        assert log.fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == TimestampAndOffset(NOW, 0, 0)

    def test_of_an_empty_log(self, box: LogBox) -> None:
        assert box.open().fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) is None

    def test_of_records_without_timestamps(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", timestamp=-1)
        assert log.fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) is None

    def test_what_was_deleted_does_not_count(self, box: LogBox) -> None:
        log = box.open()
        for one in (90, 10, 20):
            append(log, b"a", timestamp=NOW + one)
        log.watermarks.update_high_watermark(3)
        log.delete_records(1)
        assert log.fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == TimestampAndOffset(NOW + 20, 2, 0)

    def test_after_a_restart(self, box: LogBox, log: UnifiedLog) -> None:
        log.close()
        assert box.open().fetch_offset_by_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == (NOW + 60, 6, 2)


def test_an_empty_log(box: LogBox) -> None:
    log = box.open()
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.EARLIEST) == TimestampAndOffset(-1, 0, None)
    assert log.fetch_offset_by_timestamp(SpecialTimestamp.LATEST) == TimestampAndOffset(-1, 0, None)
    assert log.fetch_offset_by_timestamp(NOW) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3), max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(0, 42),
    st.booleans(),
)
def test_like_a_search_through_all_records(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], rolls: set[int], target: int, restart: bool
) -> None:
    box = LogBox(tmp_path_factory.mktemp("lookup"))
    log = box.open(box.config(index_interval_bytes=70))
    for number, timestamps in enumerate(batches):
        if number in rolls and log.active_segment.size:
            log.roll()
        append(log, *[b"x"] * len(timestamps), timestamps=timestamps)
    if restart:
        log.close()
        log = box.open(box.config(index_interval_bytes=70))
    expected = next(((one.timestamp, one.offset) for one in all_records(log) if one.timestamp >= target), None)
    found = log.fetch_offset_by_timestamp(target)
    assert (found and (found.timestamp, found.offset)) == expected
    log.close_handlers()
