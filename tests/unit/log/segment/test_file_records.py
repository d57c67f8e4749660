"""The file of batches: what is written is there, what is torn is not, and what is on its way out stays."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log.segment import file_handle, file_records
from barnabas.log.segment.file_records import FileRecords, LogOffsetPosition, TimestampAndOffset
from barnabas.log.storage_errors import FileClosedError, is_disk_failure
from barnabas.network.reactor.send import FileRegion, NetworkSend
from barnabas.network.transport import PlaintextTransportLayer
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType, iter_batches
from barnabas.records.reader import read_records
from segment_fixtures import NOW, batch_of, linux_only, open_files

ThreeBatches = [batch_of(0, [NOW, NOW + 5]), batch_of(2, [NOW + 1], value=b"x" * 300), batch_of(3, [NOW + 9] * 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def file_with(path: Path, data: bytes) -> FileRecords:
    path.write_bytes(data)
    return FileRecords(path)


# Writing


def test_the_file_is_the_batches_and_nothing_else(path: Path) -> None:
    records = FileRecords(path)
    assert records.size_in_bytes == 0
    assert records.append(ThreeBatches[0]) == len(ThreeBatches[0])
    assert records.append([memoryview(ThreeBatches[1]), bytearray(ThreeBatches[2])]) == sum(map(len, ThreeBatches[1:]))
    assert records.append(b"") == records.append([]) == 0
    assert records.size_in_bytes == sum(map(len, ThreeBatches))
    assert path.read_bytes() == b"".join(ThreeBatches)
    records.close()
    again = FileRecords(path)
    again.append(b"more")
    assert path.read_bytes() == b"".join(ThreeBatches) + b"more"


def test_an_append_is_one_system_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real_pwrite, real_pwritev = os.pwrite, file_handle._pwritev

    def pwrite(fd: int, data: bytes, position: int) -> int:
        calls.append("pwrite")
        return real_pwrite(fd, data, position)

    def pwritev(fd: int, data: Sequence[Any], position: int) -> int:
        calls.append("pwritev")
        return real_pwritev(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(file_handle, "_pwritev", pwritev)
    records = FileRecords(path)
    records.append(ThreeBatches[0])
    assert calls == ["pwrite"]
    records.append([b"a", b"b", b"c"])
    assert calls == ["pwrite", "pwritev"]


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 17), max_size=20))
def test_short_writes_are_continued(
    tmp_path_factory: pytest.TempPathFactory, buffers: list[bytes], takes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("short") / "x.log"
    pending = list(takes)
    real = os.pwrite

    def pwrite(fd: int, data: bytes, position: int) -> int:
        return real(fd, data[: pending.pop()] if pending else data, position)

    def pwritev(fd: int, data: Sequence[bytes], position: int) -> int:
        return pwrite(fd, b"".join(data), position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(file_handle, "_pwritev", pwritev)
        records = FileRecords(path)
        whole = b"".join(buffers)
        assert records.append(buffers) == len(whole)
        pending[:] = takes
        assert records.append(whole) == len(whole)
    assert path.read_bytes() == whole * 2


@given(st.binary(min_size=1, max_size=60), st.lists(st.integers(1, 17), max_size=6))
def test_one_buffer_is_written_whole_as_well(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, takes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("short") / "x.log"
    pending = list(takes)
    real = os.pwrite

    def pwrite(fd: int, data: bytes, position: int) -> int:
        return real(fd, data[: pending.pop()] if pending else data, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(file_handle, "_pwritev", lambda fd, data, position: pwrite(fd, b"".join(data), position))
        records = FileRecords(path)
        for _ in range(3):
            records.append(memoryview(data))
    assert path.read_bytes() == data * 3
    assert records.size_in_bytes == len(data) * 3


def test_one_buffer_that_cannot_be_written_leaves_no_trace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = FileRecords(path)
    records.append(ThreeBatches[0])
    real = os.pwrite

    def fill_up(fd: int, data: bytes, position: int) -> int:
        real(fd, data[:10], position)
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fill_up)
        with pytest.raises(KafkaStorageError, match="no space"):
            records.append(ThreeBatches[1])
    assert path.read_bytes() == ThreeBatches[0]
    assert records.size_in_bytes == len(ThreeBatches[0])
    records.append(ThreeBatches[1])
    assert path.read_bytes() == ThreeBatches[0] + ThreeBatches[1]
    records.close()
    with pytest.raises(FileClosedError):
        records.append(b"more")


def test_many_buffers_are_more_than_one_call_takes(path: Path) -> None:
    records = FileRecords(path)
    buffers = [bytes([n % 256]) for n in range(5000)]
    assert records.append(buffers) == 5000
    assert path.read_bytes() == b"".join(buffers)


def test_buffers_are_joined_where_there_is_no_pwritev(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_handle, "_pwritev", file_handle._joined_pwritev)
    FileRecords(path).append([b"ab", memoryview(b"cd")])
    assert path.read_bytes() == b"abcd"


@pytest.mark.parametrize("several", [False, True])
def test_a_full_disk_leaves_no_trace(path: Path, monkeypatch: pytest.MonkeyPatch, several: bool) -> None:
    records = FileRecords(path)
    records.append(ThreeBatches[0])
    real = os.pwrite
    calls = 0

    def fill_up(fd: int, data: bytes, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return real(fd, data[:10], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fill_up)
        patch.setattr(file_handle, "_pwritev", lambda fd, data, position: fill_up(fd, b"".join(data), position))
        with pytest.raises(KafkaStorageError, match=r"cannot append to .*00\.log: No space left on device") as raised:
            records.append(ThreeBatches[1:] if several else ThreeBatches[1])
    assert isinstance(raised.value.__cause__, OSError)
    assert is_disk_failure(raised.value)
    assert records.size_in_bytes == path.stat().st_size == len(ThreeBatches[0])
    records.append(ThreeBatches[1])
    assert path.read_bytes() == ThreeBatches[0] + ThreeBatches[1]


def test_a_write_that_makes_no_progress_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = FileRecords(path)
    monkeypatch.setattr(file_handle, "_pwritev", lambda *_: 0)
    with pytest.raises(KafkaStorageError, match="wrote nothing of 3 bytes"):
        records.append([b"abc"])


def test_a_segment_has_at_most_2_gib(path: Path) -> None:
    records = FileRecords(path)
    os.truncate(path, 2**31 - 1)
    records = FileRecords(path)
    with pytest.raises(ValueError, match="too many"):
        records.append(b"x")
    with pytest.raises(ValueError, match="too many"):
        records.append([b"x"])
    os.truncate(path, 2**31)
    with pytest.raises(KafkaStorageError, match="2147483648 bytes"):
        FileRecords(path)


def test_what_is_preallocated_does_not_count_and_is_given_back(path: Path) -> None:
    records = FileRecords(path, preallocate=10_000)
    assert (records.size_in_bytes, path.stat().st_size) == (0, 10_000)
    assert list(records.batches()) == []
    records.append(ThreeBatches[0])
    assert (records.size_in_bytes, path.stat().st_size) == (len(ThreeBatches[0]), 10_000)
    assert [batch.position for batch in records.batches()] == [0]
    records.trim()
    assert path.read_bytes() == ThreeBatches[0]
    records.close()
    # A file that has something in it is not made longer: what is in it counts.
    assert FileRecords(path, preallocate=10_000).size_in_bytes == path.stat().st_size == len(ThreeBatches[0])


def test_close_trims_and_flushes_what_was_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(file_records, "sync_data", synced.append)
    records = FileRecords(path, preallocate=10_000)
    records.append(ThreeBatches[0])
    records.close()
    records.close()
    assert path.read_bytes() == ThreeBatches[0]
    assert len(synced) == 1
    FileRecords(path).close()
    assert len(synced) == 1


def test_flush_goes_to_the_disk_once_for_each_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(file_records, "sync_data", synced.append)
    records = FileRecords(path)
    records.flush()
    assert not synced
    records.append(ThreeBatches[0])
    records.flush()
    records.flush()
    assert len(synced) == 1
    records.truncate_to(0)
    records.flush()
    assert len(synced) == 2
    # What a killed process has left behind may not be on the disk.
    path.write_bytes(ThreeBatches[0])
    FileRecords(path).flush()
    assert len(synced) == 3


def test_a_flush_that_failed_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = FileRecords(path)
    records.append(ThreeBatches[0])
    with monkeypatch.context() as patch:

        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(file_records, "sync_data", broken)
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match="cannot flush"):
                records.flush()
    records.flush()


def test_a_second_flush_waits_for_the_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller counts the bytes as flushed, which they are not before the sync in progress has ended."""
    records = FileRecords(path)
    records.append(ThreeBatches[0])
    events: list[str] = []

    def flush() -> None:
        records.flush()
        events.append("second flush")

    second = threading.Thread(target=flush)

    def sync(_: int) -> None:
        second.start()
        second.join(0.1)
        events.append("synced")

    monkeypatch.setattr(file_records, "sync_data", sync)
    records.flush()
    second.join()
    assert events == ["synced", "second flush"]


