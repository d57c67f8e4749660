"""Files that a crash, a bad disk or a stray hand has left in disorder, and disks that fail while a broker uses them.

A crash is made by copying the data directory of a running broker: that is what ``kill -9`` leaves behind. Then
something is done to the copy, and a broker is started on it. What it serves is looked at on the wire.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.broker.node.kafka_raft_server import StartupError
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import Errors
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.metadata import NoOpRecord
from barnabas.raft.batch_accumulator import BatchAccumulator
from barnabas.raft.client import ApiMessageAndVersion
from barnabas.records.batch import HEADER_SIZE, LOG_OVERHEAD, iter_batches

TOPIC = "orders"
OTHER = "bystander"
BATCHES = 20
VALUES = [b"value %d" % number for number in range(BATCHES)]
MARKER = ".kafka_cleanshutdown"
WAIT_S = 60


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data of a broker with twenty batches in one partition: as a crash leaves them, and as a clean stop does."""
    directory = tmp_path_factory.mktemp("written")
    crashed, stopped = directory / "crashed", directory / "stopped"
    with EmbeddedBroker(stopped) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC)
        client.create_topic(OTHER)
        for value in VALUES:
            assert client.produce(TOPIC, 0, value)[0] is Errors.NONE
        assert client.produce(OTHER, 0, b"here")[0] is Errors.NONE
        # What is being written in the background right now gets its name when it is done.
        shutil.copytree(stopped, crashed, ignore=shutil.ignore_patterns("*.tmp"))
    return crashed, stopped


@pytest.fixture
def crashed(written: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[0], tmp_path / "data"))


@pytest.fixture
def stopped(written: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[1], tmp_path / "data"))


def partition_dir(data: Path, topic: str = TOPIC) -> Path:
    return data / f"{topic}-0"


def segment(data: Path, topic: str = TOPIC) -> Path:
    (only,) = partition_dir(data, topic).glob("*.log")
    return only


def positions(path: Path) -> list[int]:
    """Where each batch begins, and where the last one ends."""
    starts = [0]
    for batch in iter_batches(path.read_bytes()):
        starts.append(starts[-1] + batch.size_in_bytes)
    return starts


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, position: int) -> None:
    path.write_bytes(path.read_bytes()[:position])


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def serves(data: Path, expected: list[bytes]) -> None:
    """A broker on this directory has exactly these records, and goes on behind them."""
    with EmbeddedBroker(data) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, 0) == expected
        assert client.produce(TOPIC, 0, b"next") == (Errors.NONE, len(expected))
        assert client.fetch(TOPIC, 0, len(expected)) == (Errors.NONE, [b"next"])
        assert client.fetch_all(OTHER, 0) == [b"here"]
    with EmbeddedBroker(data) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, 0) == [*expected, b"next"]


# ---------------------------------------------------------------------------------------------------- the tail

CUTS: dict[str, Callable[[int, int], int]] = {
    "after the first byte": lambda start, _end: start + 1,
    "in the offset": lambda start, _end: start + 7,
    "after offset and length": lambda start, _end: start + LOG_OVERHEAD,
    "in the header": lambda start, _end: start + HEADER_SIZE - 1,
    "after the header": lambda start, _end: start + HEADER_SIZE,
    "before the last byte": lambda _start, end: end - 1,
}


@pytest.mark.parametrize("where", CUTS.values(), ids=list(CUTS))
def test_a_torn_tail_is_cut_off_at_the_last_whole_batch(
    where: Callable[[int, int], int], crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = segment(crashed)
    start, end = positions(file)[-2:]
    cut(file, where(start, end))
    caplog.set_level(logging.INFO)
    serves(crashed, VALUES[:-1])
    assert any("orders-0" in line and record.levelno >= logging.WARNING for record in caplog.records
               if (line := record.getMessage())), "nothing was said about it"  # fmt: skip


def test_a_cut_between_batches_is_an_end_like_any_other(crashed: Path) -> None:
    file = segment(crashed)
    cut(file, positions(file)[-4])
    serves(crashed, VALUES[:-3])


@pytest.mark.parametrize("tail", [bytes(1), bytes(1000), b"\xff" * 500, b"not a batch at all " * 20])
def test_what_is_behind_the_last_batch_and_none_itself_is_cut_off(crashed: Path, tail: bytes) -> None:
    """File systems that grow a file before they write it leave zeros there."""
    append(segment(crashed), tail)
    serves(crashed, VALUES)


def test_an_empty_segment_is_an_empty_log(crashed: Path) -> None:
    cut(segment(crashed), 0)
    serves(crashed, [])


def test_a_flipped_byte_in_the_last_batch_costs_that_batch(crashed: Path) -> None:
    file = segment(crashed)
    flip(file, positions(file)[-1] - 3)
    serves(crashed, VALUES[:-1])


# ---------------------------------------------------------------------------------------------------- metadata

EAGER_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 1}


