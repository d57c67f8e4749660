"""Snapshots: their files, what is in them, and what is left of one that was not finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import BarnabasError, CorruptRecordError, KafkaStorageError
from barnabas.protocol.internal.raft import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.raft.bootstrap_file import (
    METADATA_LOG_DIR_NAME,
    read_bootstrap_file,
    write_bootstrap_file,
    write_initial_voters,
)
from barnabas.raft.client import OffsetAndEpoch
from barnabas.raft.records_iterator import raw_batches
from barnabas.raft.records_snapshot import RecordsSnapshotReader, RecordsSnapshotWriter
from barnabas.raft.snapshot_files import (
    FileRawSnapshotReader,
    FileRawSnapshotWriter,
    SnapshotPath,
    parse_snapshot_path,
    snapshot_path,
)
from barnabas.raft.voter_set import NO_VOTERS, ReplicaKey, VoterNode, VoterSet
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, NOW, names, topic_record

ID = OffsetAndEpoch(100, 3)
VOTERS = VoterSet.of([VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)])


def writer(
    directory: Path, *, kraft_version: int = 0, voters: VoterSet = NO_VOTERS, max_batch_size: int = 4096
) -> RecordsSnapshotWriter:
    return RecordsSnapshotWriter(
        FileRawSnapshotWriter.create(directory, ID),
        NOW - 7,
        clock=MockClock(NOW),
        types=CLUSTER_METADATA,
        kraft_version=kraft_version,
        voters=voters,
        max_batch_size=max_batch_size,
    )


def reader(directory: Path) -> RecordsSnapshotReader:
    return RecordsSnapshotReader(FileRawSnapshotReader.open(directory, ID), CLUSTER_METADATA)


@pytest.mark.parametrize(
    ("name", "is_partial", "is_deleted"),
    [
        ("00000000000000000100-0000000003.checkpoint", False, False),
        ("00000000000000000100-0000000003-6154.checkpoint.part", True, False),
        ("00000000000000000100-0000000003.checkpoint.deleted", False, True),
    ],
)
def test_names(name: str, is_partial: bool, is_deleted: bool) -> None:
    path = Path("data") / name
    assert parse_snapshot_path(path) == SnapshotPath(path, ID, is_partial, is_deleted)


@pytest.mark.parametrize("name", ["00000000000000000100.log", "bootstrap.checkpoint", "quorum-state", "1-1.checkpoint"])
def test_other_files_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_path(Path(name)) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    subject = writer(tmp_path, max_batch_size=200)
    for name in "abcdefgh":
        subject.append([topic_record(name)])
    subject.append([])
    assert not snapshot_path(tmp_path, ID).exists()
    subject.freeze()
    subject.close()
    assert os.listdir(tmp_path) == ["00000000000000000100-0000000003.checkpoint"]  # noqa: PTH208
    path = snapshot_path(tmp_path, ID)
    assert path.stat().st_mode & 0o777 == 0o400
    assert subject.size_in_bytes == path.stat().st_size
    read = reader(tmp_path)
    assert (read.snapshot_id, read.last_contained_log_offset) == (ID, 99)
    assert read.last_contained_log_timestamp == NOW - 7
    batches = list(read)
    assert [names(batch.records) for batch in batches] == [list("abcd"), list("efgh")]
    assert {batch.epoch for batch in batches} == {3}
    assert [record.message for record in read.control_records()] == [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=NOW - 7),
        SnapshotFooterRecord(version=0),
    ]
    offsets = [(batch.base_offset, batch.last_offset) for batch in raw_batches(path.read_bytes())]
    assert offsets == [(0, 0), (1, 4), (5, 8), (9, 9)]
    read.close()
    with pytest.raises(BarnabasError, match="is closed"):
        list(read)


def test_voters_are_in_the_first_batch(tmp_path: Path) -> None:
    subject = writer(tmp_path, kraft_version=1, voters=VOTERS)
    subject.freeze()
    _, level, voters, _ = [record.message for record in reader(tmp_path).control_records()]
    assert level == KRaftVersionRecord(version=0, k_raft_version=1)
    assert isinstance(voters, VotersRecord)
    assert VoterSet.from_record(voters) == VOTERS
    first = next(raw_batches(snapshot_path(tmp_path, ID).read_bytes()))
    assert first.record_count == 3
    with pytest.raises(ValueError, match="neither log nor snapshot may contain voters"):
        writer(tmp_path, kraft_version=0, voters=VOTERS)


def test_an_unfinished_one_leaves_nothing(tmp_path: Path) -> None:
    subject = writer(tmp_path)
    subject.append([topic_record("a")])
    (partial,) = tmp_path.iterdir()
    parsed = parse_snapshot_path(partial)
    assert parsed is not None
    assert parsed.is_partial
    subject.close()
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_one_cannot_be_changed(tmp_path: Path) -> None:
    subject = writer(tmp_path)
    subject.freeze()
    with pytest.raises(BarnabasError, match="already frozen"):
        subject.append([topic_record("a")])
    with pytest.raises(BarnabasError, match="already frozen"):
        subject.freeze()
    subject.close()
    assert snapshot_path(tmp_path, ID).exists()


def test_all_of_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = writer(tmp_path)
    subject.append([topic_record("a")])

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(KafkaStorageError, match="cannot complete"):
        subject.freeze()
    assert not snapshot_path(tmp_path, ID).exists()
    subject.close()
    assert list(tmp_path.iterdir()) == []


def rewritten(directory: Path, change: slice | bytes) -> RecordsSnapshotReader:
    subject = writer(directory, max_batch_size=200)
    for name in "abcdefgh":
        subject.append([topic_record(name)])
    subject.freeze()
    path = snapshot_path(directory, ID)
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[change] if isinstance(change, slice) else data + change)
    return reader(directory)


@pytest.mark.parametrize("size", [0, 40, 100, 300, -75, -1])
def test_a_file_that_was_cut_off_is_not_a_snapshot(tmp_path: Path, size: int) -> None:
    read = rewritten(tmp_path, slice(0, size))
    with pytest.raises(CorruptRecordError, match=r"checkpoint is damaged: .*, and there is no snapshot footer"):
        read.verify()
    with pytest.raises(CorruptRecordError, match="there is no snapshot footer"):
        list(read)


def test_every_byte_that_matters_is_verified(tmp_path: Path) -> None:
    """Only base offset and leader epoch of a batch are outside its checksum; in a snapshot they mean nothing."""
    rewritten(tmp_path, b"").verify()
    path = snapshot_path(tmp_path, ID)
    data = path.read_bytes()
    unchecked = set()
    position = 0
    for batch in raw_batches(data):
        unchecked |= {*range(position, position + 8), *range(position + 12, position + 16)}
        position += batch.size_in_bytes
    for changed in sorted({*range(len(data))} - unchecked):
        path.write_bytes(data[:changed] + bytes([data[changed] ^ 0xFF]) + data[changed + 1 :])
        with pytest.raises(CorruptRecordError, match="is damaged"):
            reader(tmp_path).verify()


def test_a_file_without_a_header_is_not_a_snapshot(tmp_path: Path) -> None:
    read = rewritten(tmp_path, slice(83, None))
    expected = f"{snapshot_path(tmp_path, ID)} is damaged at byte 0: the first record is not a snapshot header"
    with pytest.raises(CorruptRecordError, match=expected):
        read.verify()
    with pytest.raises(CorruptRecordError, match=expected):
        list(read)
    with pytest.raises(CorruptRecordError, match=expected):
        _ = read.last_contained_log_timestamp


def test_records_behind_the_footer_are_a_mistake(tmp_path: Path) -> None:
    subject = writer(tmp_path)
    subject.append([topic_record("a")])
    subject.freeze()
    data = snapshot_path(tmp_path, ID).read_bytes()
    (tmp_path / "other").mkdir()
    more = next(batch for batch in raw_batches(data) if not batch.is_control_batch)
    read = rewritten(tmp_path / "other", bytes(more.view))
    with pytest.raises(CorruptRecordError, match="a batch follows the snapshot footer"):
        read.verify()
    with pytest.raises(CorruptRecordError, match="a batch follows the snapshot footer"):
        list(read)


@pytest.mark.parametrize("tail", [b"x", bytes(11), b"\xff" * 40])
def test_bytes_behind_the_footer_are_damage(tmp_path: Path, tail: bytes) -> None:
    with pytest.raises(
        CorruptRecordError, match=f"{len(tail)} bytes follow the snapshot footer|at byte [0-9]+: the rec"
    ):
        rewritten(tmp_path, tail).verify()


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    subject = writer(tmp_path)
    subject.append([topic_record("a")])
    subject.freeze()
    path = snapshot_path(tmp_path, ID)
    data = bytearray(path.read_bytes())
    data[83 + 70] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(reader(tmp_path))


def test_batches_larger_than_a_read_are_read(tmp_path: Path) -> None:
    subject = writer(tmp_path, max_batch_size=1 << 20)
    subject.append([topic_record(f"{number:06d}") for number in range(1000)])
    subject.freeze()
    raw = FileRawSnapshotReader.open(tmp_path, ID)
    sizes = [batch.record_count for batch in raw_batches(raw.records, read_size=100)]
    assert sizes == [1, 1000, 1]


# -- what formatting leaves


def test_the_bootstrap_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    records = [topic_record("a"), topic_record("b")]
    write_bootstrap_file(path, records, MockClock(NOW))
    assert read_bootstrap_file(path) == records
    assert path.stat().st_mode & 0o777 == 0o600
    write_bootstrap_file(path, records[:1], MockClock(NOW))
    assert read_bootstrap_file(path) == records[:1]
    assert [file.name for file in tmp_path.iterdir()] == ["bootstrap.checkpoint"]
    with pytest.raises(KafkaStorageError, match="cannot open"):
        read_bootstrap_file(tmp_path / "other")


def test_the_first_voters(tmp_path: Path) -> None:
    write_initial_voters(tmp_path, VOTERS, MockClock(NOW))
    (path,) = (tmp_path / METADATA_LOG_DIR_NAME).iterdir()
    assert path.name == "00000000000000000000-0000000000.checkpoint"
    with pytest.raises(ValueError, match="needs a voter"):
        write_initial_voters(tmp_path, NO_VOTERS)
    with pytest.raises(ValueError, match="ids of their directories"):
        write_initial_voters(tmp_path, VoterSet.of([VoterNode(ReplicaKey(1))]))
