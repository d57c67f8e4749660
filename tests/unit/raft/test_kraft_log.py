"""The metadata log: appends with their offsets, epochs, snapshots and what retention makes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import OffsetOutOfRangeError
from barnabas.common.identifiers import METADATA_TOPIC_ID, uuid_to_string
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.segment_damage import CorruptLogError
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.raft.batch_accumulator import BatchAccumulator
from barnabas.raft.bootstrap_file import write_initial_voters
from barnabas.raft.client import OffsetAndEpoch
from barnabas.raft.config import RaftConfig
from barnabas.raft.kraft_log import (
    Isolation,
    KafkaMetadataLog,
    MetadataLogError,
    Validity,
    ValidOffsetAndEpoch,
)
from barnabas.raft.records_iterator import raw_batches
from barnabas.raft.records_snapshot import RecordsSnapshotWriter
from barnabas.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from barnabas.records.batch import RecordBatch
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, NOW, RaftBox, topic_record


@pytest.fixture
def box(tmp_path: Path) -> RaftBox:
    return RaftBox(tmp_path)


def batch(base_offset: int, epoch: int, *topics: str) -> bytearray:
    accumulator = BatchAccumulator(epoch, base_offset, linger_ms=0, clock=MockClock(NOW), types=CLUSTER_METADATA)
    accumulator.append(epoch, [topic_record(topic) for topic in topics])
    return accumulator.drain()[0].data


def append(log: KafkaMetadataLog, epoch: int, *topics: str) -> int:
    """Appends and commits."""
    info = log.append_as_leader(batch(log.end_offset.message_offset, epoch, *topics), epoch)
    log.flush()
    log.update_high_watermark(log.end_offset)
    return info.last_offset


def snapshot(
    log: KafkaMetadataLog, offset: int, epoch: int, *, timestamp: int = NOW, topics: int = 0
) -> OffsetAndEpoch:
    snapshot_id = OffsetAndEpoch(offset, epoch)
    raw = log.create_new_snapshot(snapshot_id)
    assert raw is not None
    writer = RecordsSnapshotWriter(
        raw, timestamp, clock=MockClock(NOW), types=CLUSTER_METADATA, on_frozen=log.on_snapshot_frozen
    )
    writer.append([topic_record(f"topic-{number}") for number in range(topics)])
    writer.freeze()
    return snapshot_id


def read(log: KafkaMetadataLog, offset: int, isolation: Isolation = Isolation.COMMITTED) -> list[tuple[int, int]]:
    return [(one.base_offset, one.last_offset) for one in raw_batches(log.read(offset, isolation).records)]


def test_a_new_log_says_whose_it_is(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a")
    assert log.directory.name == "__cluster_metadata-0"
    metadata = (log.directory / "partition.metadata").read_text()
    assert metadata == f"version: 0\ntopic_id: {uuid_to_string(METADATA_TOPIC_ID)}"
    assert uuid_to_string(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


def test_offsets_and_epochs_come_with_the_batches(box: RaftBox) -> None:
    log = box.open_log()
    two = batch(0, 3, "a", "b") + batch(2, 3, "c")
    assert log.append_as_leader(two, 3).last_offset == 2
    assert log.last_fetched_epoch == 3
    with pytest.raises(Exception, match="has epoch 3 instead of 4"):
        log.append_as_leader(batch(3, 3, "d"), 4)
    with pytest.raises(OffsetOutOfRangeError):
        log.append_as_leader(batch(1, 3, "d"), 3)
    with pytest.raises(ValueError, match="at least one batch"):
        log.append_as_leader(b"", 3)
    assert log.append_as_follower(batch(3, 4, "d") + batch(4, 5, "e"), 4).last_offset == 3
    assert log.end_offset.message_offset == 4


def test_readers_see_what_is_committed(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    log.append_as_leader(batch(2, 1, "c"), 1)
    assert read(log, 0) == [(0, 1)]
    assert read(log, 0, Isolation.UNCOMMITTED) == [(0, 1), (2, 2)]
    log.update_high_watermark(log.end_offset)
    assert read(log, 2) == [(2, 2)]
    assert [len(one.view) for one in raw_batches(log.read(0, Isolation.COMMITTED, 1).records)] == [
        RecordBatch(batch(0, 1, "a", "b")).size_in_bytes
    ]


def test_where_epochs_end(box: RaftBox) -> None:
    log = box.open_log()
    assert log.last_fetched_epoch == 0
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(0, 0)
    append(log, 1, "a", "b")
    append(log, 3, "c")
    log.initialize_leader_epoch(6)
    append(log, 6, "d")
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(2, 1)
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(2, 1)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(3, 3)
    assert log.end_offset_for_epoch(6) == OffsetAndEpoch(4, 6)
    assert log.end_offset_for_epoch(9) == OffsetAndEpoch(4, 6)


def test_what_another_replica_has(box: RaftBox) -> None:
    log = box.open_log()
    valid, diverging, fetch = Validity.VALID, Validity.DIVERGING, Validity.SNAPSHOT
    assert log.validate_offset_and_epoch(0, 0) == ValidOffsetAndEpoch(valid, OffsetAndEpoch(0, 0))
    append(log, 1, "a", "b")
    append(log, 3, "c", "d")
    assert log.validate_offset_and_epoch(4, 3) == (valid, (4, 3))
    assert log.validate_offset_and_epoch(5, 3) == (diverging, (4, 3))
    assert log.validate_offset_and_epoch(3, 1) == (diverging, (2, 1))
    assert log.validate_offset_and_epoch(3, 2) == (diverging, (2, 1))
    snapshot(log, 2, 1)
    latest = snapshot(log, 4, 3)
    log.delete_before_snapshot(OffsetAndEpoch(2, 1))
    assert log.validate_offset_and_epoch(1, 1) == (fetch, latest)
    assert log.validate_offset_and_epoch(2, 0) == (fetch, latest)
    assert log.validate_offset_and_epoch(2, 1) == (valid, (2, 1))


def test_what_is_committed_cannot_be_cut_off(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a")
    log.append_as_leader(batch(1, 1, "b"), 1)
    with pytest.raises(ValueError, match="committed up to 1"):
        log.truncate_to(0)
    log.truncate_to(1)
    assert log.end_offset.message_offset == 1


# -- starts


def test_a_torn_tail_is_cut_off(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a")
    append(log, 1, "b")
    log.close_handlers()
    path = box.log_dir / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + bytes(batch(2, 1, "c"))[:50])
    log = box.open_log()
    assert log.end_offset.message_offset == 2
    assert read(log, 0, Isolation.UNCOMMITTED) == [(0, 0), (1, 1)]
    append(log, 2, "d")
    assert read(log, 0) == [(0, 0), (1, 1), (2, 2)]


def test_damage_in_the_middle_is_not_cut_off(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a")
    append(log, 1, "b")
    log.close_handlers()
    path = box.log_dir / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        box.open_log()
    assert path.read_bytes() == bytes(data)


def test_leftovers_of_snapshots_are_removed(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    kept = snapshot(log, 2, 1)
    (box.log_dir / "00000000000000000001-0000000001-9.checkpoint.part").write_bytes(b"half")
    (box.log_dir / "00000000000000000001-0000000001.checkpoint.deleted").write_bytes(b"old")
    log.close()
    log = box.open_log()
    assert log.snapshot_ids == (kept,)
    assert [name for name in box.files() if "checkpoint" in name and name != "leader-epoch-checkpoint"] == [
        "00000000000000000002-0000000001.checkpoint"
    ]


def test_a_log_that_begins_late_needs_a_snapshot(box: RaftBox) -> None:
    log = box.open_log(box.config(log_segment_bytes=200))
    for name in "abcdef":
        append(log, 1, name)
    snapshot_id = snapshot(log, 4, 1)
    assert log.delete_before_snapshot(snapshot_id)
    log.close()
    (box.log_dir / "00000000000000000004-0000000001.checkpoint").unlink()
    with pytest.raises(MetadataLogError, match="begins at offset 4, but there is no snapshot"):
        box.open_log()


def test_a_snapshot_beyond_the_log_replaces_it(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    snapshot(log, 1, 1)
    raw = log.create_new_snapshot_unchecked(OffsetAndEpoch(50, 4))
    assert raw is not None
    RecordsSnapshotWriter(raw, NOW, clock=box.clock, types=CLUSTER_METADATA).freeze()
    log.close()
    log = box.open_log()  # as if a follower had ended right after it had fetched the snapshot
    assert (log.start_offset, log.end_offset.message_offset) == (50, 50)
    assert list(log.snapshot_ids) == [(50, 4)]
    assert log.last_fetched_epoch == 4
    append(log, 5, "c")
    assert log.end_offset.message_offset == 51


# -- damaged snapshots


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.chmod(0o600)
    changed = {"cut": data[:-60], "empty": b"", "flipped": data[:70] + bytes([data[70] ^ 1]) + data[71:]}[how]
    path.write_bytes(changed)


def contents(box: RaftBox) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in box.log_dir.iterdir() if path.suffix in {".log", ".checkpoint"}}


HOW = pytest.mark.parametrize("how", ["cut", "empty", "flipped"])


@HOW
def test_an_older_snapshot_and_the_log_stand_in_for_a_damaged_one(
    box: RaftBox, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = box.open_log()
    for name in "abcdef":
        append(log, 1, name)
    older = snapshot(log, 2, 1, topics=2)
    snapshot(log, 4, 1, topics=4)
    snapshot(log, 5, 1, topics=5)
    log.close()
    for offset in (4, 5):
        damage(box.log_dir / f"0000000000000000000{offset}-0000000001.checkpoint", how)
    log = box.open_log()
    assert log.snapshot_ids == (older,)
    assert (log.start_offset, log.end_offset.message_offset) == (0, 6)
    names = box.files()
    assert "00000000000000000005-0000000001.checkpoint.damaged" in names
    assert "00000000000000000005-0000000001.checkpoint" not in names
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 2
    assert "00000000000000000005-0000000001.checkpoint is damaged" in lines[0]
    assert "is read from snapshot 00000000000000000002-0000000001 and the log" in lines[0]
    log.update_high_watermark(log.end_offset)
    again = snapshot(log, 5, 1, topics=5)
    log.close()
    assert box.open_log().snapshot_ids == (older, again)


@HOW
def test_the_log_alone_stands_in_for_a_damaged_snapshot(box: RaftBox, how: str) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    snapshot(log, 2, 1, topics=2)
    log.close()
    damage(box.log_dir / "00000000000000000002-0000000001.checkpoint", how)
    log = box.open_log()
    assert log.snapshot_ids == ()
    assert (log.start_offset, log.end_offset.message_offset) == (0, 2)


@HOW
def test_a_damaged_snapshot_that_nothing_stands_in_for_is_refused(box: RaftBox, how: str) -> None:
    log = box.open_log(box.config(log_segment_bytes=200))
    for name in "abcdef":
        append(log, 1, name)
    assert log.delete_before_snapshot(snapshot(log, 4, 1, topics=4))
    log.close()
    path = box.log_dir / "00000000000000000004-0000000001.checkpoint"
    damage(path, how)
    before = contents(box)
    with pytest.raises(MetadataLogError) as caught:
        box.open_log()
    assert str(caught.value).startswith(f"{path} is damaged")
    assert "has only offsets 4 to 5. Restore the file" in str(caught.value)
    assert contents(box) == before


def test_a_damaged_snapshot_beyond_the_log_is_refused(box: RaftBox) -> None:
    """The log lacks what the snapshot stood for, although an older one is whole."""
    log = box.open_log()
    append(log, 1, "a", "b")
    snapshot(log, 1, 1)
    raw = log.create_new_snapshot_unchecked(OffsetAndEpoch(50, 4))
    assert raw is not None
    RecordsSnapshotWriter(raw, NOW, clock=box.clock, types=CLUSTER_METADATA).freeze()
    log.close()
    damage(box.log_dir / "00000000000000000050-0000000004.checkpoint", "cut")
    before = contents(box)
    with pytest.raises(
        MetadataLogError, match=r"the one before it ends at offset 1, and the log .* has only offsets 0 to 1"
    ):
        box.open_log()
    assert contents(box) == before


def test_the_damaged_snapshot_of_the_first_voters_is_refused_before_the_first_start(box: RaftBox) -> None:
    voters = VoterSet.of([VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)])
    write_initial_voters(box.directory, voters, box.clock)
    damage(box.log_dir / "00000000000000000000-0000000000.checkpoint", "cut")
    with pytest.raises(MetadataLogError, match=r"00000000000000000000-0000000000\.checkpoint is damaged"):
        box.open_log()


def test_the_log_has_the_voters_of_a_damaged_first_snapshot(box: RaftBox) -> None:
    voters = VoterSet.of([VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)])
    write_initial_voters(box.directory, voters, box.clock)
    box.client(box.config(voters=())).close()
    damage(box.log_dir / "00000000000000000000-0000000000.checkpoint", "cut")
    client = box.client(box.config(voters=()))
    assert client.voters == voters
    client.close()


def test_nothing_is_deleted_before_a_damaged_snapshot(box: RaftBox, caplog: pytest.LogCaptureFixture) -> None:
    log, _ = full_log(box, max_retention_ms=150)
    damage(box.log_dir / "00000000000000000004-0000000001.checkpoint", "flipped")
    assert not log.maybe_clean()
    assert [one.offset for one in log.snapshot_ids] == [2, 4, 5]
    assert log.start_offset == 0
    assert "Snapshot 00000000000000000002-0000000001 and the log from there on are kept" in caplog.text


@HOW
@pytest.mark.parametrize("offset", [2, 4])
def test_damaged_old_snapshots_are_deleted_in_their_time(box: RaftBox, how: str, offset: int) -> None:
    """Nobody needs them, so they must neither end the node nor keep the log from being cleaned for good."""
    log, _ = full_log(box, max_retention_ms=150)
    path = box.log_dir / f"0000000000000000000{offset}-0000000001.checkpoint"
    damage(path, how)
    os.utime(path, ns=(0, (NOW - 100) * 1_000_000))
    log.maybe_clean()
    assert log.latest_snapshot_id == (5, 1)
    box.clock.advance(100)
    log.maybe_clean()
    assert list(log.snapshot_ids) == [(5, 1)]
    assert log.start_offset == 5


# -- snapshots


def test_snapshots_are_of_what_is_committed(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    log.append_as_leader(batch(2, 1, "c"), 1)
    with pytest.raises(ValueError, match="beyond the high watermark, 2"):
        log.create_new_snapshot(OffsetAndEpoch(3, 1))
    with pytest.raises(ValueError, match="is not a position in the log"):
        log.create_new_snapshot(OffsetAndEpoch(2, 2))
    snapshot_id = snapshot(log, 2, 1)
    assert log.create_new_snapshot(snapshot_id) is None
    assert log.latest_snapshot_id == log.earliest_snapshot_id == snapshot_id
    assert log.read_snapshot(OffsetAndEpoch(1, 1)) is None


def test_a_snapshot_that_somebody_has_deleted_is_forgotten(box: RaftBox) -> None:
    log = box.open_log()
    append(log, 1, "a", "b")
    first = snapshot(log, 1, 1)
    snapshot(log, 2, 1)
    (box.log_dir / "00000000000000000002-0000000001.checkpoint").unlink()
    found = log.latest_snapshot()
    assert found is not None
    assert found.snapshot_id == first
    assert log.snapshot_ids == (first,)


def full_log(box: RaftBox, **settings: int) -> tuple[KafkaMetadataLog, RaftConfig]:
    """Six segments of a record each, with snapshots at 2, 4 and 5, of an age of 300, 200 and 100 ms."""
    config = box.config(log_segment_bytes=100, **settings)
    log = box.open_log(config)
    for name in "abcdef":
        append(log, 1, name)
    for offset, age in ((2, 300), (4, 200), (5, 100)):
        snapshot(log, offset, 1, timestamp=NOW - age)
    return log, config


def test_deleting_before_a_snapshot(box: RaftBox) -> None:
    log, _ = full_log(box)
    size = log.size_in_bytes
    open_reader = log.read_snapshot(OffsetAndEpoch(2, 1))
    assert open_reader is not None
    assert log.delete_before_snapshot(OffsetAndEpoch(4, 1))
    assert log.start_offset == 4
    assert log.size_in_bytes == size // 6 * 2
    assert list(log.snapshot_ids) == [(4, 1), (5, 1)]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, Isolation.COMMITTED)
    assert log.create_new_snapshot(OffsetAndEpoch(3, 1)) is None
    assert not log.delete_before_snapshot(OffsetAndEpoch(4, 1))
    assert not log.delete_before_snapshot(OffsetAndEpoch(6, 1))
    assert "00000000000000000002-0000000001.checkpoint.deleted" in box.files()
    assert len(list(raw_batches(open_reader.records))) == 2
    box.scheduler.advance(60_000)
    assert not [name for name in box.files() if name.endswith(".deleted")]
    assert len(list(raw_batches(open_reader.records))) == 2, "who has it open can finish"


def test_retention_by_size(box: RaftBox) -> None:
    log, _ = full_log(box, max_retention_bytes=10_000)
    assert not log.maybe_clean()
    log.close()
    # 6 records of 90 bytes and 3 snapshots of 158: 1014 bytes. Without the first snapshot and two segments, 676.
    log = box.open_log(box.config(max_retention_bytes=1000))
    log.update_high_watermark(log.end_offset)
    assert log.maybe_clean()
    assert list(log.snapshot_ids) == [(4, 1), (5, 1)]
    assert not log.maybe_clean()
    log.close()
    log = box.open_log(box.config(max_retention_bytes=0))
    log.update_high_watermark(log.end_offset)
    assert log.maybe_clean()
    assert list(log.snapshot_ids) == [(5, 1)], "the last one stays"
    assert not log.maybe_clean()


def test_retention_by_age(box: RaftBox) -> None:
    log, _ = full_log(box, max_retention_ms=250)
    assert log.maybe_clean()
    assert list(log.snapshot_ids) == [(4, 1), (5, 1)]
    assert log.start_offset == 4
    assert not log.maybe_clean()
    box.clock.advance(1000)
    assert log.maybe_clean()
    assert list(log.snapshot_ids) == [(5, 1)]


def test_no_retention(box: RaftBox) -> None:
    log, _ = full_log(box, max_retention_ms=-1, max_retention_bytes=-1)
    box.clock.advance(10**9)
    assert not log.maybe_clean()


def test_the_high_watermark_stays_within_the_log(box: RaftBox, caplog: pytest.LogCaptureFixture) -> None:
    log = box.open_log()
    append(log, 1, "a")
    log.update_high_watermark(LogOffsetMetadata(7))
    assert log.high_watermark == 1
    assert "the high watermark is 1 instead of 7" in caplog.text