def metadata_snapshots(data: Path) -> list[Path]:
    """Those that stand for records, oldest first."""
    found = (data / "__cluster_metadata-0").glob("0*.checkpoint")
    return sorted(path for path in found if not path.name.startswith("0" * 20))


def folders(data: Path) -> set[str]:
    return {path.name for path in data.iterdir() if path.is_dir()}


@pytest.fixture(scope="module")
def with_snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a broker with two topics, and metadata snapshots that have both."""
    data = tmp_path_factory.mktemp("snapshots") / "data"
    with EmbeddedBroker(data, overrides=EAGER_SNAPSHOTS) as broker, WireClient(broker.bootstrap_servers) as client:
        for topic in (TOPIC, OTHER):
            client.create_topic(topic)
            assert client.produce(topic, 0, b"here")[0] is Errors.NONE
        before = len(metadata_snapshots(data))
        client.create_topic("last")
        until(lambda: len(metadata_snapshots(data)) > before, "another snapshot", 60)
    return data


@pytest.fixture
def snapshots(with_snapshots: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_snapshots, tmp_path / "data"))


@pytest.mark.parametrize("how", ["60 bytes cut off", "empty", "flipped"])
def test_a_damaged_metadata_snapshot_costs_nothing_while_the_log_has_it_all(snapshots: Path, how: str) -> None:
    before = folders(snapshots)
    for path in metadata_snapshots(snapshots):
        path.chmod(0o600)
        if how == "flipped":
            flip(path, path.stat().st_size // 2)
        else:
            cut(path, 0 if how == "empty" else path.stat().st_size - 60)
    damaged = len(metadata_snapshots(snapshots))
    with EmbeddedBroker(snapshots) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, 0) == client.fetch_all(OTHER, 0) == [b"here"]
    assert folders(snapshots) == before
    assert len(list((snapshots / "__cluster_metadata-0").glob("*.damaged"))) == damaged


def test_a_damaged_metadata_snapshot_that_nothing_replaces_stops_the_start(snapshots: Path) -> None:
    """A process, because the whole point is what it leaves behind."""
    metadata = snapshots / "__cluster_metadata-0"
    for path in metadata.glob("*.log"):
        path.unlink()
    *older, latest = metadata_snapshots(snapshots)
    for path in older:
        path.unlink()
    whole = latest.read_bytes()
    latest.chmod(0o600)
    cut(latest, len(whole) - 60)
    before = folders(snapshots)
    broker = BrokerProcess(snapshots)
    broker.spawn()
    assert broker.process.wait(WAIT_S * 3) == 1
    assert f"the broker cannot start: {latest} is damaged" in broker.text()
    assert "Restore the file" in broker.text()
    assert folders(snapshots) == before, "no log is set aside"

    latest.write_bytes(whole)
    with broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, 0) == client.fetch_all(OTHER, 0) == [b"here"]
    assert folders(snapshots) == before


def test_logs_that_were_set_aside_come_back_with_the_metadata(snapshots: Path) -> None:
    metadata, kept = snapshots / "__cluster_metadata-0", snapshots.with_name("kept")
    before = folders(snapshots)
    shutil.copytree(metadata, kept)
    # The topics are younger than the first batches of the log: as if its end had been lost.
    for path in metadata_snapshots(snapshots):
        path.unlink()
    (file,) = metadata.glob("*.log")
    batches = list(iter_batches(file.read_bytes()))
    cut(file, sum(batch.size_in_bytes for batch in batches[:2]))
    with EmbeddedBroker(snapshots):
        pass
    assert len([name for name in folders(snapshots) if name.endswith("-stray")]) == 3

    shutil.rmtree(metadata)
    shutil.copytree(kept, metadata)
    with EmbeddedBroker(snapshots) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, 0) == client.fetch_all(OTHER, 0) == [b"here"]
        assert client.produce(TOPIC, 0, b"next") == (Errors.NONE, 1)
    assert folders(snapshots) == before


class Nonsense:
    """Encodes records of a type that nobody knows."""

    def encode(self, _message: object, _version: int) -> bytes:
        return b"\x01\x7f\x7f\x01\x00"


@pytest.mark.parametrize("shape", ["embedded", "process"])
def test_metadata_that_cannot_be_read_end_the_broker_before_it_acts_on_them(stopped: Path, shape: str) -> None:
    """The checksum is right, and what it covers makes no sense: as from a later version."""
    (file,) = (stopped / "__cluster_metadata-0").glob("*.log")
    last = list(iter_batches(file.read_bytes()))[-1]
    epoch = last.partition_leader_epoch
    accumulator = BatchAccumulator(
        epoch, last.last_offset + 1, linger_ms=0, clock=SYSTEM_CLOCK, types=cast("MetadataRecordTypes", Nonsense())
    )
    accumulator.append(epoch, [ApiMessageAndVersion(NoOpRecord(), 0)])
    append(file, b"".join(batch.data for batch in accumulator.drain()))
    before = folders(stopped)
    if shape == "process":
        broker = BrokerProcess(stopped)
        broker.spawn()
        assert broker.process.wait(WAIT_S * 3) == 1
        assert "cannot load" in broker.text()
    else:
        with pytest.raises(StartupError, match="its log says why"):
            EmbeddedBroker(stopped).start()
    assert folders(stopped) == before


def test_a_broker_that_lost_its_identity_does_not_take_a_new_one(stopped: Path) -> None:
    identity = stopped / "meta.properties"
    cluster_id = identity.read_text().partition("cluster.id=")[2].split()[0]
    identity.unlink()
    before = sorted(path.name for path in stopped.iterdir())
    broker = BrokerProcess(stopped)
    broker.spawn()
    assert broker.process.wait(WAIT_S * 3) == 1
    assert f"the broker cannot start: {stopped} has data of a broker" in broker.text()
    assert sorted(path.name for path in stopped.iterdir()) == before

    command = [sys.executable, "-m", "barnabas.cli.main", "format", f"--data-dir={stopped}", "--ignore-formatted"]
    subprocess.run([*command, "--cluster-id", cluster_id], check=True, env=source_environment())
    with broker, WireClient(broker.bootstrap_servers) as client:
        assert client.metadata().cluster_id == cluster_id
        assert client.fetch_all(TOPIC, 0) == VALUES


# ---------------------------------------------------------------------------------------------------- the middle


def test_a_flipped_byte_in_the_middle_is_reported_and_the_partition_not_served(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = segment(crashed)
    flip(file, positions(file)[10] + HEADER_SIZE + 2)
    before = file.read_bytes()
    with EmbeddedBroker(crashed) as broker, WireClient(broker.bootstrap_servers) as client:
        error, values = client.fetch(TOPIC, 0)
        assert (error, values) == (Errors.KAFKA_STORAGE_ERROR, [])
        assert client.produce(TOPIC, 0, b"more")[0] is Errors.KAFKA_STORAGE_ERROR
        assert client.fetch_all(OTHER, 0) == [b"here"], "the others go on"
        assert client.produce(OTHER, 0, b"there") == (Errors.NONE, 1)
        assert list(client.log_dirs().values()) == [Errors.NONE], "the disk is all right"
    assert file.read_bytes() == before, "what to do about it is for a person to say"
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any(str(partition_dir(crashed)) in line or "orders-0" in line for line in errors), errors


# ---------------------------------------------------------------------------------------------------- other files


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("what", ["missing", "empty", "garbage", "odd size"])
@pytest.mark.parametrize("how", ["crashed", "stopped"])
def test_a_lost_or_damaged_index_is_made_again(
    suffix: str, what: str, how: str, request: pytest.FixtureRequest
) -> None:
    data: Path = request.getfixturevalue(how)
    (index,) = partition_dir(data).glob(f"*{suffix}")
    if what == "missing":
        index.unlink()
    else:
        index.write_bytes({"empty": b"", "garbage": b"\xee" * 24, "odd size": b"\x00" * 13}[what])
    serves(data, VALUES)


def test_a_missing_marker_of_a_clean_shutdown_means_a_look_at_everything(stopped: Path) -> None:
    (stopped / MARKER).unlink()
    append(segment(stopped), b"half a batch")
    serves(stopped, VALUES)


def test_damage_in_what_was_forced_to_disk_is_no_torn_tail(stopped: Path) -> None:
    """The recovery point says that the last batch was safe. So this is no unfinished write, and nothing is cut."""
    (stopped / MARKER).unlink()
    file = segment(stopped)
    flip(file, positions(file)[-1] - 3)
    with EmbeddedBroker(stopped) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch(TOPIC, 0) == (Errors.KAFKA_STORAGE_ERROR, [])
        assert client.fetch_all(OTHER, 0) == [b"here"]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint",
                                  "log-start-offset-checkpoint"])  # fmt: skip
@pytest.mark.parametrize("content", [None, b"", b"garbage\n"])
def test_a_lost_or_damaged_checkpoint_costs_time_and_no_records(
    stopped: Path, name: str, content: bytes | None
) -> None:
    if content is None:
        (stopped / name).unlink()
    else:
        (stopped / name).write_bytes(content)
    serves(stopped, VALUES)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_lost_files_of_a_partition_are_made_again(stopped: Path, name: str) -> None:
    (partition_dir(stopped) / name).unlink()
    if name == "partition.metadata":
        # Without an id nobody can say of which topic it is; such a log is put aside and the replica starts anew.
        with EmbeddedBroker(stopped) as broker, WireClient(broker.bootstrap_servers) as client:
            assert client.fetch(TOPIC, 0)[0] is Errors.NONE
            assert client.fetch_all(OTHER, 0) == [b"here"]
    else:
        serves(stopped, VALUES)


def test_leftovers_of_compaction_and_deletion_are_cleared_away(crashed: Path) -> None:
    directory = partition_dir(crashed)
    whole = segment(crashed).read_bytes()
    (directory / "00000000000000000000.log.cleaned").write_bytes(whole[:100])
    (directory / "00000000000000000000.index.cleaned").write_bytes(b"")
    (directory / "00000000000000000005.log.deleted").write_bytes(whole[:50])
    (directory / "00000000000000000000.snapshot.deleted").write_bytes(b"")
    gone = crashed / "gone-0.0123456789abcdef0123456789abcdef-delete"
    gone.mkdir()
    (gone / "00000000000000000000.log").write_bytes(whole)
    serves(crashed, VALUES)
    left = {path.suffix for path in directory.iterdir()}
    assert not left & {".cleaned", ".deleted", ".swap"}, left


def test_a_finished_swap_of_compaction_is_finished(crashed: Path) -> None:
    """The cleaner had renamed its result to ``.swap``, and was killed before that took the place of the original."""
    directory = partition_dir(crashed)
    file = segment(crashed)
    kept = file.read_bytes()
    (directory / f"{file.name}.swap").write_bytes(kept)
    for suffix in (".index", ".timeindex"):
        index = directory / file.with_suffix(suffix).name
        (directory / f"{index.name}.swap").write_bytes(index.read_bytes())
    serves(crashed, VALUES)
    assert not list(directory.glob("*.swap"))


def test_a_torn_tail_of_the_metadata_log_is_cut_off(crashed: Path) -> None:
    """What was committed is all there: a record is answered for only when the whole batch is written."""
    (file,) = (crashed / "__cluster_metadata-0").glob("*.log")
    append(file, file.read_bytes()[:70])
    serves(crashed, VALUES)


# ---------------------------------------------------------------------------------------------------- failing disks


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, WireClient, Path, Path]]:
    """A broker with two log directories, the metadata log in the first, and a topic on each."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    with (
        EmbeddedBroker(
            good, overrides={"log.dirs": f"{good},{bad}", "metadata.log.dir": good, "num.io.threads": 2}
        ) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        client.create_topic(TOPIC, 4)
        for partition in range(4):
            assert client.produce(TOPIC, partition, b"before")[0] is Errors.NONE
        yield broker, client, good, bad


