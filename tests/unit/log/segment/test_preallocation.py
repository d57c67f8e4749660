"""Blocks that a segment has before it needs them: who gets them, who does not, and that nobody else sees them."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.log.config.log_config import LogConfig
from barnabas.log.segment import preallocation
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_segment import LogSegment
from log_fixtures import LogBox, all_records, client_batch

MIB = 1 << 20
CHUNK = bytes(MIB)
LIMIT = 1 << 30


class Disk:
    """Takes note of what is asked for, and says what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answers = True

    def allocate(self, _fd: int, start: int, size: int) -> bool:
        self.asked.append((start, size))
        return self.answers


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(preallocation, "allocate", disk.allocate)
    return disk


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that does this."""
    for parent in (tmp_path, Path.cwd()):
        if preallocation.file_system(parent.stat().st_dev) == "ext4":
            with tempfile.TemporaryDirectory(dir=parent) as directory:
                yield Path(directory)
            return
    pytest.skip("there is no ext4 here")


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def grow(records: FileRecords, megabytes: int, limit: int = LIMIT, *, write: bool = True) -> None:
    """As a log does it."""
    for _ in range(megabytes):
        if write:
            records.append(CHUNK)
        else:
            records.size_in_bytes += len(CHUNK)
        if records.size_in_bytes >= records.allocate_at:
            records.allocate_ahead(limit)


# What is asked for


def test_small_files_get_nothing(tmp_path: Path, disk: Disk) -> None:
    records = FileRecords(tmp_path / "a.log")
    grow(records, 3)
    assert disk.asked == []
    grow(records, 1)
    assert disk.asked == [(4 * MIB, MIB)]


def test_large_files_get_more_at_a_time_in_one_piece_and_never_beyond_the_limit(tmp_path: Path, disk: Disk) -> None:
    records = FileRecords(tmp_path / "a.log")
    grow(records, 640, limit=600 * MIB + 17, write=False)
    end = 0
    for start, size in disk.asked:
        assert end <= start, "nothing is asked for twice"
        end = start + size
    assert end == 600 * MIB + 17
    sizes = [size for _, size in disk.asked]
    assert max(sizes) <= preallocation.LARGEST_STEP
    assert len(sizes) < 80


def test_what_is_there_covers_the_next_appends(tmp_path: Path, disk: Disk) -> None:
    records = FileRecords(tmp_path / "a.log")
    grow(records, 16, write=False)
    for _ in range(200):
        grow(records, 1, write=False)
        start, size = disk.asked[-1]
        assert start + size >= records.size_in_bytes + preallocation.step(records.size_in_bytes) // 4


def test_a_disk_that_says_no_is_not_asked_again_for_this_file(tmp_path: Path, disk: Disk) -> None:
    disk.answers = False
    records = FileRecords(tmp_path / "a.log")
    grow(records, 20)
    assert len(disk.asked) == 1
    assert records.size_in_bytes == 20 * MIB
    records.close()
    assert (tmp_path / "a.log").read_bytes() == CHUNK * 20


def test_after_a_truncation_it_begins_anew(tmp_path: Path, disk: Disk) -> None:
    records = FileRecords(tmp_path / "a.log")
    grow(records, 20)
    disk.asked.clear()
    records.truncate_to(2 * MIB)
    grow(records, 1)
    assert disk.asked == []
    grow(records, 1)
    assert disk.asked == [(4 * MIB, MIB)]


@pytest.mark.parametrize("plain", [True, False])
def test_a_log_asks_for_itself_whichever_way_it_is_appended_to(tmp_path: Path, disk: Disk, plain: bool) -> None:
    log = LogBox(tmp_path).open(LogConfig(segment_bytes=6 * MIB))
    for offset in range(14):
        batch = client_batch([bytes(MIB // 2)], base_offset=0 if plain else offset, leader_epoch=-1 if plain else 0)
        if plain:
            log.append_as_leader(batch, 0)
        else:
            log.append_as_follower(batch, 0)
    assert disk.asked
    assert all(4 * MIB <= start < start + size <= 6 * MIB for start, size in disk.asked)
    log.close()


# File systems


def test_a_device_that_cannot_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def refuse(fd: int, *_: int) -> int:
        calls.append(fd)
        return errno.EOPNOTSUPP

    monkeypatch.setattr(preallocation, "_refused", set())
    monkeypatch.setattr(preallocation, "file_system", lambda _: "ext4")
    monkeypatch.setattr(preallocation, "_fallocate", lambda: refuse)
    for name in ("a.log", "b.log"):
        grow(FileRecords(tmp_path / name), 6)
    assert len(calls) == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EINTR])
def test_a_full_disk_is_no_reason_to_leave_other_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    calls: list[int] = []

    def refuse(fd: int, *_: int) -> int:
        calls.append(fd)
        return error

    monkeypatch.setattr(preallocation, "_refused", set())
    monkeypatch.setattr(preallocation, "file_system", lambda _: "ext4")
    monkeypatch.setattr(preallocation, "_fallocate", lambda: refuse)
    for name in ("a.log", "b.log"):
        records = FileRecords(tmp_path / name)
        grow(records, 6)
        assert records.size_in_bytes == 6 * MIB
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["xfs", "tmpfs", "btrfs", None])
def test_other_file_systems_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None) -> None:
    monkeypatch.setattr(preallocation, "file_system", lambda _: kind)
    monkeypatch.setattr(preallocation, "_fallocate", lambda: pytest.fail("asked"))
    grow(FileRecords(tmp_path / "a.log"), 6)


def test_the_file_system_is_that_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:21 / /proc rw - proc proc rw\n"
        "24 22 254:16 / /data\\040x rw shared:7 master:2 - xfs /dev/vdb rw\n"
    )
    monkeypatch.setattr(preallocation, "_MOUNTS", mounts)
    monkeypatch.setattr(sys, "platform", "linux")
    look = preallocation.file_system.__wrapped__
    assert look(os.makedev(254, 0)) == "ext4"
    assert look(os.makedev(254, 16)) == "xfs"
    assert look(os.makedev(8, 1)) is None
    monkeypatch.setattr(preallocation, "_MOUNTS", tmp_path / "nothing")
    assert look(os.makedev(254, 0)) is None
    monkeypatch.setattr(preallocation, "_MOUNTS", mounts)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert look(os.makedev(254, 0)) is None


# On a disk


def test_nobody_sees_the_blocks_and_they_are_given_back(ext4: Path) -> None:
    path = ext4 / "a.log"
    records = FileRecords(path)
    grow(records, 24)
    assert path.stat().st_size == 24 * MIB
    assert blocks(path) >= 24 * MIB + preallocation.step(24 * MIB) // 2
    os.utime(path, ns=(10**18, 10**18))
    records.trim()
    assert blocks(path) <= 24 * MIB + preallocation.SLACK
    status = path.stat()
    assert (status.st_size, status.st_mtime_ns) == (24 * MIB, 10**18), "nothing has changed"
    grow(records, 1)
    assert blocks(path) > 26 * MIB
    records.close()
    assert blocks(path) <= 25 * MIB + preallocation.SLACK
    assert path.read_bytes() == CHUNK * 25


def test_a_failed_append_does_not_keep_them(ext4: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ext4 / "a.log"
    records = FileRecords(path)
    grow(records, 8)

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", broken)
        with pytest.raises(Exception, match="broken"):
            records.append(CHUNK)
    assert blocks(path) <= 8 * MIB + preallocation.SLACK
    records.append(bytes(4096))
    assert records.size_in_bytes >= records.allocate_at, "it is to ask again at once"
    records.allocate_ahead(LIMIT)
    assert blocks(path) > 8 * MIB + preallocation.SLACK
    records.close()


def test_a_rolled_segment_gives_back(ext4: Path) -> None:
    log = LogBox(ext4).open(LogConfig(segment_bytes=64 * MIB))
    for _ in range(20):
        log.append_as_leader(client_batch([bytes(MIB // 2)]), 0)
    path = ext4 / "topic-0" / "00000000000000000000.log"
    size = path.stat().st_size
    assert blocks(path) > size + preallocation.SLACK
    log.roll()
    assert blocks(path) <= size + preallocation.SLACK
    assert path.stat().st_size == size
    log.close()


KILLED = """
import os, random, signal, sys
from pathlib import Path
from barnabas.log.config.log_config import LogConfig
from log_fixtures import LogBox, client_batch

