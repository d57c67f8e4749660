"""A segment: what is appended can be read, by offset and by time; its files, its age, its end."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaStorageError
from barnabas.log.config.log_config import LogConfig
from barnabas.log.index import abstract_index, transaction_index
from barnabas.log.index.offset_index import OffsetPosition
from barnabas.log.log_offset_metadata import UNKNOWN_OFFSET_METADATA, LogOffsetMetadata
from barnabas.log.segment import file_records
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_segment import LATEST_POSSIBLE, LogSegment
from barnabas.log.storage_errors import CorruptIndexError, FileClosedError, LogSegmentOffsetOverflowError
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import CompressionType, RecordBatch
from segment_fixtures import NOW, Config, append, batch_of, linux_only, memory_maps, open_files, open_segment

SMALL = Config(segment_index_bytes=1 << 16, index_interval_bytes=200)


def bytes_of(region: FileRegion | bytes) -> bytes:
    return region if isinstance(region, bytes) else os.pread(region.fd, region.count, region.position)


def roll(
    segment: LogSegment,
    *,
    max_timestamp: int = NOW,
    last_offset: int | None = None,
    segment_bytes: int = 10_000,
    now_ms: int = NOW,
) -> bool:
    """Whether 100 bytes of batches belong into a new segment."""
    config = LogConfig(segment_bytes=segment_bytes, segment_ms=60_000)
    last_offset = segment.base_offset + 100 if last_offset is None else last_offset
    return segment.should_roll(100, max_timestamp, last_offset, config, now_ms)


# Files


def test_the_files_of_a_segment(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 147001)
    append(segment, batch_of(147001))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000147001.index",
        "00000000000000147001.log",
        "00000000000000147001.timeindex",
    ]
    assert (tmp_path / "00000000000000147001.index").stat().st_size == 0, "no sparse file"
    assert segment.offset_index.capacity == 10 * 1024 * 1024
    segment.append_aborted_txn(
        AbortedTxn(producer_id=1, first_offset=147001, last_offset=147002, last_stable_offset=147003)
    )
    segment.close()
    sizes = {path.suffix: path.stat().st_size for path in segment.paths}
    assert sizes == {".log": len(batch_of(147001)), ".index": 0, ".timeindex": 12, ".txnindex": 34}


def test_an_empty_segment_leaves_its_index_files_behind(tmp_path: Path) -> None:
    """Otherwise it would count as damaged at the next start, for us and for Kafka."""
    segment = open_segment(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000.log"]
    with pytest.raises(CorruptIndexError, match="index is missing"):
        segment.sanity_check()
    segment.close()
    assert sorted((path.suffix, path.stat().st_size) for path in tmp_path.iterdir()) == [
        (".index", 0),
        (".log", 0),
        (".timeindex", 0),
    ]
    again = open_segment(tmp_path)
    again.sanity_check()
    assert again.max_timestamp_and_offset == (-1, 0)


def test_a_damaged_transaction_index_is_noticed(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 10)
    segment.append_aborted_txn(AbortedTxn(producer_id=1, first_offset=1, last_offset=2, last_stable_offset=3))
    segment.close()
    with pytest.raises(CorruptIndexError, match=r"txnindex: entry 0"):
        open_segment(tmp_path, 10).sanity_check()


@linux_only
def test_opening_a_segment_opens_one_file(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(20):
        append(segment, batch_of(n))
    segment.close()
    segment = open_segment(tmp_path, 0, SMALL)
    segment.sanity_check()
    assert open_files(tmp_path) == [str(tmp_path / "00000000000000000000.log")]
    assert segment.size
    segment.close()
    assert open_files(tmp_path) == memory_maps(tmp_path) == []


# Appending


def test_the_bytes_of_the_index_files(tmp_path: Path) -> None:
    """An entry for each batch that begins more than 200 bytes behind the last one that has one."""
    segment = open_segment(tmp_path, 100, Config(index_interval_bytes=200))
    batches = [
        batch_of(100, [5000], value=b"v" * 13),
        batch_of(101, [5300, 5100], value=b"v" * 13),
        batch_of(103, [5200], value=b"v" * 113),
        batch_of(104, [5200], value=b"v" * 13),
        batch_of(105, [5900], value=b"v" * 313),
        batch_of(106, [5800], value=b"v" * 13),
    ]
    positions = [sum(map(len, batches[:n])) for n in range(6)]
    assert positions == [0, 81, 183, 366, 447, 830]
    for batch in batches:
        append(segment, batch)
    segment.close()
    # 104 begins at 366, the first beyond 200; 106 at 830, the first 200 behind that.
    assert (tmp_path / "00000000000000000100.index").read_bytes() == struct.pack(">4i", 4, 366, 6, 830)
    # The largest so far: 5300, in the batch that ends with 102; then 5900 in 105. The end brings nothing new.
    assert (tmp_path / "00000000000000000100.timeindex").read_bytes() == struct.pack(">qiqi", 5300, 2, 5900, 5)


def test_the_largest_timestamp_is_noted_at_the_end(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 100)
    append(segment, batch_of(100, [7, 9, 8]))
    assert segment.max_timestamp_and_offset == (9, 102)
    segment.close()
    assert (tmp_path / "00000000000000000100.timeindex").read_bytes() == struct.pack(">qi", 9, 2)


@given(st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 250)), min_size=1, max_size=6), max_size=8))
@settings(max_examples=60)
def test_batches_appended_together_are_indexed_like_single_ones(shapes: list[list[tuple[int, int]]]) -> None:
    appends: list[list[bytes]] = []
    offset, time = 40, NOW
    for shape in shapes:
        appends.append([])
        for count, size in shape:
            time += size % 7 - 2
            appends[-1].append(batch_of(offset, [time] * count, value=b"v" * size))
            offset += count
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as directory:
        for together in (True, False):
            path = Path(directory) / str(together)
            path.mkdir()
            segment = open_segment(path, 40, SMALL)
            for batches in appends:
                for group in [batches] if together else [[batch] for batch in batches]:
                    append(segment, *group)
            found.append((segment.max_timestamp_and_offset, segment.read_next_offset()))
            segment.close()
            found.append([file.read_bytes() for file in segment.paths[:3]])
    assert found[:2] == found[2:]
    assert found[0][1] == offset


def test_a_header_and_its_records_may_be_separate_buffers(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(10):
        batch = batch_of(n, value=b"v" * 150)
        header = bytearray(batch[:61]) if n % 2 else batch[:5]
        segment.append(n, NOW, n, [header, memoryview(batch)[len(header) :]])
    index = segment.offset_index
    assert [index.entry(n).offset for n in range(index.entries)] == list(range(1, 10))
    assert [batch.base_offset for batch in segment.records.batches()] == list(range(10))


def test_nothing_appended_is_nothing(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    assert segment.append(0, NOW, 0, b"") == 0
    assert segment.append(0, NOW, 0, []) == 0
    assert segment.max_timestamp_so_far == -1
    assert segment.read_next_offset() == 0


@pytest.mark.parametrize("offset", [99, 100 + 2**31, 2**63 - 1, 0])
def test_offsets_that_the_indexes_cannot_store_are_refused(tmp_path: Path, offset: int) -> None:
    segment = open_segment(tmp_path, 100)
    with pytest.raises(LogSegmentOffsetOverflowError, match=f"offset {offset} ") as raised:
        segment.append(offset, NOW, offset, batch_of(offset))
    assert (raised.value.base_offset, raised.value.offset) == (100, offset)
    assert segment.size == 0
    assert roll(segment, last_offset=offset)


def test_the_last_offset_that_fits(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 100, Config(index_interval_bytes=0))
    largest = 100 + 2**31 - 1
    append(segment, batch_of(100))
    append(segment, batch_of(largest))
    assert not segment.has_overflow
    assert segment.read_next_offset() == largest + 1
    assert segment.offset_index.last_entry == (largest, len(batch_of(100)))
    found = segment.read(largest, 1000)
    assert found is not None
    assert RecordBatch(bytes_of(found.records)).base_offset == largest
    # What compaction by an old Kafka could leave behind.
    segment.records.append(batch_of(largest + 1))
    assert segment.has_overflow


def test_full_indexes_leave_entries_out(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, Config(segment_index_bytes=40, index_interval_bytes=0))
    batches = [batch_of(n, [NOW + n]) for n in range(10)]
    assert not roll(segment)
    append(segment, *batches)
    assert roll(segment)
    assert (segment.offset_index.entries, segment.time_index.entries) == (2, 2)  # 3 of 12 bytes, one kept back
    assert [segment.read(n, 10_000) is not None for n in range(10)] == [True] * 10
    assert segment.read_next_offset() == 10
    segment.on_become_inactive_segment()
    assert segment.time_index.last_entry == (NOW + 9, 9)


def test_a_full_disk_leaves_the_segment_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    append(segment, batch_of(0))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(KafkaStorageError, match="No space left on device"):
            append(segment, batch_of(1, [NOW + 50]))
    assert segment.read_next_offset() == 1
    assert segment.max_timestamp_so_far == NOW
    append(segment, batch_of(1))
    assert segment.read_next_offset() == 2


# Reading


@pytest.fixture
def gaps(tmp_path: Path) -> LogSegment:
    """Batches 10..12, 15, 20..24, as compaction leaves them, in a segment that begins with 8."""
    segment = open_segment(tmp_path, 8, SMALL)
    append(segment, batch_of(10, [NOW] * 3))
    append(segment, batch_of(15))
    append(segment, batch_of(20, [NOW] * 5))
    return segment


def test_a_read_begins_with_the_batch_that_has_the_offset(gaps: LogSegment) -> None:
    sizes = [batch.size_in_bytes for batch in gaps.records.batches()]
    whole = gaps.records.path.read_bytes()
    for offset, base, position in [
        (0, 10, 0), (8, 10, 0), (10, 10, 0), (12, 10, 0), (13, 15, sizes[0]), (15, 15, sizes[0]),
        (16, 20, sum(sizes[:2])), (24, 20, sum(sizes[:2])),
    ]:  # fmt: skip
        found = gaps.read(offset, 1 << 20)
        assert found is not None
        assert found.fetch_offset_metadata == LogOffsetMetadata(base, 8, position)
        assert bytes_of(found.records) == whole[position:]
        assert not found.first_entry_incomplete
        assert found.aborted_transactions is None
    assert gaps.read(25, 1 << 20) is None
    assert gaps.translate_offset(24) == (20, sum(sizes[:2]), sizes[2])
    assert gaps.translate_offset(0, sizes[0]) == (15, sizes[0], sizes[1])
    assert gaps.translate_offset(25) is None


def test_a_read_is_no_larger_than_it_may_be(gaps: LogSegment) -> None:
    whole = gaps.records.path.read_bytes()
    first = len(batch_of(10, [NOW] * 3))
    for max_size in (0, 1, first - 1, first, first + 1, len(whole), 1 << 20):
        for max_position in (None, 0, first, len(whole) - 1, len(whole), 1 << 20):
            for min_one in (False, True):
                found = gaps.read(10, max_size, max_position, min_one)
                assert found is not None
                limit = max(max_size, first) if min_one else max_size
                end = len(whole) if max_position is None else max_position
                expected = whole[: min(limit, end)]
                assert bytes_of(found.records) == expected
                assert found.first_entry_incomplete == (limit < first and expected != b"")
    with pytest.raises(ValueError, match="cannot read -1 bytes"):
        gaps.read(10, -1)


def test_what_may_not_be_seen_is_not_shown(gaps: LogSegment) -> None:
    first = len(batch_of(10, [NOW] * 3))
    found = gaps.read(15, 1000, first)
    assert found is not None
    assert found.records == b""
    assert found.fetch_offset_metadata == (15, 8, first)
    assert gaps.read(15, 1000, 5, True) is not None


def test_a_read_touches_no_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path)
    for n in range(50):
        append(segment, batch_of(n, value=b"v" * 100_000))
    read = 0
    real = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        read += size
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)
    found = segment.read(30, 1 << 20)
    assert found is not None
    assert len(found.records) == 1 << 20
    assert read <= 2 * 4096


def test_a_search_by_time_begins_where_the_indexes_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(2000):
        append(segment, batch_of(n, [NOW + n]))
    read: list[int] = []
    real = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        read.append(position)
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)
    size = segment.size // 2000
    assert segment.find_offset_by_timestamp(NOW + 1500) == (NOW + 1500, 1500, None)
    assert min(read) >= 1490 * size
    read.clear()
    assert segment.find_offset_by_timestamp(NOW + 100, 1700) == (NOW + 1700, 1700, None)
    assert min(read) >= 1690 * size


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 600)), min_size=1, max_size=25),
    st.integers(0, 600),
    st.booleans(),
    st.data(),
)
@settings(max_examples=60)
def test_any_offset_and_time_is_found(
    shapes: list[tuple[int, int, int]], interval: int, reopen: bool, data: st.DataObject
) -> None:
    """Beside a list of all records; whatever the indexes know, and whether they were found again."""
    with tempfile.TemporaryDirectory() as name:
        config = Config(segment_index_bytes=1 << 16, index_interval_bytes=interval)
        segment = open_segment(Path(name), 5, config)
        every: list[tuple[int, int]] = []
        bases: list[int] = []
        offset = 5
        for number, (count, gap, size) in enumerate(shapes):
            offset += gap
            times = [100 + (size * 7 + 13 * n + number) % 50 + number for n in range(count)]
            codec = CompressionType.ZSTD if size % 3 == 0 else CompressionType.NONE
            append(segment, batch_of(offset, times, value=b"v" * size, compression=codec))
            every += [(offset + n, time) for n, time in enumerate(times)]
            bases += [offset] * count
            offset += count
        if reopen:
            segment.close()
            segment = open_segment(Path(name), 5, config)
        assert segment.read_next_offset() == offset
        for target in range(4, offset + 1):
            index = next((n for n, (at, _) in enumerate(every) if at >= target), None)
            found = segment.read(target, 1 << 20)
            assert (found and found.fetch_offset_metadata.message_offset) == (None if index is None else bases[index])
        largest = max(time for _, time in every)
        assert segment.largest_timestamp == segment.largest_record_timestamp == largest
        for _ in range(10):
            time, start = data.draw(st.integers(90, 190)), data.draw(st.integers(0, offset + 1))
            expected = next(((t, at) for at, t in every if t >= time and at >= start), None)
            result = segment.find_offset_by_timestamp(time, start)
            assert (result and result[:2]) == expected
        # And after truncation.
        cut = data.draw(st.integers(5, offset))
        bounds = {base: max(at for (at, _), b in zip(every, bases, strict=True) if b == base) for base in bases}
        kept = [(at, time) for (at, time), base in zip(every, bases, strict=True) if bounds[base] < cut]
        size_before = segment.size
        assert segment.truncate_to(cut) == size_before - segment.size
        assert [record for record in every if segment.read(record[0], 1) is not None] == kept
        assert segment.max_timestamp_so_far == max((time for _, time in kept), default=-1)
        for time in range(99, 190, 10):
            expected = next(((t, at) for at, t in kept if t >= time), None)
            result = segment.find_offset_by_timestamp(time)
            assert (result and result[:2]) == expected
        segment.close()


def test_an_offset_beyond_a_read(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, Config(index_interval_bytes=100))
    size = len(batch_of(0))
    for n in range(10):
        append(segment, batch_of(n))
    entries = [segment.offset_index.entry(n) for n in range(segment.offset_index.entries)]
    assert entries == [(2, 2 * size), (4, 4 * size), (6, 6 * size), (8, 8 * size)]
    assert segment.fetch_upper_bound_offset(OffsetPosition(0, 0), 2 * size) == 2
    assert segment.fetch_upper_bound_offset(OffsetPosition(0, 0), 2 * size + 1) == 4
    assert segment.fetch_upper_bound_offset(OffsetPosition(4, 4 * size), 4 * size) == 8
    assert segment.fetch_upper_bound_offset(OffsetPosition(4, 4 * size), 4 * size + 1) is None


def test_aborted_transactions(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 10)
    aborted = AbortedTxn(producer_id=1, first_offset=5, last_offset=20, last_stable_offset=21)
    segment.append_aborted_txn(aborted)
    assert segment.collect_aborted_txns(10, 15) == ([aborted], True)
    assert segment.collect_aborted_txns(10, 30) == ([aborted], False)
    assert segment.collect_aborted_txns(21, 30) == ([], False)
    segment.truncate_to(20)
    assert segment.collect_aborted_txns(10, 15) == ([], False)


# Truncation


def test_a_batch_goes_as_a_whole(gaps: LogSegment) -> None:
    sizes = [batch.size_in_bytes for batch in gaps.records.batches()]
    assert gaps.truncate_to(25) == 0
    assert gaps.truncate_to(22) == sizes[2]
    assert gaps.read_next_offset() == 16
    assert gaps.truncate_to(8) == sum(sizes[:2])
    assert gaps.size == 0
    assert gaps.read_next_offset() == 8
    assert gaps.max_timestamp_and_offset == (-1, 8)
    append(gaps, batch_of(8, [NOW - 5]))
    assert gaps.max_timestamp_and_offset == (NOW - 5, 8)


def test_a_truncated_segment_is_one_to_write_to(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(30):
        append(segment, batch_of(n, [NOW + n]))
    segment.on_become_inactive_segment()
    assert roll(segment)
    assert segment.truncate_to(20)
    assert segment.offset_index.capacity == 1 << 16
    assert segment.time_index.capacity == (1 << 16) // 12 * 12
    assert not roll(segment)
    for n in range(20, 30):
        append(segment, batch_of(n, [NOW + n]))
    segment.close()
    other = tmp_path / "other"
    other.mkdir()
    straight = open_segment(other, 0, SMALL)
    for n in range(30):
        append(straight, batch_of(n, [NOW + n]))
    straight.close()
    assert [path.read_bytes() for path in segment.paths[:3]] == [path.read_bytes() for path in straight.paths[:3]]


def test_an_empty_segment_ages_from_when_it_was_emptied(tmp_path: Path) -> None:
    clock = MockClock(NOW)
    segment = open_segment(tmp_path, clock=clock)
    append(segment, batch_of(0, [-1]))
    clock.advance(500)
    assert segment.time_waited_for_roll(NOW + 500, -1) == 500
    segment.truncate_to(0)
    assert segment.time_waited_for_roll(NOW + 600, -1) == 100


# Rolling


def test_a_segment_rolls_when_it_would_get_too_large(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    append(segment, batch_of(0))
    size = segment.size
    assert not roll(segment, segment_bytes=size + 100)
    assert roll(segment, segment_bytes=size + 99)
    assert roll(open_segment(tmp_path, 5), segment_bytes=99)


def test_a_segment_rolls_by_the_time_of_its_records(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    # An empty one has nothing to roll for, however long it waits.
    assert not roll(segment, now_ms=NOW + 10**9, max_timestamp=NOW + 10**9)
    append(segment, batch_of(0, [NOW + 10, NOW]))
    append(segment, batch_of(2, [NOW + 1000]))
    assert segment.rolling_based_timestamp == segment.first_batch_timestamp == NOW + 10
    assert not roll(segment, max_timestamp=NOW + 60_010, now_ms=NOW + 10**9)
    assert roll(segment, max_timestamp=NOW + 60_011)
    assert segment.time_waited_for_roll(0, NOW + 110) == 100
    segment.close()
    again = open_segment(tmp_path, roll_jitter_ms=50)
    again.resize_indexes(1000)
    assert not roll(again, max_timestamp=NOW + 59_960)
    assert roll(again, max_timestamp=NOW + 59_961)
    assert again.first_batch_timestamp == NOW + 10


def test_a_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    assert segment.first_batch_timestamp == LATEST_POSSIBLE
    append(segment, batch_of(0, [-1]))
    assert segment.first_batch_timestamp == LATEST_POSSIBLE
    assert segment.rolling_based_timestamp == -1
    assert not roll(segment, now_ms=NOW + 60_000)
    assert roll(segment, now_ms=NOW + 60_001)
    assert segment.largest_record_timestamp is None
    segment.set_last_modified(NOW - 12_345)
    assert segment.largest_timestamp == segment.last_modified == NOW - 12_345


def test_a_rolled_segment_gives_back_what_it_does_not_need(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, preallocate=1 << 20)
    assert segment.records.path.stat().st_size == 1 << 20
    append(segment, batch_of(0, [NOW, NOW + 7]))
    segment.on_become_inactive_segment()
    assert segment.records.path.stat().st_size == segment.size
    assert segment.offset_index_path.stat().st_size == 0
    assert segment.time_index_path.read_bytes() == struct.pack(">qi", NOW + 7, 1)
    # Once more does no harm, and neither does closing it.
    segment.on_become_inactive_segment()
    segment.close()
    assert segment.time_index_path.read_bytes() == struct.pack(">qi", NOW + 7, 1)


def test_a_reopened_segment_goes_on_where_it_was(tmp_path: Path) -> None:
    """The entries follow from the sizes of the batches, however often it was closed in between."""
    straight, often = tmp_path / "straight", tmp_path / "often"
    straight.mkdir()
    often.mkdir()
    segment = open_segment(straight, 0, SMALL)
    for n in range(40):
        append(segment, batch_of(n, [NOW]))
        again = open_segment(often, 0, SMALL)
        again.resize_indexes(SMALL.segment_index_bytes)
        append(again, batch_of(n, [NOW]))
        again.close()
    segment.close()
    assert [path.read_bytes() for path in segment.paths[:3]] == [
        (often / path.name).read_bytes() for path in segment.paths[:3]
    ]


# The life of the files


def test_changing_suffixes(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, suffix=".cleaned")
    assert segment.has_suffix(".cleaned")
    append(segment, batch_of(0))
    segment.append_aborted_txn(AbortedTxn(producer_id=1, first_offset=0, last_offset=1, last_stable_offset=2))
    segment.change_file_suffixes(".cleaned", ".swap")
    segment.change_file_suffixes(".swap", "")
    assert segment.has_suffix("")
    found = segment.read(0, 1000)
    assert found is not None
    segment.change_file_suffixes("", ".deleted")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"00000000000000000000.{kind}.deleted" for kind in ("index", "log", "timeindex", "txnindex")
    ]
    with pytest.raises(ValueError, match="does not end in"):
        segment.change_file_suffixes(".swap", "")
    segment.delete_if_exists()
    segment.delete_if_exists()
    assert segment.deleted
    assert list(tmp_path.iterdir()) == []
    assert bytes_of(found.records) == batch_of(0)


def test_indexes_nobody_asked_for_are_renamed_and_deleted_unopened(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    append(segment, batch_of(0))
    segment.close()
    segment = open_segment(tmp_path)
    segment.change_file_suffixes("", ".deleted")
    assert {path.suffixes[-1] for path in tmp_path.iterdir()} == {".deleted"}
    (tmp_path / "00000000000000000000.index.deleted").unlink()
    segment.change_file_suffixes(".deleted", ".x")
    with pytest.raises(KafkaStorageError, match="cannot rename"):
        segment._time_index.rename(tmp_path / "missing" / "x.timeindex")
    segment.delete_if_exists()
    assert list(tmp_path.iterdir()) == []


def test_a_late_reader_does_not_bring_a_deleted_index_back(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    append(segment, batch_of(0))
    segment.close()
    segment = open_segment(tmp_path)
    segment.delete_if_exists()
    for use in (lambda: segment.read(0, 100), lambda: segment.find_offset_by_timestamp(0), segment.flush):
        with pytest.raises(FileClosedError):
            use()
    segment.close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_segment_that_is_not_open_can_be_deleted(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 7, suffix=".swap")
    append(segment, batch_of(7))
    segment.close()
    open_segment(tmp_path, 8).close()
    LogSegment.delete_files(tmp_path, 7, ".swap")
    LogSegment.delete_files(tmp_path, 7, ".swap")
    assert {path.stem for path in tmp_path.iterdir()} == {"00000000000000000008"}


def test_the_directory_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    segment = open_segment(tmp_path / "t-0", 0, SMALL)
    for n in range(10):
        append(segment, batch_of(n))
    (tmp_path / "t-0").rename(tmp_path / "t-0.abc-delete")
    segment.update_parent_dir(tmp_path / "t-0.abc-delete")
    append(segment, batch_of(10))
    segment.close()
    again = open_segment(tmp_path / "t-0.abc-delete", 0, SMALL)
    assert again.read_next_offset() == 11
    assert again.offset_index.entries == 3
    unopened = open_segment(tmp_path / "t-0.abc-delete", 0, SMALL)
    unopened.update_parent_dir(tmp_path)
    assert {path.parent for path in unopened.paths} == {tmp_path}


def test_closing_goes_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(5):
        append(segment, batch_of(n))
    segment.flush()
    segment.offset_index.truncate()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "truncate", broken)
    with pytest.raises(KafkaStorageError, match=r"cannot resize .*\.index: Input/output error"):
        segment.close()
    assert not segment.records.is_open
    segment.close()


def test_handlers_closed_after_a_disk_failure_write_nothing(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, SMALL, preallocate=1 << 16)
    for n in range(5):
        append(segment, batch_of(n))
    before = [path.stat().st_size for path in segment.paths[:3]]
    segment.close_handlers()
    segment.close()
    assert [path.stat().st_size for path in segment.paths[:3]] == before
    with pytest.raises(FileClosedError):
        append(segment, batch_of(5))


@linux_only
def test_nothing_stays_open_or_mapped(tmp_path: Path) -> None:
    config = Config(segment_index_bytes=1 << 16, index_interval_bytes=0)
    for end in (LogSegment.close, LogSegment.close_handlers, LogSegment.delete_if_exists):
        segment = open_segment(tmp_path, 0, config)
        if segment.size:
            segment.recover()
            segment.resize_indexes(config.segment_index_bytes)
        for n in range(segment.read_next_offset(), segment.read_next_offset() + 1500):
            append(segment, batch_of(n, [NOW + n]))
        segment.append_aborted_txn(
            AbortedTxn(producer_id=1, first_offset=0, last_offset=10**6, last_stable_offset=10**6)
        )
        segment.read(3, 100)
        segment.find_offset_by_timestamp(NOW + 3)
        assert len(memory_maps(tmp_path)) == 2
        end(segment)
        assert open_files(tmp_path) == memory_maps(tmp_path) == []


@linux_only
def test_flush_reaches_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def note(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    for module in (file_records, abstract_index, transaction_index):
        monkeypatch.setattr(module, "sync_data", note)
    segment = open_segment(tmp_path, 0, SMALL)
    for n in range(5):
        append(segment, batch_of(n))
    segment.append_aborted_txn(AbortedTxn(producer_id=1, first_offset=0, last_offset=1, last_stable_offset=2))
    segment.flush()
    assert sorted(synced) == sorted(map(str, segment.paths))
    segment.flush()
    assert len(synced) == 4
    assert segment.offset_index_path.read_bytes()[:8] != bytes(8)


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 0, SMALL)
    batches = [batch_of(n, [NOW + n], value=b"v" * (n % 150)) for n in range(600)]
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            end = segment.read_next_offset()
            for offset in (0, end // 2, end - 1) if end else ():
                found = segment.read(offset, 1, None, True)
                if found is None or bytes_of(found.records) != batches[offset]:
                    wrong.append((offset, found))
                at = segment.find_offset_by_timestamp(NOW + offset)
                if at is None or at.offset != offset:
                    wrong.append((offset, at))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for batch in batches:
        append(segment, batch)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_repr(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 7)
    assert "base_offset=7, size=0" in repr(segment)
    assert isinstance(segment.records, FileRecords)


def test_offset_metadata() -> None:
    here, there = LogOffsetMetadata(10, 0, 100), LogOffsetMetadata(20, 0, 350)
    assert there.position_diff(here) == 250
    assert here.on_same_segment(there)
    later = LogOffsetMetadata(30, 25, 0)
    assert here.on_older_segment(later)
    assert not later.on_older_segment(here)
    only = LogOffsetMetadata(40)
    assert only.message_offset_only
    assert UNKNOWN_OFFSET_METADATA.message_offset_only
    assert not only.on_older_segment(later)
    assert not here.on_older_segment(only)
    assert not only.on_same_segment(only)
    for other in (later, only):
        with pytest.raises(ValueError, match="no distance in bytes"):
            other.position_diff(here)
