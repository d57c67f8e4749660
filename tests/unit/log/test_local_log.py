"""The files of a log: the order in which they change, and the corners of reading and rolling."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import BarnabasError, OffsetOutOfRangeError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs import log_dir_names
from barnabas.log.dirs.log_dir_names import (
    is_delete_dir,
    is_future_dir,
    is_stray_dir,
    log_delete_dir_name,
    log_dir_name,
    log_future_dir_name,
    log_stray_dir_name,
    parse_topic_partition_name,
)
from barnabas.log.local_log import LocalLog
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.segment.segment_files import SegmentFiles
from log_fixtures import NOW, LogBox, client_batch, fetched_bytes

PARTITION = TopicPartition("topic", 0)
SIZE = len(client_batch([b"0"]))


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> LocalLog:
    directory = box.directory / "topic-0"
    directory.mkdir()
    config = box.config(index_interval_bytes=1)
    local = LocalLog(directory, PARTITION, config, box.context, LogSegments(), 0, LogOffsetMetadata(0, 0, 0))
    local.segments.add(SegmentFiles(PARTITION, box.context, local.guard).new_segment(directory, 0, config))
    return local


def append(log: LocalLog, count: int = 1) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        if not log.active_is_ready:
            log.make_active_segment_ready()
        log.append(log.segments.active, offset, NOW, offset, client_batch([b"0"], base_offset=offset))


def read(log: LocalLog, offset: int, limit: LogOffsetMetadata | None = None, size: int = 1 << 20) -> bytes:
    return fetched_bytes(log.read(offset, size, True, limit or log.log_end_offset_metadata, False))


class TestRead:
    def test_up_to_a_limit(self, log: LocalLog) -> None:
        append(log, 2)
        log.roll()
        append(log, 2)
        for limit in range(5):
            place = log.convert_to_offset_metadata(limit)
            got = b"".join(read(log, start, place) for start in (0, 2))
            assert len(got) == limit * SIZE

    def test_a_limit_whose_place_nobody_knows_shows_nothing(self, log: LocalLog) -> None:
        append(log, 2)
        assert read(log, 0, LogOffsetMetadata(2)) == b""

    def test_behind_the_limit(self, log: LocalLog) -> None:
        append(log, 3)
        info = log.read(2, 100, True, LogOffsetMetadata(1, 0, SIZE), True)
        assert info.records == b""
        assert info.fetch_offset_metadata == LogOffsetMetadata(2, 0, 2 * SIZE)
        assert info.aborted_transactions == []

    def test_where_an_offset_is(self, log: LocalLog) -> None:
        append(log, 2)
        log.roll()
        append(log, 1)
        places = [log.convert_to_offset_metadata(offset) for offset in range(4)]
        assert places == [
            LogOffsetMetadata(0, 0, 0),
            LogOffsetMetadata(1, 0, SIZE),
            LogOffsetMetadata(2, 2, 0),
            LogOffsetMetadata(3, 2, SIZE),
        ]
        with pytest.raises(OffsetOutOfRangeError):
            log.convert_to_offset_metadata(4)

    def test_before_the_first_segment(self, log: LocalLog) -> None:
        log.truncate_fully_and_start_at(5)
        with pytest.raises(OffsetOutOfRangeError):
            read(log, 4)


class TestRoll:
    def test_the_end_offset_stays_and_its_place_moves(self, log: LocalLog) -> None:
        append(log, 2)
        log.roll()
        assert log.log_end_offset_metadata == LogOffsetMetadata(2, 2, 0)

    def test_at_an_expected_offset(self, log: LocalLog) -> None:
        append(log, 2)
        assert log.roll(7).base_offset == 7
        assert log.log_end_offset == 2

    def test_not_before_the_active_segment(self, log: LocalLog) -> None:
        append(log, 2)
        log.roll(7)
        with pytest.raises(BarnabasError, match="cannot come after"):
            log.roll()

    def test_files_in_the_way_are_removed(self, log: LocalLog, caplog: pytest.LogCaptureFixture) -> None:
        append(log, 2)
        (log.directory / f"{2:020d}.log").write_bytes(b"leftover")
        assert log.roll().size == 0
        assert "leftover file" in caplog.text

    def test_an_empty_segment_is_made_anew(self, box: LogBox, log: LocalLog) -> None:
        segment = log.roll()
        assert log.segments.values() == (segment,)
        append(log)
        box.scheduler.advance(60_000)
        assert len(read(log, 0)) == SIZE


class TestDelete:
    @pytest.mark.parametrize("newest_first", [True, False])
    def test_a_crash_leaves_no_hole(self, log: LocalLog, monkeypatch: pytest.MonkeyPatch, newest_first: bool) -> None:
        for _ in range(4):
            append(log)
            log.roll()
        order = []
        original = Path.replace

        def replace(self: Path, target: Path) -> Path:
            if self.name.endswith(".log"):
                order.append(int(self.name.partition(".")[0]))
            return original(self, target)

        doomed = log.segments.values()[1:4] if newest_first else log.segments.values()[:3]
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            log.remove_and_delete_segments(doomed, reason="a test", newest_first=newest_first)
        assert order == ([3, 2, 1] if newest_first else [0, 1, 2])

    def test_a_directory_with_segments_is_not_deleted(self, log: LocalLog) -> None:
        with pytest.raises(BarnabasError, match="1 segments"):
            log.delete_dir()
        log.delete_all_segments()
        log.delete_dir()
        assert not log.directory.exists()


class TestFlush:
    def test_the_recovery_point_is_moved_by_a_flush_alone(self, log: LocalLog) -> None:
        append(log, 3)
        assert log.unflushed_messages == 3
        log.flush(3)
        assert log.recovery_point == 0
        log.mark_flushed(3)
        assert (log.recovery_point, log.unflushed_messages) == (3, 0)
        log.mark_flushed(2)
        assert log.recovery_point == 3

    def test_only_what_is_needed_is_forced_to_disk(self, log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(3):
            append(log, 2)
            log.roll()
        flushed: list[int] = []
        monkeypatch.setattr(
            "barnabas.log.segment.log_segment.LogSegment.flush", lambda segment: flushed.append(segment.base_offset)
        )
        log.recovery_point = 3
        log.flush(5)
        assert flushed == [2, 4]
        flushed.clear()
        log.flush(2)
        assert flushed == []


class TestNames:
    def test_doctests(self) -> None:
        assert doctest.testmod(log_dir_names).failed == 0

    @pytest.mark.parametrize("topic", ["a", "my-topic", "a.b_c-1", "x-delete", "x" * 249, "9-8", "_-future"])
    @pytest.mark.parametrize("partition", [0, 7, 2**31 - 1])
    def test_there_and_back(self, topic: str, partition: int) -> None:
        one = TopicPartition(topic, partition)
        assert parse_topic_partition_name(Path("data") / log_dir_name(one)) == one
        for name, test in (
            (log_delete_dir_name(one), is_delete_dir),
            (log_stray_dir_name(one), is_stray_dir),
            (log_future_dir_name(one), is_future_dir),
        ):
            assert test(Path(name))
            found = parse_topic_partition_name(Path(name))
            assert found.partition == partition
            assert topic.startswith(found.topic)
            if not is_future_dir(Path(name)):
                assert len(name) <= 255

    def test_every_name_is_new(self) -> None:
        assert log_delete_dir_name(PARTITION) != log_delete_dir_name(PARTITION)

    @pytest.mark.parametrize(
        "name",
        ["", "topic", "-1", "topic-", "topic-x", "topic--", "x-delete", "topic-1-delete", "topic.1-delete",
         "topic-1.-delete", "lost+found", "topic-99999999999", "topic-1.abc-other", "topic-\u0661"],
    )  # fmt: skip
    def test_what_is_no_log(self, name: str) -> None:
        with pytest.raises(ValueError, match="not called like"):
            parse_topic_partition_name(Path("data") / name if name else Path())

    @given(st.text(max_size=30))
    def test_any_name_is_one_or_not(self, name: str) -> None:
        try:
            found = parse_topic_partition_name(Path("data") / name.replace("/", "").replace("\0", ""))
        except ValueError:
            return
        assert found.topic