def test_truncate(path: Path) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    assert records.truncate_to(len(ThreeBatches[0])) == len(ThreeBatches[1]) + len(ThreeBatches[2])
    assert path.read_bytes() == ThreeBatches[0]
    assert records.truncate_to(len(ThreeBatches[0])) == 0
    for wrong in (-1, len(ThreeBatches[0]) + 1):
        with pytest.raises(ValueError, match="cannot truncate"):
            records.truncate_to(wrong)
    records.append(ThreeBatches[2])
    assert path.read_bytes() == ThreeBatches[0] + ThreeBatches[2]


def test_a_file_that_is_only_read_is_not_written_to(path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="cannot open"):
        FileRecords(path, mutable=False)
    path.write_bytes(ThreeBatches[0])
    path.chmod(0o444)
    records = FileRecords(path, mutable=False)
    assert [batch.base_offset for batch in records.batches()] == [0]
    with pytest.raises(KafkaStorageError):
        records.append(b"x")
    records.close()
    assert path.read_bytes() == ThreeBatches[0]


# Reading


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 30_000)), max_size=12),
    st.data(),
)
def test_batches_are_found_like_in_memory(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    batches, next_offset = [], 0
    for count, gap, size in shapes:
        batches.append(batch_of(next_offset + gap, [NOW] * count, value=b"v" * (size // count)))
        next_offset += gap + count
    whole = b"".join(batches)
    records = file_with(tmp_path_factory.mktemp("b") / "x.log", whole)
    expected = list(iter_batches(whole))
    found = list(records.batches())
    positions = [sum(map(len, batches[:n])) for n in range(len(batches))]
    assert [batch.position for batch in found] == positions
    assert [repr(batch) for batch in found] == [repr(batch) for batch in expected]
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    assert found == expected
    loaded = list(records.loaded_batches())
    assert loaded == list(zip(positions, expected, strict=True))
    # From any batch on, up to anywhere: only whole ones.
    start = data.draw(st.sampled_from([*positions, len(whole)]))
    end = data.draw(st.integers(0, len(whole) + 10))
    inside = [p for p, batch in zip(positions, batches, strict=True) if p >= start and p + len(batch) <= end]
    assert [batch.position for batch in records.batches(start, end)] == inside
    assert [position for position, _ in records.loaded_batches(start, end)] == inside
    # The first batch that ends at or behind the target, from there on.
    target = data.draw(st.integers(-1, next_offset + 1))
    first = next((b for b in found if b.position >= start and b.last_offset >= target), None)
    position = records.search_for_offset(target, start)
    assert position == (first and LogOffsetPosition(first.base_offset, first.position, first.size_in_bytes))


def test_loading_goes_on_where_a_chunk_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch_of(n, value=b"v" * (n * 37 % 500)) for n in range(60)]
    records = file_with(path, b"".join(batches))
    for chunk in (17, 18, 61, 100, 400, 1000):
        monkeypatch.setattr(file_records, "_LOAD_CHUNK", chunk)
        assert [bytes(batch.view) for _, batch in records.loaded_batches()] == batches


def test_payloads_are_not_read_to_find_a_batch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [batch_of(n, value=b"v" * 50_000) for n in range(20)]
    small = [batch_of(20 + n) for n in range(1000)]
    records = file_with(path, b"".join(large + small))
    read: list[int] = []
    real = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        read.append(size)
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)
    assert len(list(records.batches(0, sum(map(len, large))))) == 20
    assert sum(read) < 4096 + 20 * 61
    # Of small ones, many headers come with one read.
    read.clear()
    assert len(list(records.batches(sum(map(len, large))))) == 1000
    assert len(read) < 10
    read.clear()
    region = records.read_slice(0, 100_000)
    assert len(region) == 100_000
    assert not read


def test_a_torn_tail_is_the_end(path: Path) -> None:
    intact = len(ThreeBatches[0]) + len(ThreeBatches[1])
    whole = b"".join(ThreeBatches)
    for size in range(intact, len(whole)):
        records = file_with(path, whole[:size])
        assert [batch.base_offset for batch in records.batches()] == [0, 2]
        assert [batch.base_offset for _, batch in records.loaded_batches()] == [0, 2]
        assert records.search_for_offset(3) is None
        assert records.largest_timestamp().offset == 1
        assert records.search_for_timestamp(NOW + 6) is None
    assert [batch.base_offset for batch in file_with(path, whole).batches()] == [0, 2, 3]


@pytest.mark.parametrize(
    ("position", "damage", "error", "text"),
    [
        (8, struct.pack(">i", 0), CorruptRecordError, "impossible length of 0"),
        (8, struct.pack(">i", -5), CorruptRecordError, "impossible length of -5"),
        (8, struct.pack(">i", 48), CorruptRecordError, "impossible length of 48"),
        (16, b"\x03", CorruptRecordError, "unknown magic 3"),
        (16, b"\xff", CorruptRecordError, "unknown magic -1"),
        (16, b"\x01", InvalidRecordError, "message format 1"),
    ],
)
def test_a_header_that_cannot_be_true_is_an_error(
    path: Path, position: int, damage: bytes, error: type[Exception], text: str
) -> None:
    second = bytearray(ThreeBatches[1])
    second[position : position + len(damage)] = damage
    records = file_with(path, ThreeBatches[0] + second + ThreeBatches[2])
    for read in (records.batches(), records.loaded_batches()):
        next(iter(read))
        with pytest.raises(error, match=rf"00\.log: the record batch at position {len(ThreeBatches[0])} .*{text}"):
            next(iter(read))
    assert records.search_for_offset(1) == (0, 0, len(ThreeBatches[0]))
    with pytest.raises(error):
        records.search_for_offset(2)


@given(st.binary(max_size=400) | st.binary(max_size=100).map(lambda tail: ThreeBatches[0] + tail))
def test_any_bytes_at_all_are_batches_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    records = file_with(tmp_path_factory.mktemp("any") / "x.log", data)
    for read in (records.batches, records.loaded_batches):
        try:
            count = sum(1 for _ in read())
            assert count <= len(data) // 61
        except (CorruptRecordError, InvalidRecordError):
            pass
    records.holds_old_format(0)


def test_a_file_cut_short_behind_our_back_is_not_taken_for_more(path: Path) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    batch = list(records.batches())[-1]
    os.truncate(path, len(ThreeBatches[0]))
    assert [batch.base_offset for batch in records.batches()] == [0]
    assert [batch.base_offset for _, batch in records.loaded_batches()] == [0]
    with pytest.raises(CorruptRecordError, match="cut off: only 0 of its"):
        _ = batch.view
    for more in (10, 70):  # in the middle of a batch
        path.write_bytes(b"".join(ThreeBatches)[: len(ThreeBatches[0]) + more])
        assert [batch.base_offset for _, batch in records.loaded_batches()] == [0]
    os.truncate(path, 0)
    assert list(records.batches()) == list(records.loaded_batches()) == []


def test_bytes_are_read_as_far_as_the_file_goes(path: Path) -> None:
    records = file_with(path, b"0123456789")
    assert records.read_bytes(2, 3) == b"234"
    assert records.read_bytes(8, 30) == b"89"
    assert records.read_bytes(10, 1) == b""
    for position, size in ((-1, 1), (11, 0), (0, -1)):
        with pytest.raises(ValueError, match=r"no .* bytes at position"):
            records.read_bytes(position, size)
        with pytest.raises(ValueError, match=r"no .* bytes at position"):
            records.read_slice(position, size)
    assert len(records.read_slice(10, 5)) == 0


def test_reads_that_come_in_pieces_are_put_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: real(fd, min(size, 7), position))
    assert records.read_bytes(0, 1 << 20) == b"".join(ThreeBatches)
    assert [bytes(batch.view) for batch in records.batches()] == ThreeBatches


def test_a_disk_that_fails_is_told_with_the_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    batch = next(records.batches())

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    for read in (
        lambda: records.read_bytes(0, 1),
        lambda: list(records.batches()),
        lambda: list(records.loaded_batches()),
        lambda: records.search_for_offset(0),
        lambda: batch.view,
    ):
        with pytest.raises(KafkaStorageError, match=r"cannot read .*00\.log: Input/output error"):
            read()


# Timestamps


@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_first_record_of_a_time_is_found_inside_a_batch(path: Path, codec: CompressionType) -> None:
    batches = [
        batch_of(10, [100, 300, 200], compression=codec, partition_leader_epoch=4),
        batch_of(13, [250, 250], compression=codec),
        batch_of(15, [300, 400, 400], compression=codec, partition_leader_epoch=5),
    ]
    records = file_with(path, b"".join(batches))
    assert records.search_for_timestamp(0) == TimestampAndOffset(100, 10, 4)
    assert records.search_for_timestamp(100) == (100, 10, 4)
    assert records.search_for_timestamp(101) == (300, 11, 4)
    # Equal ones: the first; and not before the offset that is asked for.
    assert records.search_for_timestamp(300, 0, 12) == (300, 15, 5)
    assert records.search_for_timestamp(250, 0, 12) == (250, 13, None)
    assert records.search_for_timestamp(250, 0, 14) == (250, 14, None)
    assert records.search_for_timestamp(400) == (400, 16, 5)
    assert records.search_for_timestamp(300, len(batches[0])) == (300, 15, 5)
    assert records.search_for_timestamp(401) is None
    assert records.search_for_timestamp(0, 0, 18) is None
    assert records.largest_timestamp() == (400, 17, 5)
    assert records.largest_timestamp(len(b"".join(batches))) == (-1, -1, None)


def test_the_largest_timestamp_is_that_of_the_first_batch_that_has_it(path: Path) -> None:
    records = file_with(path, batch_of(0, [5]) + batch_of(1, [7, 7]) + batch_of(3, [7]) + batch_of(4, [6]))
    assert records.largest_timestamp() == (7, 2, None)


def test_with_append_time_all_records_have_the_time_of_their_batch(path: Path) -> None:
    batch = batch_of(0, [1, 2, 3], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=50)
    records = file_with(path, batch)
    assert records.search_for_timestamp(3) == (50, 0, None)
    assert records.search_for_timestamp(50, 0, 2) == (50, 2, None)
    assert records.search_for_timestamp(51) is None


def test_only_a_batch_that_can_have_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = file_with(path, batch_of(0, [9]) + batch_of(1, [5]) + batch_of(2, [8, 9]))
    opened: list[int] = []

    def spy(batch: RecordBatch, **options: Any) -> Any:
        opened.append(batch.base_offset)
        return read_records(batch, **options)

    monkeypatch.setattr(file_records, "read_records", spy)
    assert records.search_for_timestamp(6, 0, 1) == (8, 2, None)
    assert opened == [2]


# The old formats


def old_message(magic: int, payload: bytes = b"hello") -> bytes:
    """A message from before Kafka 0.11, with the checksum of its time."""
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", len(payload)) + payload
    return struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_an_intact_message_of_an_old_format_is_told_from_damage(path: Path, magic: int) -> None:
    message = old_message(magic)
    records = file_with(path, ThreeBatches[0] + message)
    start = len(ThreeBatches[0])
    assert not records.holds_old_format(0)
    assert records.holds_old_format(start)
    for n in range(12, len(message)):
        damaged = bytearray(message)
        damaged[n] ^= 0x40
        assert not file_with(path, ThreeBatches[0] + damaged).holds_old_format(start)
    for size in range(len(message)):
        assert not file_with(path, ThreeBatches[0] + message[:size]).holds_old_format(start)


# The life of the file


def sent(region: FileRegion, room: int = 1 << 20) -> bytes:
    """What the transport makes of a region."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        send = NetworkSend([region])
        transport = PlaintextTransportLayer(here)
        received = b""
        while send.remaining:
            send.write_to(transport)
            received += there.recv(room)
        while len(received) < send.size:
            received += there.recv(room)
    return received


def test_a_region_survives_renaming_and_deletion(path: Path) -> None:
    content = os.urandom(3_000_000)  # more than a socket takes at a time: the rest is sent from what is left of it
    records = file_with(path, content)
    region = records.read_slice(1000, 2_500_000)
    renamed = path.with_name(path.name + ".deleted")
    records.rename(renamed)
    assert not path.exists()
    assert records.path == renamed
    assert sent(records.read_slice(0, 10)) == content[:10]
    assert records.delete_if_exists()
    assert not records.delete_if_exists()
    assert not renamed.exists()
    assert sent(region) == content[1000:2_501_000]


@linux_only
def test_the_descriptor_is_closed_by_the_last_one_who_needs_it(path: Path) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    region = records.read_slice(0, 100)
    batch = next(records.batches())
    number = int(region.fd)
    records.delete_if_exists()
    assert len(open_files(path.parent)) == 1
    # Nobody else can be given the number meanwhile.
    others = [path.parent / f"other{n}" for n in range(3)]
    opened = [FileRecords(other) for other in others]
    assert number not in [int(other.read_slice(0, 0).fd) for other in opened]
    for other in opened:
        other.close()
    assert os.pread(region.fd, 10, 0) == ThreeBatches[0][:10]
    rest = FileRegion(region.fd, 5, 5)  # what is left of a region that was half sent
    del region
    assert os.pread(rest.fd, 5, 0) == ThreeBatches[0][:5]
    del rest
    assert bytes(batch.view) == ThreeBatches[0]
    assert len(open_files(path.parent)) == 1
    del batch
    assert open_files(path.parent) == []


@linux_only
def test_nothing_stays_open(path: Path) -> None:
    for n in range(5):
        records = FileRecords(path)
        records.append(ThreeBatches[n % 3])
        list(records.batches())
        records.search_for_offset(0)
        records.read_slice(0, 10)
        if n % 2:
            records.close()
        else:
            records.close_handlers()
        assert open_files(path.parent) == []
    abandoned = FileRecords(path)
    del abandoned
    assert open_files(path.parent) == []


def test_a_closed_file_is_no_disk_failure(path: Path) -> None:
    records = file_with(path, b"".join(ThreeBatches))
    batches = records.batches()
    next(batches)
    records.close()
    assert not records.is_open
    assert "closed" in repr(records)
    for use in (
        lambda: records.append(b"x"),
        lambda: records.read_slice(0, 1),
        lambda: records.read_bytes(0, 1),
        lambda: list(records.batches()),
        lambda: records.search_for_offset(0),
        lambda: records.truncate_to(0),
    ):
        with pytest.raises(FileClosedError, match="is closed") as raised:
            use()
        assert not is_disk_failure(raised.value)
    # A reader that was at it goes on.
    assert [batch.base_offset for batch in batches] == [2, 3]
    assert path.read_bytes() == b"".join(ThreeBatches)


def test_to_be_out_of_descriptors_is_no_disk_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, failed in ((errno.EMFILE, False), (errno.ENFILE, False), (errno.EIO, True), (errno.EROFS, True)):

        def refuse(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(KafkaStorageError, match=os.strerror(number)) as raised:
                FileRecords(path)
        assert is_disk_failure(raised.value) is failed
    assert not is_disk_failure(ValueError())


def test_the_directory_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    records = file_with(tmp_path / "old" / "1.log", ThreeBatches[0])
    (tmp_path / "old").rename(tmp_path / "new")
    records.update_parent_dir(tmp_path / "new")
    records.rename(tmp_path / "new" / "2.log")
    assert (tmp_path / "new" / "2.log").read_bytes() == ThreeBatches[0]
    with pytest.raises(KafkaStorageError, match="cannot rename"):
        records.rename(tmp_path / "missing" / "3.log")
    assert records.path == tmp_path / "new" / "2.log"


def test_readers_see_whole_batches_while_one_writes(path: Path) -> None:
    records = FileRecords(path)
    batches = [batch_of(n, value=b"v" * (n % 200)) for n in range(400)]
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = list(records.batches())
            if [batch.base_offset for batch in found] != list(range(len(found))):
                wrong.append(found)
            if found and not found[-1].is_valid():
                wrong.append(found[-1])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for batch in batches:
        records.append(batch)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(list(records.batches())) == 400
