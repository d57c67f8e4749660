"""A log as its users see it: appending, rolling, reading, watermarks."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import (
    InconsistentTopicIdError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
)
from barnabas.common.identifiers import random_uuid
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.log_to_clean import LogToClean
from barnabas.log.dirs.leader_epoch_checkpoint import EpochEntry, LeaderEpochCheckpointFile
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.index import abstract_index
from barnabas.log.index.offset_index import OffsetIndex
from barnabas.log.local_log import LocalLog
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import FileClosedError
from barnabas.log.unified_log import UnexpectedAppendOffsetError, UnifiedLog
from barnabas.network.reactor.send import FileRegion
from barnabas.records.batch import CompressionType, TimestampType
from log_fixtures import (
    NOW,
    LogBox,
    all_batches,
    all_records,
    append,
    client_batch,
    fetched_batches,
    fetched_bytes,
    offsets,
    read_from,
    values,
)


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> UnifiedLog:
    return box.open()


def no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class TestAppend:
    def test_offsets_are_given_out_one_after_the_other(self, log: UnifiedLog) -> None:
        first = append(log, b"a", b"b")
        second = append(log, b"c")
        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert log.log_end_offset == 3
        records = all_records(log)
        assert offsets(records) == [0, 1, 2]
        assert values(records) == [b"a", b"b", b"c"]

    def test_what_is_written_is_what_came_with_offset_and_epoch(self, log: UnifiedLog) -> None:
        batch = client_batch([b"a"], compression=CompressionType.LZ4)
        log.append_as_leader(bytes(batch), 7)
        written = fetched_bytes(read_from(log))
        assert written[:8] == bytes(8)
        assert written[12:16] == (7).to_bytes(4)
        assert written[16:] == batch[16:]

    def test_the_response(self, log: UnifiedLog) -> None:
        info = append(log, b"a", b"b", timestamps=[NOW - 5, NOW - 9], leader_epoch=3)
        assert info.max_timestamp == NOW - 5
        assert info.offset_of_max_timestamp == 1
        assert info.log_append_time == -1
        assert info.last_leader_epoch == 3
        assert info.log_start_offset == 0
        assert info.valid_bytes == len(fetched_bytes(read_from(log)))
        assert not info.is_duplicate

    def test_append_time(self, box: LogBox) -> None:
        log = box.open(box.config(message_timestamp_type="LogAppendTime"))
        box.clock.advance(17)
        info = append(log, b"a", timestamp=5)
        assert info.log_append_time == info.max_timestamp == NOW + 17
        (batch,) = all_batches(log)
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        batch.ensure_valid()

    def test_a_refused_batch_leaves_no_trace(self, log: UnifiedLog) -> None:
        append(log, b"a")
        with pytest.raises(InvalidRecordError):
            log.append_as_leader(client_batch([b"b"], base_offset=4), 0)
        append(log, b"c")
        assert values(all_records(log)) == [b"a", b"c"]

    def test_a_batch_larger_than_a_segment(self, box: LogBox) -> None:
        log = box.open(box.config(segment_bytes=200))
        with pytest.raises(RecordBatchTooLargeError, match="200"):
            append(log, b"x" * 300)
        assert log.log_end_offset == 0

    def test_settings_can_change(self, box: LogBox, log: UnifiedLog) -> None:
        old = log.config
        assert log.update_config(box.config(compression_type="gzip")) is old
        append(log, b"a" * 50)
        assert all_batches(log)[0].compression_type is CompressionType.GZIP

    def test_the_topic_is_known_before_its_records(self, box: LogBox) -> None:
        topic_id = random_uuid()
        log = box.open(topic_id=topic_id)
        assert "partition.metadata" not in box.files()
        append(log, b"a")
        assert "partition.metadata" in box.files()
        log.close()
        assert box.open().topic_id == topic_id
        with pytest.raises(InconsistentTopicIdError):
            box.open(topic_id=random_uuid())

    def test_the_topic_id_gets_to_disk_without_records(self, box: LogBox) -> None:
        topic_id = random_uuid()
        box.open(topic_id=topic_id)
        box.scheduler.tick()
        assert box.open(topic_id=topic_id).topic_id == topic_id

    def test_appends_by_many_threads_get_offsets_without_gaps(self, log: UnifiedLog) -> None:
        barrier = threading.Barrier(4)

        def produce(number: int) -> None:
            barrier.wait()
            for index in range(50):
                append(log, b"%d-%d" % (number, index))

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = all_records(log)
        assert offsets(records) == list(range(200))
        for number in range(4):
            mine = [value for value in values(records) if value.startswith(b"%d-" % number)]
            assert mine == [b"%d-%d" % (number, index) for index in range(50)]

    def test_an_interrupt_in_the_middle_leaves_no_half_append(
        self, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(log, b"a")
        segment = log.active_segment
        original = type(segment).append

        def interrupted(self: Any, *arguments: Any) -> int:
            original(self, *arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(segment), "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                append(log, b"never")
        append(log, b"b")
        assert offsets(all_records(log)) == [0, 1]
        assert values(all_records(log)) == [b"a", b"b"]

    def test_index_entries_wait_in_memory_for_a_file_descriptor(
        self, box: LogBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even a batch that was written already may fail for an index, or its offsets would be given out twice."""
        monkeypatch.setattr(abstract_index, "WARM_BYTES", 8 * OffsetIndex.layout.size)
        config = box.config(index_interval_bytes=1)
        log = box.open(config)
        append(log)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", no_descriptor)
            for number in range(1, 20):
                assert append(log, timestamp=NOW + number).last_offset == number
        assert append(log, timestamp=NOW + 20).last_offset == 20
        assert [batch.base_offset for batch in all_batches(log)] == list(range(21))
        assert not box.channel.any_offline
        log.close()
        segment = box.open(config).active_segment
        assert [segment.offset_index.entry(slot).offset for slot in range(segment.offset_index.entries)] == list(
            range(1, 21)
        )
        assert segment.time_index.entries == 20