log = LogBox(Path(sys.argv[1])).open(LogConfig())
randomness = random.Random(sys.argv[2])
for _ in range(40):
    log.append_as_leader(client_batch([randomness.randbytes(randomness.randrange(1, 500_000))]), 0)
if sys.argv[3] == "torn":  # as when the kill comes in the middle of a write
    segment = log._local_log.segments.active.records
    os.pwrite(segment._handle, client_batch([bytes(500_000)])[:300_000], segment.size_in_bytes)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("ending", ["whole", "torn"])
def test_recovery_after_a_kill_gives_back_and_goes_on(ext4: Path, ending: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(ext4), "seed", ending],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=180,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    path = ext4 / "topic-0" / "00000000000000000000.log"
    assert blocks(path) > path.stat().st_size + preallocation.SLACK, "it was killed while it had more than it needed"
    randomness = random.Random("seed")
    expected = [randomness.randbytes(randomness.randrange(1, 500_000)) for _ in range(40)]
    log = LogBox(ext4).open(LogConfig(), had_clean_shutdown=False, recovery_point=0)
    assert [record.value for record in all_records(log)] == expected
    assert blocks(path) <= path.stat().st_size + preallocation.SLACK
    log.append_as_leader(client_batch([b"next"]), 0)
    assert blocks(path) > path.stat().st_size + preallocation.SLACK
    log.close()
    assert blocks(path) <= path.stat().st_size + preallocation.SLACK
    log = LogBox(ext4).open(LogConfig())
    assert [record.value for record in all_records(log)] == [*expected, b"next"]
    log.close()


def test_what_a_kill_has_left_is_used_or_given_back_without_recovery(ext4: Path) -> None:
    """All was on the disk, so that there was nothing to recover."""
    path = ext4 / "00000000000000000000.log"
    killed = FileRecords(path)
    grow(killed, 8)
    left = blocks(path)
    assert left > 8 * MIB + preallocation.SLACK
    killed.close_handlers()
    segment = LogSegment(0, ext4, LogConfig(), LogBox(ext4).clock)
    assert blocks(path) == left
    segment.close()
    assert blocks(path) <= 8 * MIB + preallocation.SLACK
