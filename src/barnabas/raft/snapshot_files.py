"""Snapshot files: their names, creation and deletion.

==================================================  ==============================================================
``00000000000000000100-0000000003.checkpoint``      everything before offset 100, whose last record is of epoch 3
``00000000000000000100-0000000003-x.checkpoint.part``  is being written; no reader uses it
``00000000000000000100-0000000003.checkpoint.deleted``  will be deleted soon; a reader may still have it open
``00000000000000000100-0000000003.checkpoint.damaged``  failed its verification at a start; kept for inspection
==================================================  ==============================================================

A snapshot gets its final name when all of it is on disk, so a crash leaves no partial snapshot under that name. A bad
disk may still damage it: a snapshot is verified before it is loaded
(`KafkaMetadataLog.set_damaged_snapshots_aside`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.errors import BarnabasError
from barnabas.log.dirs.durable_file import make_data_dir, sync_directory
from barnabas.log.dirs.scratch_directories import is_scratch
from barnabas.log.segment.file_handle import DATA_FILE_MODE, Buffer, FileHandle, sync_data, write_fully
from barnabas.log.storage_errors import disk_access
from barnabas.network.reactor.send import FileRegion
from barnabas.raft.client import OffsetAndEpoch

SNAPSHOT_SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
DAMAGED_SUFFIX: Final = ".checkpoint.damaged"

BOOTSTRAP_SNAPSHOT_ID: Final = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes if the voters are in the log: it has only the first voters."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})(-[^.]*)?(\.checkpoint(?:\.part|\.deleted)?)")


class SnapshotPath(NamedTuple):
    """The path of a complete, partial or deleted snapshot file."""

    path: Path
    snapshot_id: OffsetAndEpoch
    is_partial: bool
    is_deleted: bool


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Returns the file name without its suffix.

    >>> snapshot_name(OffsetAndEpoch(100, 3))
    '00000000000000000100-0000000003'
    """
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}"


def snapshot_path(log_dir: Path, snapshot_id: OffsetAndEpoch) -> Path:
    return log_dir / f"{snapshot_name(snapshot_id)}{SNAPSHOT_SUFFIX}"


def deleted_snapshot_path(log_dir: Path, snapshot_id: OffsetAndEpoch) -> Path:
    return log_dir / f"{snapshot_name(snapshot_id)}{DELETED_SUFFIX}"


def damaged_snapshot_path(log_dir: Path, snapshot_id: OffsetAndEpoch) -> Path:
    return log_dir / f"{snapshot_name(snapshot_id)}{DAMAGED_SUFFIX}"


def parse_snapshot_path(path: Path) -> SnapshotPath | None:
    """Parses a file name; None if it is not that of a snapshot."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    offset, epoch, _, suffix = match.groups()
    return SnapshotPath(
        path, OffsetAndEpoch(int(offset), int(epoch)), suffix == PARTIAL_SUFFIX, suffix == DELETED_SUFFIX
    )


class FileRawSnapshotWriter:
    """Writes the bytes of a snapshot to a file."""

    def __init__(self, path: Path, snapshot_id: OffsetAndEpoch, mode: int = 0o400) -> None:
        """`path` and `mode` are the name and permissions of the finished file."""
        self.snapshot_id = snapshot_id
        self._path = path
        self._mode = mode
        self.size_in_bytes = 0
        self.is_frozen = False
        with disk_access("create", path):
            make_data_dir(path.parent)
            # Two writers may write the same snapshot; each has its own file, and the last to freeze wins.
            self._partial = path.with_name(f"{path.stem}-{os.urandom(8).hex()}{PARTIAL_SUFFIX}")
            self._fd: int | None = os.open(
                self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, DATA_FILE_MODE
            )

    @classmethod
    def create(cls, log_dir: Path, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotWriter:
        return cls(snapshot_path(log_dir, snapshot_id), snapshot_id)

    def append(self, data: Buffer) -> None:
        with disk_access("write", self._partial):
            self.size_in_bytes += write_fully(self._open_fd(), [data], self.size_in_bytes)

    def freeze(self) -> None:
        """Gives the snapshot its final name; on return it is durable, and never changes again."""
        fd = self._open_fd()
        with disk_access("complete", self._partial):
            if not is_scratch(self._path):
                sync_data(fd)
            os.fchmod(fd, self._mode)
            self._close_fd()
            self._partial.replace(self._path)
            sync_directory(self._path.parent)
        self.is_frozen = True

    def close(self) -> None:
        """Discards the partial file, unless the snapshot is frozen."""
        if self._fd is not None:
            self._close_fd()
        if not self.is_frozen:
            with suppress(OSError):  # the next start removes it
                self._partial.unlink(missing_ok=True)

    def _open_fd(self) -> int:
        if self._fd is None:
            raise BarnabasError(f"snapshot {snapshot_name(self.snapshot_id)} is already frozen or closed")
        return self._fd

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, None
        assert fd is not None
        os.close(fd)


class FileRawSnapshotReader:
    """Reads a finished snapshot. If its file is deleted meanwhile, the open file stays readable."""

    def __init__(self, path: Path, snapshot_id: OffsetAndEpoch) -> None:
        self.path = path
        self.snapshot_id = snapshot_id
        with disk_access("open", path):
            handle = FileHandle.open(path, os.O_RDONLY)
            self.size_in_bytes = os.fstat(handle).st_size
        self._handle = handle

    @classmethod
    def open(cls, log_dir: Path, snapshot_id: OffsetAndEpoch) -> FileRawSnapshotReader:
        return cls(snapshot_path(log_dir, snapshot_id), snapshot_id)

    @property
    def records(self) -> FileRegion:
        return FileRegion(self._handle, 0, self.size_in_bytes)
