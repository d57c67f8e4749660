from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels import checksum
from barnabas.common.errors import KafkaStorageError
from barnabas.log.producers.producer_snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from barnabas.log.producers.producer_snapshot_files import ProducerSnapshotFiles, SnapshotFile, list_snapshot_files
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from unit.log.producers.producer_samples import NOW, entry

crc32c = checksum.crc32c

TWO = [
    entry(1, BatchMetadata(9, 9, 9, 4), epoch=2, coordinator_epoch=3, timestamp=4),
    entry(7, coordinator_epoch=-1, timestamp=4, txn_first_offset=33),
]
# As Kafka 4.3.1 writes these two.
BYTES = bytes.fromhex(
    "0001 7f63a73c 00000002"
    "0000000000000001 0002 00000009 0000000000000009 00000009 0000000000000004 00000003 ffffffffffffffff"
    "0000000000000007 0000 ffffffff ffffffffffffffff 00000000 0000000000000004 ffffffff 0000000000000021"
)


def with_crc(body: bytes, version: int = 1) -> bytes:
    return version.to_bytes(2) + crc32c(body).to_bytes(4) + body


def test_the_bytes() -> None:
    assert encode_snapshot(TWO) == BYTES
    assert decode_snapshot(BYTES) == TWO


def test_of_several_batches_the_last_one_is_kept() -> None:
    full = entry(1, *[BatchMetadata(n, n, 0, NOW + n) for n in range(5)], timestamp=NOW + 4)
    (back,) = decode_snapshot(encode_snapshot([full]))
    assert back == entry(1, BatchMetadata(4, 4, 0, NOW + 4), timestamp=NOW + 4)


def test_no_producers() -> None:
    assert encode_snapshot([]) == with_crc(bytes(4))
    assert decode_snapshot(encode_snapshot([])) == []


INT16, INT32, INT64 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerStateEntry:
    timestamp = draw(st.integers(-1, 2**63 - 1))
    batches = [BatchMetadata(draw(INT32), draw(INT64), draw(INT32), timestamp)] if draw(st.booleans()) else []
    return entry(
        draw(INT64),
        *batches,
        epoch=draw(INT16),
        coordinator_epoch=draw(st.integers(-1, 2**31 - 1)),
        timestamp=timestamp,
        txn_first_offset=draw(st.none() | INT64),
    )


@settings(deadline=None)
@given(st.lists(entries(), max_size=5, unique_by=lambda made: made.producer_id))
def test_what_is_written_reads_back(states: list[ProducerStateEntry]) -> None:
    assert decode_snapshot(encode_snapshot(states)) == states


@pytest.mark.parametrize("position", range(len(BYTES)))
def test_a_flipped_bit_anywhere_is_noticed(position: int) -> None:
    for bit in range(8):
        damaged = bytearray(BYTES)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))


def test_a_file_that_is_cut_off_or_too_long_is_noticed() -> None:
    for size in range(len(BYTES)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(BYTES[:size])
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(BYTES + b"\x00")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x00\x01", "2 bytes are too few"),
        (with_crc(bytes(4), version=0), "version 0"),
        (with_crc(bytes(4), version=2), "version 2"),
        (with_crc(b""), "ProducerSnapshot"),
        (with_crc(b"\x00\x00\x00\x01"), "ProducerSnapshot"),
        (with_crc(b"\x7f\xff\xff\xff" + bytes(46)), "ProducerSnapshot"),
        (with_crc(b"\xff\xff\xff\xff"), "ProducerSnapshot"),
        (with_crc(bytes(5)), "1 bytes are left over"),
    ],
)
def test_a_right_checksum_does_not_make_it_right(data: bytes, fault: str) -> None:
    with pytest.raises(CorruptSnapshotError, match=fault):
        decode_snapshot(data)