class TestFollower:
    def test_batches_keep_offsets_and_epochs(self, log: UnifiedLog) -> None:
        records = client_batch([b"a", b"b"], base_offset=5, leader_epoch=2) + client_batch(
            [b"c"], base_offset=9, leader_epoch=4, timestamp=NOW - 1
        )
        info = log.append_as_follower(records, 4)
        assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (5, 9, 4)
        assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW, 6)
        assert log.log_end_offset == 10
        assert offsets(all_records(log)) == [5, 6, 9]
        assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(2, 5), (4, 9)]

    def test_nothing_whole_is_nothing(self, log: UnifiedLog) -> None:
        info = log.append_as_follower(client_batch(base_offset=0, leader_epoch=0)[:-1], 0)
        assert info.valid_bytes == 0
        assert log.log_end_offset == 0

    def test_it_cannot_go_back(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b")
        with pytest.raises(UnexpectedAppendOffsetError, match="begins before the log end offset 2") as caught:
            log.append_as_follower(client_batch([b"b", b"c"], base_offset=1, leader_epoch=0), 0)
        assert (caught.value.first_offset, caught.value.last_offset) == (1, 2)

    def test_the_metadata_quorum_brings_its_own_offsets(self, log: UnifiedLog) -> None:
        records = client_batch([b"a"], base_offset=0, leader_epoch=3) + client_batch(
            [b"b"], base_offset=1, leader_epoch=3
        )
        info = log.append_as_leader(bytes(records), 3, AppendOrigin.RAFT_LEADER)
        assert (info.first_offset, info.last_offset) == (0, 1)

    def test_a_leap_further_than_a_segment_reaches_rolls(self, log: UnifiedLog) -> None:
        append(log, b"a")
        log.append_as_follower(client_batch([b"b"], base_offset=2**31 + 5, leader_epoch=0), 0)
        assert log.segments.base_offsets == (0, 2**31 + 5)
        assert offsets(all_records(log)) == [0, 2**31 + 5]


class TestRoll:
    def fill(self, log: UnifiedLog, count: int, **options: Any) -> None:
        for index in range(count):
            append(log, b"%05d" % index, **options)

    def test_by_size(self, box: LogBox) -> None:
        size = len(client_batch([b"00000"]))
        log = box.open(box.config(segment_bytes=3 * size))
        self.fill(log, 8)
        assert log.segments.base_offsets == (0, 3, 6)
        assert offsets(all_records(log)) == list(range(8))

    def test_by_time_of_the_records(self, box: LogBox) -> None:
        log = box.open(box.config(segment_ms=1000))
        append(log, b"a", timestamp=NOW)
        append(log, b"b", timestamp=NOW + 1000)
        assert len(log.segments) == 1
        append(log, b"c", timestamp=NOW + 1001)
        assert log.segments.base_offsets == (0, 2)

    def test_by_the_clock_for_records_without_timestamps(self, box: LogBox) -> None:
        log = box.open(box.config(segment_ms=1000))
        append(log, b"a", timestamp=-1)
        box.clock.advance(1001)
        append(log, b"b", timestamp=-1)
        assert log.segments.base_offsets == (0, 1)

    def test_an_empty_segment_does_not_get_old(self, box: LogBox) -> None:
        log = box.open(box.config(segment_ms=1000))
        box.clock.advance(5000)
        append(log, b"a", timestamp=NOW + 5000)
        assert log.segments.base_offsets == (0,)

    def test_by_a_full_index(self, box: LogBox) -> None:
        log = box.open(box.config(segment_index_bytes=36, index_interval_bytes=1))
        self.fill(log, 20)
        assert len(log.segments) > 3
        assert offsets(all_records(log)) == list(range(20))

    def test_an_index_without_room_for_anything(self, box: LogBox) -> None:
        log = box.open(box.config(segment_index_bytes=12))
        self.fill(log, 3)
        assert offsets(all_records(log)) == [0, 1, 2]

    def test_a_snapshot_of_the_producers_is_left(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a", producer_id=1, epoch=0, sequence=0)
        log.roll()
        assert "00000000000000000001.snapshot" in box.files()

    def test_the_old_segment_is_flushed_in_the_background(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        log.roll()
        assert log.recovery_point == 0
        box.scheduler.tick()
        assert log.recovery_point == 1

    def test_flushing_a_log_that_was_closed_meanwhile(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        log.roll()
        log.close()
        box.scheduler.tick()
        assert not box.channel.offline_log_dirs

    def test_indexes_are_trimmed_and_found_again(self, box: LogBox) -> None:
        log = box.open(box.config(index_interval_bytes=1))
        self.fill(log, 5)
        log.roll()
        self.fill(log, 2)
        old, active = log.segments
        assert old.offset_index.capacity == old.offset_index.size_in_bytes
        assert active.offset_index.capacity == 480
        for offset in range(7):
            assert fetched_batches(read_from(log, offset, max_length=1))[0].base_offset == offset

    def test_the_high_watermark_moves_on_to_the_new_segment(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        log.watermarks.update_high_watermark(1)
        log.roll()
        assert log.fetch_offset_snapshot().high_watermark == LogOffsetMetadata(1, 1, 0)


class TestRead:
    def test_a_region_of_the_file_is_all_that_is_given(self, log: UnifiedLog) -> None:
        append(log, b"a" * 10_000)
        info = read_from(log)
        assert isinstance(info.records, FileRegion)
        assert info.fetch_offset_metadata == LogOffsetMetadata(0, 0, 0)
        assert info.aborted_transactions is None

    def test_small_records_are_given_as_they_were_read(self, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        for value in (b"a", b"b", b"c"):
            append(log, value)
        read_from(log, 1)  # looks up the position of the high watermark
        reads: list[int] = []
        pread = os.pread

        def counted(fd: int, size: int, position: int) -> bytes:
            reads.append(size)
            return pread(fd, size, position)

        monkeypatch.setattr("os.pread", counted)
        info = read_from(log, 1)
        assert isinstance(info.records, bytes)
        assert [batch.base_offset for batch in fetched_batches(info)] == [1, 2]
        assert len(reads) == 1

    def test_from_the_middle_of_a_batch(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b", b"c")
        info = read_from(log, 1)
        assert info.fetch_offset_metadata == LogOffsetMetadata(1, 0, 0)
        assert fetched_batches(info)[0].last_offset == 2

    def test_size_limit(self, log: UnifiedLog) -> None:
        append(log, b"a" * 100)
        append(log, b"b")
        size = len(client_batch([b"a" * 100]))
        assert len(fetched_bytes(log.read(0, size, FetchIsolation.LOG_END, False))) == size
        cut = log.read(0, 10, FetchIsolation.LOG_END, False)
        assert len(fetched_bytes(cut)) == 10
        assert cut.first_entry_incomplete
        whole = log.read(0, 10, FetchIsolation.LOG_END, True)
        assert len(fetched_bytes(whole)) == size
        assert not whole.first_entry_incomplete

    def test_at_the_end(self, log: UnifiedLog) -> None:
        append(log, b"a")
        info = read_from(log, 1)
        assert info.records == b""
        assert info.fetch_offset_metadata.message_offset == 1

    @pytest.mark.parametrize("offset", [-1, 2, 99])
    def test_out_of_range(self, log: UnifiedLog, offset: int) -> None:
        append(log, b"a")
        with pytest.raises(OffsetOutOfRangeError, match=str(offset)):
            read_from(log, offset)

    def test_before_the_start(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b")
        log.watermarks.update_high_watermark(2)
        log.delete_records(1)
        with pytest.raises(OffsetOutOfRangeError, match="starts at offset 1"):
            read_from(log, 0)

    def test_over_a_gap_between_segments(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        log.append_as_follower(client_batch([b"b"], base_offset=50, leader_epoch=0), 0)
        log.roll(100)
        log.append_as_follower(client_batch([b"c"], base_offset=100, leader_epoch=0), 0)
        assert fetched_batches(read_from(log, 60))[0].base_offset == 100

    def test_over_a_gap_at_which_segments_are_merged_during_the_read(
        self, box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the reader would go on behind the merged segments, and miss the records of the second one."""
        append(log, (b"a", b"1"))
        log.roll(100)
        log.append_as_follower(client_batch([(b"b", b"2")], base_offset=100, leader_epoch=0), 0)
        log.roll()
        append(log, (b"c", b"3"))
        log.watermarks.move_high_watermark_to_end()
        read = LogSegment.read

        def clean_after_read(segment: LogSegment, *arguments: Any) -> FetchDataInfo | None:
            found = read(segment, *arguments)
            assert found is None
            monkeypatch.setattr(LogSegment, "read", read)
            cleaner = Cleaner(OffsetMap(10_000), box.clock, io_buffer_size=4096, load_factor=0.9)
            cleaner.clean(LogToClean.of(log, 0, log.active_segment.base_offset))
            assert log.segments.base_offsets == (0, 101)
            return found

        monkeypatch.setattr(LogSegment, "read", clean_after_read)
        assert fetched_batches(read_from(log, 60))[0].base_offset == 100

    def test_with_nothing_left_behind_the_offset(self, log: UnifiedLog) -> None:
        append(log, b"a")
        log.roll(10)
        log._local_log.update_log_end_offset(10)  # as if all in between had been compacted away
        info = read_from(log, 5)
        assert info.records == b""
        assert info.fetch_offset_metadata.message_offset == 10

    def test_a_consumer_sees_what_is_replicated(self, log: UnifiedLog) -> None:
        append(log, b"a")
        append(log, b"b")
        assert all_records(log, FetchIsolation.HIGH_WATERMARK) == []
        log.watermarks.update_high_watermark(1)
        assert values(all_records(log, FetchIsolation.HIGH_WATERMARK)) == [b"a"]
        assert values(all_records(log, FetchIsolation.LOG_END)) == [b"a", b"b"]
        assert read_from(log, 2, FetchIsolation.HIGH_WATERMARK).records == b""

    def test_the_high_watermark_in_an_earlier_segment(self, box: LogBox) -> None:
        log = box.open(box.config(segment_bytes=len(client_batch([b"00"])) * 2))
        for number in range(6):
            append(log, b"%02d" % number)
        for high_watermark in range(7):
            log.watermarks.update_high_watermark(high_watermark)
            assert offsets(all_records(log, FetchIsolation.HIGH_WATERMARK)) == list(range(high_watermark))

    def test_what_was_read_stays_readable_after_the_segment_is_gone(self, box: LogBox) -> None:
        log = box.open()
        append(log, b"a")
        info = read_from(log)
        log.truncate_fully_and_start_at(10)
        box.scheduler.advance(60_000)
        assert fetched_batches(info)[0].base_offset == 0

    def test_readers_beside_a_writer_see_whole_batches_in_order(self, box: LogBox) -> None:
        log = box.open(box.config(segment_bytes=2000, index_interval_bytes=200))
        append(log, b"0")
        done = threading.Event()
        problems: list[BaseException] = []

        def consume() -> None:
            try:
                offset = 0
                while not done.is_set() or offset < log.log_end_offset:
                    for batch in fetched_batches(read_from(log, offset, max_length=500)):
                        batch.ensure_valid()
                        assert batch.base_offset == offset
                        offset = batch.next_offset
            except BaseException as error:  # noqa: BLE001 - shown below
                problems.append(error)

        readers = [threading.Thread(target=consume) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, 300):
            append(log, b"%d" % number)
        done.set()
        for reader in readers:
            reader.join()
        assert problems == []


class TestHighWatermark:
    def test_it_stays_within_the_log(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b", b"c")
        assert log.watermarks.update_high_watermark(2) == 2
        assert log.watermarks.update_high_watermark(99) == 3
        log.delete_records(1)
        assert log.watermarks.update_high_watermark(0) == 1

    def test_a_leader_moves_it_forward_only(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b", b"c")
        assert log.watermarks.maybe_increment_high_watermark(LogOffsetMetadata(2)) == LogOffsetMetadata(0, 0, 0)
        assert log.high_watermark == 2
        assert log.watermarks.maybe_increment_high_watermark(LogOffsetMetadata(1)) is None
        assert log.watermarks.maybe_increment_high_watermark(LogOffsetMetadata(2)) is None
        with pytest.raises(ValueError, match="beyond the log end offset"):
            log.watermarks.maybe_increment_high_watermark(LogOffsetMetadata(4))

    def test_a_follower_takes_what_it_is_told(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b")
        assert log.watermarks.maybe_update_high_watermark(5) == 2
        assert log.watermarks.maybe_update_high_watermark(2) is None
        assert log.watermarks.maybe_update_high_watermark(1) == 1

    def test_the_place_is_looked_up_once(self, log: UnifiedLog) -> None:
        append(log, b"a")
        append(log, b"b")
        log.watermarks.update_high_watermark(1)
        size = len(client_batch([b"a"]))
        assert log.watermarks.offsets.high_watermark == LogOffsetMetadata(1)
        snapshot = log.fetch_offset_snapshot()
        assert snapshot.high_watermark == LogOffsetMetadata(1, 0, size)
        assert log.watermarks.offsets is snapshot

    def test_a_snapshot_does_not_change(self, log: UnifiedLog) -> None:
        append(log, b"a")
        before = log.watermarks.offsets
        assert (before.log_end_offset.message_offset, before.high_watermark.message_offset) == (1, 0)
        log.watermarks.move_high_watermark_to_end()
        append(log, b"b")
        assert (before.log_end_offset.message_offset, before.high_watermark.message_offset) == (1, 0)
        after = log.watermarks.offsets
        assert (after.log_end_offset.message_offset, after.high_watermark.message_offset) == (2, 1)

    def test_the_offsets_of_a_snapshot_are_in_order_through_a_truncation(self, log: UnifiedLog) -> None:
        for _ in range(4):
            append(log, b"a")
        log.watermarks.move_high_watermark_to_end()
        seen = []
        log.watermarks.listener = lambda _: seen.append(log.watermarks.offsets)
        log.truncate_to(2)
        log.truncate_fully_and_start_at(7)
        assert [(one.log_start_offset, one.high_watermark[0], one.log_end_offset[0]) for one in seen] == [
            (0, 2, 2),
            (7, 7, 7),
        ]

    def test_listeners_hear_of_it(self, log: UnifiedLog) -> None:
        heard: list[int] = []
        log.watermarks.listener = heard.append
        append(log, b"a")
        log.watermarks.update_high_watermark(1)
        assert heard == [1]
        log.close()
        log.watermarks.update_high_watermark(0)
        assert heard == [1]

    def test_listeners_hear_of_it_from_a_leader_that_waits_for_nobody(self, log: UnifiedLog) -> None:
        append(log, b"a")
        assert log.watermarks.move_high_watermark_to_end()
        heard: list[int] = []
        log.watermarks.listener = heard.append
        append(log, b"b")
        assert log.watermarks.move_high_watermark_to_end()
        assert not log.watermarks.move_high_watermark_to_end()
        assert heard == [2]

    def test_all_offsets_at_once(self, log: UnifiedLog) -> None:
        append(log, b"a", b"b")
        log.watermarks.update_high_watermark(1)
        snapshot = log.fetch_offset_snapshot()
        assert snapshot.log_start_offset == 0
        assert snapshot.log_end_offset.message_offset == 2
        assert snapshot.high_watermark.message_offset == 1
        assert snapshot.last_stable_offset.message_offset == 1


class TestLeaderEpochs:
    def test_they_are_noted_with_the_batches(self, log: UnifiedLog) -> None:
        for epoch in (0, 0, 2, 2, 5):
            append(log, b"a", leader_epoch=epoch)
        assert log.leader_epochs.latest_epoch == 5
        assert log.end_offset_for_epoch(0) == (0, 2)
        assert log.end_offset_for_epoch(1) == (0, 2)
        assert log.end_offset_for_epoch(2) == (2, 4)
        assert log.end_offset_for_epoch(5) == (5, 5)
        assert log.end_offset_for_epoch(6) is None

    def test_a_leader_may_begin_without_records(self, box: LogBox, log: UnifiedLog) -> None:
        append(log, b"a", leader_epoch=1)
        log.maybe_assign_epoch_start_offset(4, 1)
        assert log.end_offset_for_epoch(4) == (4, 1)
        log.close()
        # A start forgets an epoch without records; the leader, if it still is, begins it again.
        assert box.open().leader_epochs.latest_epoch == 1

    def test_they_survive_a_restart(self, box: LogBox, log: UnifiedLog) -> None:
        append(log, b"a", leader_epoch=1)
        append(log, b"b", leader_epoch=3)
        log.close()
        assert box.open().end_offset_for_epoch(1) == (1, 1)

    def test_they_are_found_again_in_the_records_after_a_crash(self, box: LogBox, log: UnifiedLog) -> None:
        append(log, b"a", leader_epoch=1)
        append(log, b"b", leader_epoch=3)
        assert not (box.directory / "topic-0" / "leader-epoch-checkpoint").exists()
        assert box.open(had_clean_shutdown=False).end_offset_for_epoch(1) == (1, 1)

    def test_the_first_records_of_one_do_not_wait_for_the_disk(
        self, box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a broker it is the thread of all connections that appends."""
        append(log, b"a", leader_epoch=1)
        with monkeypatch.context() as disk:
            for call in ("fsync", "fdatasync"):
                disk.setattr(os, call, lambda _: pytest.fail("the disk was waited for"))
            append(log, b"b", leader_epoch=3)
            assert log.end_offset_for_epoch(1) == (1, 1), "it counts at once"
        box.scheduler.advance(0)
        assert _epochs_on_disk(box) == [(1, 0), (3, 1)]

    def test_they_are_on_disk_before_their_records_count_as_flushed(
        self, box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(log, b"a", leader_epoch=1)
        append(log, b"b", leader_epoch=3)
        seen = []
        mark_flushed = LocalLog.mark_flushed

        def look(local_log: LocalLog, offset: int) -> None:
            seen.append((offset, _epochs_on_disk(box)))
            mark_flushed(local_log, offset)

        monkeypatch.setattr(LocalLog, "mark_flushed", look)
        log.flush()
        assert seen == [(2, [(1, 0), (3, 1)])]
        written = (box.directory / "topic-0" / "leader-epoch-checkpoint").stat()
        box.scheduler.advance(0)
        assert (box.directory / "topic-0" / "leader-epoch-checkpoint").stat() == written, "once is enough"

    def test_they_follow_a_directory_that_is_renamed_before_they_are_written(
        self, box: LogBox, log: UnifiedLog
    ) -> None:
        append(log, b"a", leader_epoch=1)
        log.rename_dir("topic-0.1-delete")
        (box.directory / "topic-0").mkdir()  # another topic of that name, at once
        box.scheduler.advance(0)
        assert _epochs_on_disk(box, "topic-0.1-delete") == [(1, 0)]
        assert not list((box.directory / "topic-0").iterdir())


def _epochs_on_disk(box: LogBox, name: str = "topic-0") -> list[EpochEntry]:
    return LeaderEpochCheckpointFile.in_directory(box.directory / name).read()


class TestClose:
    def test_what_was_appended_is_there_after_it(self, box: LogBox) -> None:
        log = box.open(box.config(segment_bytes=200))
        for number in range(10):
            append(log, b"%d" % number)
        log.close()
        box.restart_process()
        reopened = box.open(box.config(segment_bytes=200))
        assert offsets(all_records(reopened)) == list(range(10))
        assert reopened.recovery_point == 10
        append(reopened, b"more")
        assert reopened.log_end_offset == 11

    def test_a_closed_log_takes_nothing(self, log: UnifiedLog) -> None:
        append(log, b"a")
        log.close()
        for attempt in (lambda: append(log, b"b"), log.roll, log.close, lambda: log.truncate_to(0)):
            with pytest.raises(FileClosedError):
                attempt()

    def test_a_closed_log_does_not_take_its_directory_offline(self, box: LogBox, log: UnifiedLog) -> None:
        log.close()
        with pytest.raises(FileClosedError):
            append(log, b"b")
        assert not box.channel.offline_log_dirs

    def test_delete(self, box: LogBox, log: UnifiedLog) -> None:
        append(log, b"a", producer_id=1, epoch=0, sequence=0)
        log.roll()
        append(log, b"b")
        log.delete()
        assert not (box.directory / "topic-0").exists()

    def test_repr(self, box: LogBox, log: UnifiedLog) -> None:
        append(log, b"a")
        assert repr(log) == (
            f"UnifiedLog({box.directory / 'topic-0'}, log_start_offset=0, last_stable_offset=0, high_watermark=0, "
            "log_end_offset=1)"
        )
