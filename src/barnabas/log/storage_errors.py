"""Errors of log files, and how each one is handled.

- **The disk failed**: `KafkaStorageError`, raised from the `OSError`, with the path in its message. The log directory
  goes offline; `is_disk_failure` distinguishes this from the next case.
- **No file descriptor is available**: also a `KafkaStorageError`, with `is_descriptor_shortage`. The disk is fine, and
  the caller retries.
- **The file is closed**: `FileClosedError`. A segment was deleted while it was being read. The disk is fine, and the
  client retries.
- **An index is corrupt**: `CorruptIndexError`. The index can be rebuilt from the log.
- **An offset does not fit into a segment**: `IndexOffsetOverflowError`, `LogSegmentOffsetOverflowError`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

from barnabas.common.errors import BarnabasError, KafkaStorageError


class FileClosedError(KafkaStorageError):
    """The file was closed, because its segment was deleted or the broker is shutting down."""


class CorruptIndexError(BarnabasError):
    """A corrupt index file, which has to be rebuilt from the log."""


class IndexOffsetOverflowError(BarnabasError):
    """An offset whose distance from an index's base offset exceeds 31 bits."""


class LogSegmentOffsetOverflowError(BarnabasError):
    """An offset whose distance from a segment's base offset exceeds the range of its indexes."""

    def __init__(self, path: Path, base_offset: int, offset: int) -> None:
        super().__init__(f"{path}: offset {offset} cannot be stored relative to the base offset {base_offset}")
        self.path = path
        self.base_offset = base_offset
        self.offset = offset


def storage_error(action: str, path: os.PathLike[str], error: OSError) -> KafkaStorageError:
    """Creates the error to raise when `action` on a file failed with `error`."""
    return KafkaStorageError(f"cannot {action} {os.fspath(path)}: {error.strerror or error}")


def is_disk_failure(error: BaseException) -> bool:
    """Whether `error` means that the log directory has failed.

    A lack of file descriptors is not a disk failure and may be temporary: see `is_descriptor_shortage`.
    """
    if isinstance(error, FileClosedError) or not isinstance(error, (KafkaStorageError, OSError)):
        return False
    return not is_descriptor_shortage(error)


def is_descriptor_shortage(error: BaseException) -> bool:
    """Whether a file could not be opened because the process or the machine has too many open files."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}


class disk_access:  # noqa: N801 - used like a function: `with disk_access("flush", path):`
    """Turns an `OSError` inside the block into a `KafkaStorageError` that names the file."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: os.PathLike[str]) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise storage_error(self._action, self._path, error) from error


def delete_file(path: Path) -> bool:
    """Deletes a file; returns whether it existed. Raises `KafkaStorageError` if it cannot be deleted."""
    with disk_access("delete", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
    return True