@given(st.binary(max_size=80))
def test_any_bytes_give_producers_or_one_error(body: bytes) -> None:
    for data in (body, with_crc(body)):
        try:
            decode_snapshot(data)
        except CorruptSnapshotError:
            continue


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000042.snapshot"
    write_snapshot(path, TWO)
    assert path.read_bytes() == BYTES
    assert read_snapshot(path) == TWO
    write_snapshot(path, [], sync=False)
    assert read_snapshot(path) == []
    with pytest.raises(KafkaStorageError, match=r"cannot read .*\.snapshot"):
        read_snapshot(tmp_path / "other.snapshot")
    with pytest.raises(KafkaStorageError, match="cannot write"):
        write_snapshot(tmp_path / "not" / "there.snapshot", TWO)


# The files of a directory


def make(directory: Path, *offsets: int) -> ProducerSnapshotFiles:
    for offset in offsets:
        write_snapshot(directory / f"{offset:020d}.snapshot", [], sync=False)
    return ProducerSnapshotFiles(directory)


def names(directory: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in directory.iterdir())


def test_a_directory_is_searched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("00000000000000000005.log", "00000000000000000005.snapshot.deleted", "readme.snapshot"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "00000000000000000009.snapshot").mkdir()
    files = make(tmp_path, 7, 3)
    assert files.offsets == [3, 7]
    assert [file.offset for file in list_snapshot_files(tmp_path)] == [3, 7]
    assert "readme.snapshot is left alone" in caplog.text
    with pytest.raises(KafkaStorageError, match="cannot list"):
        ProducerSnapshotFiles(tmp_path / "gone")


def test_looking_up(tmp_path: Path) -> None:
    files = make(tmp_path, 3, 7)
    latest, oldest = files.latest(), files.oldest()
    assert latest is not None
    assert oldest is not None
    assert (oldest.offset, latest.offset) == (3, 7)
    assert latest.path == files.path_for(7)
    assert files.get(5) is None
    files.add(9)
    assert files.offsets == [3, 7, 9]
    files.update_parent_dir(tmp_path / "elsewhere")
    moved = files.get(3)
    assert moved is not None
    assert moved.path == files.path_for(3) == tmp_path / "elsewhere" / "00000000000000000003.snapshot"
    (tmp_path / "empty").mkdir()
    empty = ProducerSnapshotFiles(tmp_path / "empty")
    assert (empty.latest(), empty.oldest()) == (None, None)
    assert repr(SnapshotFile(Path("x/00012.snapshot"))) == "SnapshotFile(offset=12, path='x/00012.snapshot')"


def test_deleting(tmp_path: Path) -> None:
    files = make(tmp_path, 1, 3, 5, 7, 9)
    files.delete_before(3)
    files.delete_after(7)
    assert names(tmp_path) == ["3.snapshot", "5.snapshot", "7.snapshot"]
    files.path_for(3).unlink()
    files.delete([3, 4, 5])
    assert files.offsets == [7]
    assert names(tmp_path) == ["7.snapshot"]


@pytest.mark.parametrize(
    ("snapshots", "segments", "left"),
    [
        ([1, 5, 9], [1, 5, 9], [1, 5, 9]),
        ([1, 3, 5], [1, 5], [1, 5]),
        ([1, 5, 7, 9], [1, 5], [1, 5, 9]),  # 9 was taken at shutdown, 7 at an earlier one
        ([3], [5], []),
        ([1, 3], [], [3]),
        ([3, 7], [5], [7]),
        ([], [5], []),
    ],
)
def test_strays(tmp_path: Path, snapshots: list[int], segments: list[int], left: list[int]) -> None:
    files = make(tmp_path, *snapshots)
    files.remove_stray(segments)
    assert files.offsets == left
    assert names(tmp_path) == [f"{offset}.snapshot" for offset in left]


def test_marking_for_deletion(tmp_path: Path) -> None:
    files = make(tmp_path, 3, 7, 9)
    marked = files.mark_for_deletion(3)
    assert marked is not None
    assert marked.path == tmp_path / "00000000000000000003.snapshot.deleted"
    assert files.mark_for_deletion(3) is None
    files.path_for(7).unlink()
    assert files.mark_for_deletion(7) is None
    assert files.offsets == [9]
    assert marked.delete_if_exists()
    assert not marked.delete_if_exists()
    files.update_parent_dir(tmp_path / "00000000000000000009.snapshot")  # a file where there should be a directory
    with pytest.raises(KafkaStorageError, match="cannot rename"):
        files.mark_for_deletion(9)
