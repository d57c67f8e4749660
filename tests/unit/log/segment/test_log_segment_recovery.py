"""Recovery: what is intact is kept, what is not is cut off, and the indexes are what they would have been."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import KafkaStorageError, UnsupportedForMessageFormatError
from barnabas.log.segment import file_records
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import LogSegmentOffsetOverflowError
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.reader import read_records
from segment_fixtures import NOW, Config, append, batch_of, open_segment, write_at

SMALL = Config(segment_index_bytes=1 << 12, index_interval_bytes=150)


def written(directory: Path, batches: list[bytes], base_offset: int = 0, config: Config = SMALL) -> LogSegment:
    directory.mkdir(exist_ok=True)
    segment = open_segment(directory, base_offset, config)
    for batch in batches:
        append(segment, batch)
    segment.close()
    return segment


def contents(segment: LogSegment) -> list[bytes]:
    return [path.read_bytes() for path in segment.paths[:3]]


def mixed(count: int, base_offset: int = 0) -> list[bytes]:
    batches, offset = [], base_offset
    for n in range(count):
        codec = list(CompressionType)[n % 5]
        times = [NOW + (n * 37 + k * 11) % 100 for k in range(1 + n % 3)]
        batches.append(batch_of(offset, times, value=b"v" * (n * 29 % 120), compression=codec))
        offset += len(times) + n % 2
    return batches


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    """Whatever part of the last batch reached the file before the crash, recovery leaves the batches before it."""
    batches = mixed(9)
    intact = contents(written(tmp_path / "intact", batches[:-1]))
    whole = b"".join(batches)
    start = len(intact[0])
    torn_dir = tmp_path / "torn"
    torn_dir.mkdir()
    for size in range(start, len(whole)):
        (torn_dir / "00000000000000000000.log").write_bytes(whole[:size])
        # As a crash leaves them: of full size, with entries or without.
        (torn_dir / "00000000000000000000.index").write_bytes(bytes(1 << 12))
        (torn_dir / "00000000000000000000.timeindex").write_bytes(os.urandom(4092))
        segment = open_segment(torn_dir, 0, SMALL)
        assert segment.recover() == size - start
        assert segment.read_next_offset() == RecordBatch(batches[-2]).next_offset
        segment.close()
        assert contents(segment) == intact


def test_a_tail_with_a_bit_flipped_anywhere_is_cut(tmp_path: Path) -> None:
    batches = [batch_of(n, value=b"v" * 40) for n in range(4)]
    intact = contents(written(tmp_path / "intact", batches[:2]))
    segment = written(tmp_path / "damaged", batches)
    third = bytearray(batches[2])
    for byte in range(len(third)):
        if 12 <= byte < 16:
            continue  # the leader epoch may be anything
        damaged = bytearray(third)
        damaged[byte] ^= 1 << byte % 8
        segment.records.path.write_bytes(intact[0] + damaged + batches[3])
        again = open_segment(tmp_path / "damaged", 0, SMALL)
        if byte < 8:
            # Offsets are outside the checksum: a higher one is not noticed, but then the next batch is out of order,
            # or it is too high for the segment.
            try:
                assert again.recover() == len(batches[3])
            except LogSegmentOffsetOverflowError:
                assert RecordBatch(damaged).base_offset >= 2**31
            continue
        assert again.recover() == len(third) + len(batches[3])
        again.close()
        assert contents(again) == intact


def test_zeros_behind_the_last_batch_are_cut(tmp_path: Path) -> None:
    """What a preallocated file, or a file system that had the size but not the bytes, comes back with."""
    batches = mixed(6)
    segment = written(tmp_path / "a", batches)
    intact = contents(segment)
    for zeros in (1, 11, 12, 16, 17, 18, 61, 5000):
        segment.records.path.write_bytes(intact[0] + bytes(zeros))
        again = open_segment(tmp_path / "a", 0, SMALL)
        assert again.recover() == zeros
        again.close()
        assert contents(again) == intact


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 400)), max_size=30),
    st.integers(0, 500),
    st.sampled_from([100, 1000, 1 << 20]),
    st.booleans(),
)
@settings(max_examples=60)
def test_recovery_finds_the_same_entries_again(
    shapes: list[tuple[int, int, int]], interval: int, chunk: int, use_mmap: bool
) -> None:
    config = Config(segment_index_bytes=1 << 12, index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_records, "_LOAD_CHUNK", chunk)
        directory = Path(name)
        batches, offset = [], 1000
        for number, (count, gap, size) in enumerate(shapes):
            offset += gap
            times = [NOW + (size * 3 + number) % 200] * count
            batches.append(batch_of(offset, times, value=b"v" * size))
            offset += count
        segment = written(directory, batches, 1000, config)
        before = contents(segment)
        largest = max(map(RecordBatch, batches), key=lambda batch: batch.max_timestamp, default=None)
        segment.offset_index_path.unlink()
        segment.time_index_path.write_bytes(b"nonsense!")
        again = open_segment(directory, 1000, config, use_mmap=use_mmap)
        assert again.recover() == 0
        assert again.max_timestamp_and_offset == (
            (largest.max_timestamp, largest.last_offset) if largest else (-1, 1000)
        )
        again.offset_index.sanity_check()
        again.time_index.sanity_check()
        again.close()
        assert contents(again) == before


def test_a_recovered_segment_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    batches = mixed(20)
    straight = contents(written(tmp_path / "straight", batches))
    segment = written(tmp_path / "crashed", batches[:11])
    with segment.records.path.open("ab") as file:
        file.write(batches[11][:-1])
    segment = open_segment(tmp_path / "crashed", 0, SMALL)
    assert segment.recover() == len(batches[11]) - 1
    segment.resize_indexes(SMALL.segment_index_bytes)
    # The entry that recovery notes at the end is not there in a log that was never interrupted.
    segment.time_index.truncate_to(segment.offset_index.last_offset + 1)
    for batch in batches[11:]:
        append(segment, batch)
    segment.close()
    assert contents(segment)[:2] == straight[:2]
    assert segment.time_index_path.read_bytes()[-12:] == straight[2][-12:]


def test_leader_epochs_are_told_when_they_begin(tmp_path: Path) -> None:
    epochs = [-1, 0, 0, 3, 2, 3, 7]
    batches = [batch_of(n * 2, [NOW, NOW], partition_leader_epoch=epoch) for n, epoch in enumerate(epochs)]
    written(tmp_path, batches)
    told: list[tuple[int, int]] = []
    open_segment(tmp_path, 0, SMALL).recover(None, lambda epoch, offset: told.append((epoch, offset)))
    assert told == [(0, 2), (3, 6), (7, 12)]


def test_producers_are_told_and_the_transaction_index_is_rebuilt(tmp_path: Path) -> None:
    def marker(kind: ControlRecordType, offset: int) -> bytes:
        return bytes(
            end_transaction_marker_batch(
                EndTransactionMarker(kind, 1), producer_id=9, producer_epoch=0, timestamp_ms=NOW, base_offset=offset
            )
        )

    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    batches = [
        batch_of(0, [NOW] * 2, base_sequence=0, **producer),
        marker(ControlRecordType.ABORT, 2),
        batch_of(3, base_sequence=2, **producer),
        marker(ControlRecordType.COMMIT, 4),
        batch_of(5),
    ]
    segment = written(tmp_path, batches)
    segment.txn_index.path.write_bytes(b"nonsense")
    segment = open_segment(tmp_path, 0, SMALL)
    seen: list[int] = []

    def note(batch: RecordBatch) -> AbortedTxn | None:
        seen.append(batch.base_offset)
        if not batch.is_control_batch:
            return None
        kind = EndTransactionMarker.parse(next(read_records(batch))).control_type
        if kind is ControlRecordType.COMMIT:
            return None
        return AbortedTxn(producer_id=9, first_offset=0, last_offset=batch.last_offset, last_stable_offset=3)

    assert segment.recover(note) == 0
    assert seen == [0, 2, 3, 4, 5]
    assert segment.collect_aborted_txns(0, 5) == (
        [AbortedTxn(producer_id=9, first_offset=0, last_offset=2, last_stable_offset=3)],
        False,
    )
    segment.txn_index.sanity_check()


def test_a_failing_callback_is_not_taken_for_damage(tmp_path: Path) -> None:
    segment = written(tmp_path, mixed(5))
    size = segment.records.path.stat().st_size

    def broken(_: RecordBatch) -> None:
        raise RuntimeError("not the log's fault")

    with pytest.raises(RuntimeError):
        open_segment(tmp_path, 0, SMALL).recover(broken)
    assert segment.records.path.stat().st_size == size


def test_offsets_must_grow(tmp_path: Path) -> None:
    good = batch_of(10, [NOW] * 3)
    for wrong in (batch_of(12), batch_of(10), batch_of(5)):
        (tmp_path / "00000000000000000010.log").write_bytes(good + wrong)
        assert open_segment(tmp_path, 10, SMALL).recover() == len(wrong)
    (tmp_path / "00000000000000000010.log").write_bytes(batch_of(9))
    assert open_segment(tmp_path, 10, SMALL).recover() == len(batch_of(9))


def test_an_offset_that_does_not_fit_is_for_the_loader_to_decide(tmp_path: Path) -> None:
    data = batch_of(0) + batch_of(2**31)
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    segment = open_segment(tmp_path, 0, SMALL)
    with pytest.raises(LogSegmentOffsetOverflowError, match="offset 2147483648"):
        segment.recover()
    assert segment.records.path.read_bytes() == data


def test_a_message_of_an_old_format_is_not_cut_off(tmp_path: Path) -> None:
    """It cannot be served, but it is data: no reason to destroy it."""
    import zlib

    body = struct.pack(">bbqii", 1, 0, NOW, -1, 5) + b"hello"
    message = struct.pack(">qiI", 1, len(body) + 4, zlib.crc32(body)) + body
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch_of(0) + message)
    with pytest.raises(UnsupportedForMessageFormatError, match=r"00\.log cannot be recovered: .*message format 1"):
        open_segment(tmp_path, 0, SMALL).recover()
    assert path.read_bytes() == batch_of(0) + message
    # Damage that looks like one is damage.
    write_at(path, len(batch_of(0)) + 20, b"?")
    assert open_segment(tmp_path, 0, SMALL).recover() == len(message)


def test_it_is_said_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch_of(0) + batch_of(1)[:-1])
    open_segment(tmp_path, 0, SMALL).recover()
    (line,) = caplog.messages
    assert line == f"{path}: cut off the last 87 bytes, which are not intact batches; it now ends at position 88"
    caplog.clear()
    write_at(path, 70, b"?")
    open_segment(tmp_path, 0, SMALL).recover()
    assert f"{path}: found a damaged batch at position 0: the record batch at offset 0 is corrupt" in caplog.messages[0]
    assert "cut off the last 88 bytes" in caplog.messages[1]


def test_an_intact_segment_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = written(tmp_path, mixed(5))
    os.utime(segment.records.path, (1000, 1000))
    again = open_segment(tmp_path, 0, SMALL)
    assert again.recover() == 0
    assert again.last_modified == 1_000_000


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = written(tmp_path, mixed(5))
    size = segment.records.path.stat().st_size
    again = open_segment(tmp_path, 0, SMALL)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_records, "read_fully", broken)
    with pytest.raises(KafkaStorageError, match="cannot read"):
        again.recover()
    assert segment.records.path.stat().st_size == size


def test_a_segment_with_more_batches_than_index_slots(tmp_path: Path) -> None:
    segment = written(tmp_path, mixed(5))
    segment.records.path.write_bytes(b"".join(batch_of(n) for n in range(50)))
    tiny = Config(segment_index_bytes=48, index_interval_bytes=0)
    again = open_segment(tmp_path, 0, tiny)
    assert again.recover() == 0
    assert again.read_next_offset() == 50
    assert (again.offset_index.entries, again.time_index.entries) == (6, 1)