def on_disk(directory: Path) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-*"))


def await_assigned(broker: EmbeddedBroker) -> None:
    """Until the controller has been told in which directory each partition is."""
    server = broker.server.broker
    assert server is not None
    known = set(server.log_manager.log_dirs.directory_ids.values())

    def assigned() -> bool:
        partitions = server.cache.image.topics.by_name[TOPIC].partitions.values()
        return all(set(partition.directories) <= known for partition in partitions)

    until(assigned, "the controller knows the directories", WAIT_S)


def fail_writes(monkeypatch: pytest.MonkeyPatch, directory: Path, number: int) -> None:
    """From now on every write of records below this directory fails, as on a disk that is full or has gone."""
    real = os.pwrite

    def pwrite(fd: int, data: bytes, position: int) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(directory):
            raise OSError(number, os.strerror(number))
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)


def expect_offline(client: WireClient, good: Path, bad: Path) -> None:
    """The bad directory is offline with all that is in it; the other one, and so the broker, goes on."""
    lost, kept = on_disk(bad), on_disk(good)
    assert lost
    assert kept
    for partition in kept:
        assert client.produce(TOPIC, partition, b"after") == (Errors.NONE, 1)
        assert client.fetch_all(TOPIC, partition) == [b"before", b"after"]
    assert client.log_dirs() == {str(good): Errors.NONE, str(bad): Errors.KAFKA_STORAGE_ERROR}
    for partition in lost:
        assert client.produce(TOPIC, partition, b"after")[0] in OFFLINE
        assert client.fetch(TOPIC, partition) in [(error, []) for error in OFFLINE]
    partitions = {one.partition_index: one for one in client.metadata([TOPIC]).topics[0].partitions}
    for partition in lost:
        assert Errors.for_code(partitions[partition].error_code) is Errors.LEADER_NOT_AVAILABLE
        assert partitions[partition].offline_replicas == [1]
    for partition in kept:
        assert partitions[partition].error_code == 0


