"""Compaction of one log: what goes, what stays, and how it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log.cleaner.cleaner import Cleaner, group_segments_by_size
from barnabas.log.cleaner.cleaner_errors import LogCleaningAbortedError
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.log_to_clean import LogToClean
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.index.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    CompressionType,
    RecordBatch,
    TimestampType,
)
from barnabas.records.control import ControlRecordType
from log_fixtures import NOW, LogBox, all_records, end_transaction, offsets
from segment_fixtures import write_at
from unit.log.cleaner.cleaner_samples import (
    DELETE_RETENTION_MS,
    batches_in,
    clean,
    compacted,
    contents,
    described,
    keyed_batch,
    new_cleaner,
    put,
    put_as_replica,
    to_clean,
)

COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


@pytest.fixture
def log(box: LogBox) -> Iterator[UnifiedLog]:
    opened = box.open(compacted())
    yield opened
    opened.close_handlers()


def reopened(box: LogBox, log: UnifiedLog) -> UnifiedLog:
    log.close()
    box.restart_process()
    again = box.open(compacted())
    again.watermarks.update_high_watermark(again.log_end_offset)
    return again


# Keys


def test_the_last_record_of_each_key_stays_where_it_is(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    put(log, (b"c", b"1"), (b"a", b"3"))
    log.roll()
    put(log, (b"b", b"9"))  # in the active segment, which is left alone and does not count
    end, stats = clean(log, box.clock)
    assert contents(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"b", b"9")]
    assert end == 5
    assert (stats.messages_read, stats.messages_written) == (5, 3)
    assert log.segments.base_offsets == (0, 5)
    assert offsets(all_records(log)) == [1, 3, 4, 5]
    assert offsets(all_records(reopened(box, log))) == [1, 3, 4, 5]


def test_the_clean_part_loses_what_comes_again_in_the_dirty_part(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll()
    end, _ = clean(log, box.clock)
    put(log, (b"a", b"2"))
    log.roll()
    end, stats = clean(log, box.clock, end)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert end == 3
    assert stats.map_messages_read == 1


def test_records_without_a_key_go(box: LogBox, log: UnifiedLog) -> None:
    put_as_replica(log, (None, b"1"), (b"k", b"2"))
    put_as_replica(log, (None, b"3"))
    put_as_replica(log, (b"l", b"4"))
    log.roll()
    _, stats = clean(log, box.clock)
    assert contents(log) == [(1, b"k", b"2"), (3, b"l", b"4")]
    assert stats.invalid_messages_read == 2


def test_records_before_the_dirty_part_are_not_in_the_map(box: LogBox, log: UnifiedLog) -> None:
    """A round begins in the middle of a batch; what is before it must not keep newer records from staying."""
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.roll()
    seen: list[tuple[bytes, int]] = []

    class Watched(OffsetMap):
        def put(self, key: bytes | memoryview, offset: int) -> None:
            seen.append((bytes(key), offset))
            super().put(key, offset)

    Cleaner(Watched(1 << 16), box.clock, io_buffer_size=1 << 16, load_factor=1.0).clean(to_clean(log, 2))
    assert seen == [(b"c", 2)]


def test_a_full_map_ends_the_round(box: LogBox, log: UnifiedLog) -> None:
    for number in range(6):
        put(log, (b"k%d" % number, b"1"), (b"k%d" % number, b"2"), (b"gone", None))
        if number % 2:
            log.roll()
    end, stats = clean(log, box.clock, keys=3)
    assert end == 4  # k0, gone, k1; the next record is not looked at any more, although its key is known
    assert stats.buffer_utilization == 1.0
    assert contents(log)[:6] == [
        (1, b"k0", b"2"),
        (2, b"gone", None),
        (3, b"k1", b"1"),
        (4, b"k1", b"2"),
        (5, b"gone", None),
        (6, b"k2", b"1"),
    ]
    # Nothing was done for the other tombstones' keys yet, so their time does not begin.
    assert [batch.delete_horizon_ms for batch in batches_in(log)] == [NOW + DELETE_RETENTION_MS] + [None] * 5
    rounds = 1
    while end < log.log_end_offset:
        end, _ = clean(log, box.clock, end, keys=3)
        rounds += 1
    assert rounds > 3
    assert [key for _, key, _ in contents(log)] == [b"k0", b"k1", b"k2", b"k3", b"k4", b"k5", b"gone"]


def test_what_the_map_does_not_know_is_not_touched(box: LogBox, log: UnifiedLog) -> None:
    """Not even records without a key, or tombstones whose time is over: that is for the round that gets there."""
    put(log, (b"gone", None))
    log.roll()
    clean(log, box.clock)
    box.clock.advance(DELETE_RETENTION_MS)
    (tombstone,) = batches_in(log)
    assert tombstone.delete_horizon_ms == box.clock.milliseconds()
    put_as_replica(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (None, b"1"))
    put_as_replica(log, (None, b"2"))
    log.append_as_follower(_moved(tombstone, log.log_end_offset), 0)
    log.roll()
    end, _ = clean(log, box.clock, 1, keys=2)
    assert end == 3
    assert contents(log) == [
        (1, b"a", b"1"),
        (2, b"b", b"1"),
        (3, b"c", b"1"),
        (4, None, b"1"),
        (5, None, b"2"),
        (6, b"gone", None),
    ]
    clean(log, box.clock, end)
    assert contents(log) == [(1, b"a", b"1"), (2, b"b", b"1"), (3, b"c", b"1")]


def _moved(batch: RecordBatch, base_offset: int) -> bytearray:
    """As a follower gets it from a leader that has cleaned before."""
    data = bytearray(batch.view)
    RecordBatch(data).set_base_offset(base_offset)
    return data


def test_offsets_without_records_at_the_end_of_a_segment_are_clean(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    log.roll(10)
    log.append_as_follower(keyed_batch([(b"b", b"1")], base_offset=10), 0)
    log.roll(20)
    log.watermarks.update_high_watermark(log.log_end_offset)
    end, _ = new_cleaner(box.clock).clean(LogToClean.of(log, 0, 20))
    assert end == 20
    end, _ = new_cleaner(box.clock).clean(LogToClean.of(log, 15, 20))
    assert end == 20


def test_the_memory_is_given_back(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    log.roll()
    keys = OffsetMap(1 << 16)
    _, stats = Cleaner(keys, box.clock, io_buffer_size=1 << 16, load_factor=1.0).clean(to_clean(log))
    assert stats.buffer_utilization > 0
    assert len(keys) == 0


def test_a_map_for_no_key_at_all_is_refused(box: LogBox) -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        new_cleaner(box.clock, keys=1)


# How batches are written


def test_a_batch_that_loses_nothing_is_copied_as_it_is(box: LogBox, log: UnifiedLog) -> None:
    for number, codec in enumerate(CompressionType):
        put(log, (b"a%d" % number, b"x" * 100), (b"b%d" % number, b"y" * 100), compression=codec)
    log.roll()
    before = [bytes(batch.view) for batch in batches_in(log)]
    clean(log, box.clock)
    assert [bytes(batch.view) for batch in batches_in(log)] == before


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_a_batch_that_loses_records_stays_what_it_is_otherwise(
    box: LogBox, log: UnifiedLog, codec: CompressionType, timestamp_type: TimestampType
) -> None:
    put_as_replica(
        log,
        (b"a", b"1" * 50),
        (b"b", b"2" * 50),
        (b"c", b"3" * 50),
        (b"a", b"4" * 50),
        timestamps=[NOW + 7, NOW, NOW + 3, NOW + 9],
        headers=[("h", b"1"), ("n", None)],
        compression=codec,
        timestamp_type=timestamp_type,
        log_append_time=NOW + 99 if timestamp_type is TimestampType.LOG_APPEND_TIME else -1,
        producer_id=5,
        producer_epoch=2,
        base_sequence=17,
    )
    put(log, (b"a", b"5"), (b"c", b"6"))
    log.roll()
    (original, _) = batches_in(log)
    clean(log, box.clock)
    (batch, _) = batches_in(log)
    assert batch.compression_type is codec
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 3, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (5, 2, 17, 20)
    assert (batch.timestamp_type, batch.partition_leader_epoch) == (timestamp_type, 0)
    expected = described(original)[-1][1]
    assert described(batch)[-1] == [expected]
    assert batch.max_timestamp == expected[1]  # the largest of those that are left
    segment = log.segments.first
    assert segment is not None
    assert segment.max_timestamp_and_offset == (max(expected[1], NOW), 3 if expected[1] >= NOW else 5)


def test_a_batch_larger_than_the_buffer(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    put(log, *((b"key-%d" % number, b"x" * 1000) for number in range(20)))
    put(log, (b"a", b"2"))
    log.roll()
    throttled: list[int] = []
    clean(log, box.clock, io_buffer_size=0, throttle=throttled.append)
    assert offsets(all_records(log)) == list(range(1, 22))
    # What is read twice over, once for the keys and once to copy it, and what is written.
    assert sum(throttled) > 3 * log.size


def test_indexes_find_what_is_left(box: LogBox, log: UnifiedLog) -> None:
    for number in range(200):
        put(log, (b"k%d" % (number % 150), b"v" * 30), timestamp=NOW + number)
    log.roll()
    clean(log, box.clock)
    first = log.segments.first
    assert first is not None
    assert first.offset_index.entries > 20
    for wanted in range(0, 200, 7):
        found = next(record for record in all_records(log) if record.offset >= wanted)
        info = log.read(wanted, 1, FetchIsolation.LOG_END, True)
        assert info.fetch_offset_metadata.message_offset == wanted
        by_time = log.fetch_offset_by_timestamp(NOW + wanted)
        assert by_time is not None
        assert (by_time.offset, by_time.timestamp) == (found.offset, found.timestamp)


# Tombstones


def test_tombstones_stay_for_their_time(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"), timestamps=[NOW - 5, NOW + 5])
    log.roll()
    put(log, (b"z", b""))
    log.roll()
    end, _ = clean(log, box.clock)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1"), (4, b"z", b"")]
    batch = batches_in(log)[1]
    assert batch.delete_horizon_ms == NOW + DELETE_RETENTION_MS
    assert [record[1] for record in described(batch)[-1]] == [NOW - 5, NOW + 5]
    assert batch.max_timestamp == NOW + 5

    box.clock.advance(DELETE_RETENTION_MS - 1)
    before = [bytes(each.view) for each in batches_in(log)]
    put(log, (b"y", b""))
    log.roll()
    end, _ = clean(log, box.clock, end)
    assert [bytes(each.view) for each in batches_in(log)][:3] == before

    box.clock.advance(1)
    put(log, (b"x", b""))
    log.roll()
    clean(log, box.clock, end)
    assert [key for _, key, _ in contents(log)] == [b"b", b"c", b"z", b"y", b"x"]
    batch = batches_in(log)[1]
    assert (batch.base_offset, batch.last_offset, batch.delete_horizon_ms) == (2, 3, NOW + DELETE_RETENTION_MS)
    assert described(batch)[-1] == [(3, NOW + 5, b"c", b"1", ())]


def test_a_tombstone_that_is_not_the_last_of_its_key_goes_at_once(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", None))
    put(log, (b"a", b"1"))
    log.roll()
    clean(log, box.clock)
    assert contents(log) == [(1, b"a", b"1")]


# Producers and transactions


def test_the_last_batch_of_a_producer_stays_as_a_header(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=5, producer_epoch=1, base_sequence=0)
    put(
        log,
        (b"a", b"2"),
        (b"b", b"2"),
        producer_id=5,
        producer_epoch=1,
        base_sequence=2,
        compression=CompressionType.GZIP,
    )
    put(log, (b"a", b"3"), (b"b", b"3"))
    log.roll()
    clean(log, box.clock)
    header, _ = batches_in(log)
    assert (len(header), header.record_count, header.is_compressed) == (HEADER_SIZE, 0, False)
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (2, 3, 2, 3)
    assert (header.max_timestamp, header.base_timestamp, header.partition_leader_epoch) == (NOW, -1, 0)
    for name in box.files():
        if name.endswith(".snapshot"):
            (box.directory / "topic-0" / name).unlink()
    again = reopened(box, log)
    put(again, (b"c", b"1"), producer_id=5, producer_epoch=1, base_sequence=4)  # its sequence goes on
    again.roll()
    clean(again, box.clock)
    assert [batch.record_count for batch in batches_in(again)] == [2, 1]  # and the header is not needed any more
    again.close_handlers()


def test_the_log_does_not_end_earlier_than_it_did(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    put_as_replica(log, (None, b"1"))
    log.roll()
    clean(log, box.clock)
    assert [(batch.last_offset, batch.record_count) for batch in batches_in(log)] == [(0, 1), (1, 0)]


def transaction(log: UnifiedLog, producer_id: int, end: ControlRecordType, *pairs: Any, sequence: int = 0) -> None:
    put_as_replica(
        log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    end_transaction(log, end, producer_id, 0)


def aborted_in(log: UnifiedLog) -> list[tuple[int, int]]:
    return [
        (txn.producer_id, txn.first_offset) for segment in log.segments for txn in segment.txn_index.all_aborted_txns()
    ]


def test_an_aborted_transaction_goes_in_steps(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    transaction(log, 7, ABORT, (b"a", b"2"), (b"new", b"2"))
    transaction(log, 7, COMMIT, (b"b", b"1"), sequence=2)
    log.roll()
    end, _ = clean(log, box.clock)
    # Its records are gone, and did not count; the marker stays, and the entry that goes with it.
    assert contents(log) == [(0, b"a", b"1"), (4, b"b", b"1")]
    assert [batch.base_offset for batch in batches_in(log) if batch.is_control_batch] == [3, 5]
    assert aborted_in(log) == [(7, 1)]

    put(log, (b"c", b"1"))
    log.roll()
    end, _ = clean(log, box.clock, end)
    markers = [batch for batch in batches_in(log) if batch.is_control_batch]
    assert [marker.delete_horizon_ms for marker in markers] == [NOW + DELETE_RETENTION_MS, None]
    assert aborted_in(log) == []
    assert [end_marker[3] for end_marker in described(markers[0])[-1]] == [b"\0\0\0\0\0\0"]

    box.clock.advance(DELETE_RETENTION_MS)
    put(log, (b"d", b"1"))
    log.roll()
    clean(log, box.clock, end)
    assert [batch.base_offset for batch in batches_in(log) if batch.is_control_batch] == [5]


def test_the_marker_of_a_committed_transaction_goes_after_its_records(box: LogBox, log: UnifiedLog) -> None:
    transaction(log, 7, COMMIT, (b"a", b"1"))
    transaction(log, 7, COMMIT, (b"b", b"1"), sequence=1)
    log.roll()
    end, _ = clean(log, box.clock)
    put(log, (b"a", b"2"))
    log.roll()
    end, _ = clean(log, box.clock, end)
    assert [(batch.base_offset, batch.delete_horizon_ms) for batch in batches_in(log)] == [
        (1, None),  # its batch has gone just now: a consumer may be in the middle of the transaction
        (2, None),
        (3, None),
        (4, None),
    ]
    for step in (0, DELETE_RETENTION_MS):
        box.clock.advance(step)
        put(log, (b"c%d" % step, b"1"))
        log.roll()
        end, _ = clean(log, box.clock, end)
    assert [batch.base_offset for batch in batches_in(log)] == [2, 3, 4, 5, 6]


def test_an_open_transaction_is_not_touched(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"))
    log.roll()
    put_as_replica(log, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    put(log, (b"a", b"3"))
    log.roll()
    cleanable = to_clean(log)
    assert (cleanable.first_uncleanable_offset, log.last_stable_offset) == (1, 1)
    new_cleaner(box.clock).clean(cleanable)
    assert [offset for offset, _, _ in contents(log)] == [0, 1, 2]


def test_the_marker_of_a_producer_without_records_keeps_its_epoch(box: LogBox, log: UnifiedLog) -> None:
    """A marker with a newer epoch than the data ends what the older instance did; its header has to remain."""
    put_as_replica(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, ABORT, 7, 1)
    log.roll()
    end = 0
    for _ in range(3):
        put(log, (b"b", b"1"))
        log.roll()
        end, _ = clean(log, box.clock, end)
        box.clock.advance(DELETE_RETENTION_MS)
    (marker,) = (batch for batch in batches_in(log) if batch.is_control_batch)
    assert (marker.record_count, marker.producer_epoch, marker.last_offset) == (0, 1, 1)


# Segments


def test_small_segments_are_put_together(box: LogBox, tmp_path: Path) -> None:
    log = box.open(compacted(segment_bytes=1000))
    for number in range(10):
        put(log, (b"k%d" % number, b"x" * 200))
        log.roll()
    sizes = [segment.size for segment in log.segments]
    newest = max(segment.last_modified for segment in log.segments.values()[:3])
    clean(log, box.clock)
    assert sizes[0] * 3 < 1000 < sizes[0] * 4
    assert log.segments.base_offsets == (0, 3, 6, 9, 10)
    first = log.segments.first
    assert first is not None
    assert first.last_modified == newest
    box.scheduler.tick()
    box.clock.advance(log.config.file_delete_delay_ms)
    box.scheduler.tick()
    assert [name for name in box.files() if name.endswith(".log")] == [
        f"{offset:020}.log" for offset in (0, 3, 6, 9, 10)
    ]
    log.close_handlers()


class _Sized:
    def __init__(self, base_offset: int, size: int = 100, index: int = 8, times: int = 12) -> None:
        self.base_offset, self.size = base_offset, size
        self.offset_index, self.time_index = _Index(index), _Index(times)


class _Index:
    def __init__(self, size: int) -> None:
        self.size_in_bytes = size


def groups(*segments: _Sized, size: int = 1000, index: int = 1000, end: int = 10**12) -> list[list[int]]:
    cast: Any = segments
    return [[each.base_offset for each in group] for group in group_segments_by_size(cast, size, index, end)]


def test_groups_fit_into_a_segment() -> None:
    assert groups() == []
    assert groups(*(_Sized(offset) for offset in range(5)), size=200, end=5) == [[0, 1], [2, 3], [4]]
    assert groups(_Sized(0, 300), _Sized(1, 10), _Sized(2, 10), size=200, end=3) == [[0], [1, 2]]
    assert groups(*(_Sized(offset, index=40) for offset in range(3)), index=80, end=3) == [[0, 1], [2]]
    assert groups(*(_Sized(offset, times=40) for offset in range(3)), index=119, end=3) == [[0, 1], [2]]


def test_groups_do_not_reach_further_than_an_index_can() -> None:
    far = MAX_RELATIVE_OFFSET
    assert groups(_Sized(5), _Sized(6), end=far + 6) == [[5, 6]]
    assert groups(_Sized(5), _Sized(6), end=far + 7) == [[5], [6]]
    assert groups(_Sized(5), _Sized(6), _Sized(far + 6), end=far + 7) == [[5, 6], [far + 6]]
    assert groups(_Sized(5), _Sized(far * 2, size=0), _Sized(far * 3, size=0)) == [[5, far * 2, far * 3]]


def test_a_segment_whose_offsets_reach_too_far_is_split(box: LogBox, log: UnifiedLog) -> None:
    """Kafka before 1.1 made such segments."""
    put(log, (b"a", b"1"))
    log.roll()
    first = log.segments.first
    assert first is not None
    far = MAX_RELATIVE_OFFSET + 1
    data = keyed_batch([(b"b", b"1")], base_offset=far)
    first.records.append(data)
    log.roll(far + 10)
    cleanable = LogToClean.of(log, 0, 1)
    with pytest.raises(LogCleaningAbortedError, match="split"):
        new_cleaner(box.clock).clean(cleanable)
    assert log.segments.base_offsets[:2] == (0, 1)
    assert far in log.segments.base_offsets
    assert not [name for name in box.files() if name.endswith(".cleaned")]


# What goes wrong


def leftovers(box: LogBox) -> list[str]:
    return [name for name in box.files() if name.endswith((".cleaned", ".swap"))]


def test_a_damaged_batch_is_not_made_good_again(box: LogBox, log: UnifiedLog) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"b", b"2"))
    log.roll()
    first = log.segments.first
    assert first is not None
    write_at(first.records.path, first.size - 3, b"?")
    before = first.records.path.read_bytes()
    with pytest.raises(CorruptRecordError, match="checksum"):
        clean(log, box.clock)
    assert first.records.path.read_bytes() == before
    assert leftovers(box) == []
    # In the clean part it is found when that is copied.
    put(log, (b"c", b"1"))
    log.roll()
    with pytest.raises(CorruptRecordError, match="checksum"):
        clean(log, box.clock, 3)
    assert leftovers(box) == []


def test_records_that_do_not_parse_are_damage_too(box: LogBox, log: UnifiedLog) -> None:
    """As a bug of a producer would write them: the checksum is right."""
    put(log, (b"a", b"1"))
    log.roll()
    first = log.segments.first
    assert first is not None
    data = bytearray(first.records.path.read_bytes())
    data[HEADER_SIZE] = 0x7F
    batch = RecordBatch(data)
    data[17:ATTRIBUTES_OFFSET] = batch.compute_crc().to_bytes(4)
    write_at(first.records.path, 0, bytes(data))
    with pytest.raises((CorruptRecordError, InvalidRecordError)):
        clean(log, box.clock)


@pytest.mark.parametrize("keep", [8, 30, 61, 65])
def test_a_segment_that_is_cut_off_is_damaged(box: LogBox, log: UnifiedLog, keep: int) -> None:
    put(log, (b"a", b"1"))
    start = log.size
    put(log, (b"b", b"1"))
    log.roll()
    first = log.segments.first
    assert first is not None
    first.records.truncate_to(start + keep)
    with pytest.raises(CorruptRecordError, match="cut off"):
        clean(log, box.clock)


def test_an_abort_leaves_the_log_as_it_was(box: LogBox, log: UnifiedLog) -> None:
    for number in range(50):
        put(log, (b"a", b"%d" % number))
    log.roll()
    checks = 0

    def check(_: object) -> None:
        nonlocal checks
        checks += 1
        if checks == 40:
            raise LogCleaningAbortedError("enough")

    before = contents(log)
    with pytest.raises(LogCleaningAbortedError, match="enough"):
        clean(log, box.clock, io_buffer_size=200, check_done=check)
    assert contents(log) == before
    assert leftovers(box) == []


def test_a_disk_that_fails_leaves_the_log_as_it_was(
    box: LogBox, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()

    def fail(_: LogSegment) -> None:
        raise KafkaStorageError("no space left")

    monkeypatch.setattr(LogSegment, "flush", fail)
    monkeypatch.setattr(LogSegment, "delete_if_exists", fail)
    with pytest.raises(KafkaStorageError, match="no space left"):
        clean(log, box.clock)
    assert len(contents(log)) == 2
    monkeypatch.undo()
    again = reopened(box, log)
    assert (len(contents(again)), leftovers(box)) == (2, [])
    again.close_handlers()