OFFLINE = (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_LEADER_OR_FOLLOWER)
"""The first until the controller has taken the leadership away, then the second."""


def await_offline(client: WireClient, bad: Path) -> None:
    """Until the directory, and with the controller's help its partitions, are out of use."""
    lost = on_disk(bad)

    def led() -> set[int]:
        partitions = client.metadata([TOPIC]).topics[0].partitions
        return {one.partition_index for one in partitions if one.leader_id != -1}

    until(lambda: led().isdisjoint(lost), lambda: f"led: {led()}, lost: {lost}", WAIT_S)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=["full", "broken", "read-only"])
def test_a_disk_that_cannot_be_written_goes_offline_and_the_broker_goes_on(
    number: int,
    two_disks: tuple[EmbeddedBroker, WireClient, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, client, good, bad = two_disks
    fail_writes(monkeypatch, bad, number)
    victim = on_disk(bad)[0]
    assert client.produce(TOPIC, victim, b"after")[0] is Errors.KAFKA_STORAGE_ERROR
    await_offline(client, bad)
    expect_offline(client, good, bad)
    assert any(str(bad) in record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)
    client.create_topic("new", 3)
    assert not list(bad.glob("new-*")), "new partitions go where they can be written"
    assert client.produce("new", 2, b"value") == (Errors.NONE, 0)
    assert broker.server.health()["status"] == "up"


def test_a_disk_that_was_offline_is_used_again_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    overrides = {"log.dirs": f"{good},{bad}", "metadata.log.dir": good}
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC, 4)
        for partition in range(4):
            assert client.produce(TOPIC, partition, b"before")[0] is Errors.NONE
        with monkeypatch.context() as patch:
            fail_writes(patch, bad, errno.ENOSPC)
            assert client.produce(TOPIC, on_disk(bad)[0], b"lost")[0] is Errors.KAFKA_STORAGE_ERROR
            await_offline(client, bad)
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        for partition in range(4):
            assert client.fetch_all(TOPIC, partition) == [b"before"]
            assert client.produce(TOPIC, partition, b"after") == (Errors.NONE, 1)


def test_a_broker_starts_without_a_disk_that_cannot_be_read(tmp_path: Path) -> None:
    """A file where the directory should be: for root, who may do anything, the way to have one."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    overrides = {"log.dirs": f"{good},{bad}", "metadata.log.dir": good}
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC, 4)
        for partition in range(4):
            assert client.produce(TOPIC, partition, b"before")[0] is Errors.NONE
        await_assigned(broker)
    lost, kept = on_disk(bad), on_disk(good)
    bad.rename(tmp_path / "away")
    bad.write_text("a disk that is not mounted")
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.log_dirs() == {str(good): Errors.NONE, str(bad): Errors.KAFKA_STORAGE_ERROR}
        for partition in kept:
            assert client.fetch_all(TOPIC, partition) == [b"before"]
        for partition in lost:
            assert client.fetch(TOPIC, partition)[0] in OFFLINE
    bad.unlink()
    (tmp_path / "away").rename(bad)
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        assert [client.fetch_all(TOPIC, partition) for partition in range(4)] == [[b"before"]] * 4


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; skips where one may not be mounted."""
    directory = tmp_path / "bad"
    directory.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount anything")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_full_disk_goes_offline_and_keeps_what_it_had(tiny_disk: Path, tmp_path: Path) -> None:
    """A real one: index files, checkpoints and records all run out of space."""
    good, bad = tmp_path / "good", tiny_disk
    overrides = {"log.dirs": f"{good},{bad}", "metadata.log.dir": good, "log.index.size.max.bytes": 4096}
    accepted, error = 0, Errors.NONE
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC, 4)
        for partition in range(4):
            assert client.produce(TOPIC, partition, b"before")[0] is Errors.NONE
        victim = on_disk(bad)[0]
        for _ in range(200):
            error, _offset = client.produce(TOPIC, victim, bytes(20_000))
            if error is not Errors.NONE:
                break
            accepted += 1
        assert error is Errors.KAFKA_STORAGE_ERROR
        assert accepted
        await_offline(client, bad)
        expect_offline(client, good, bad)
    subprocess.run(["mount", "-o", "remount,size=4m", str(bad)], check=True)
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(TOPIC, victim) == [b"before"] + [bytes(20_000)] * accepted


def test_a_disk_that_becomes_read_only_goes_offline(tiny_disk: Path, tmp_path: Path) -> None:
    """As Linux makes one that has errors. Files that are open for writing keep a read-only remount from happening, so
    the test takes a file system away from under them: nothing new can be made there, and that is noticed at a roll."""
    good, bad = tmp_path / "good", tiny_disk
    overrides = {"log.dirs": f"{good},{bad}", "metadata.log.dir": good, "log.index.size.max.bytes": 4096}
    with EmbeddedBroker(good, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic(TOPIC, 4, {"internal.segment.bytes": 2000})
        for partition in range(4):
            assert client.produce(TOPIC, partition, b"before")[0] is Errors.NONE
        lost = on_disk(bad)
        subprocess.run(["mount", "-o", "remount,nr_inodes=1", str(bad)], check=False, capture_output=True)
        for partition in lost:
            shutil.rmtree(bad / f"{TOPIC}-{partition}")
        errors = [client.produce(TOPIC, lost[0], bytes(1500))[0] for _ in range(3)]
        assert Errors.KAFKA_STORAGE_ERROR in errors
        kept = on_disk(good)
        assert client.produce(TOPIC, kept[0], b"after") == (Errors.NONE, 1)
        assert client.log_dirs() == {str(good): Errors.NONE, str(bad): Errors.KAFKA_STORAGE_ERROR}
