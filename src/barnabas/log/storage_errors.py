"""What can go wrong with the files of a log, and who has to do something about it.

- **The disk failed**: `KafkaStorageError`, raised from the `OSError`, with the path in its message. The log directory
  has to go offline; `is_disk_failure` tells this from the next.
- **There is no file descriptor to be had**: a `KafkaStorageError`, too, and `is_descriptor_shortage`. Nothing is wrong
  with the disk. Whoever asked asks again.
- **The file is not open any more**: `FileClosedError`. A reader was overtaken by the deletion of a segment; nothing is
  wrong with the disk, and the client asks again.
- **An index is damaged**: `CorruptIndexError`. Everything in an index can be found out from the log again.
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
    """An index file that cannot be right: it has to be rebuilt from the log."""


class IndexOffsetOverflowError(BarnabasError):
    """An offset further from the base offset of an index than 31 bits can say."""


class LogSegmentOffsetOverflowError(BarnabasError):
    """An offset further from the base offset of a segment than its indexes can say."""

    def __init__(self, path: Path, base_offset: int, offset: int) -> None:
        super().__init__(f"{path}: offset {offset} cannot be stored relative to the base offset {base_offset}")
        self.path = path
        self.base_offset = base_offset
        self.offset = offset


def storage_error(action: str, path: os.PathLike[str], error: OSError) -> KafkaStorageError:
    """The error to raise when the operating system said `error` to an attempt to `action` a file."""
    return KafkaStorageError(f"cannot {action} {os.fspath(path)}: {error.strerror or error}")


def is_disk_failure(error: BaseException) -> bool:
    """Whether `error` means that the log directory is not to be trusted any more.

    To be out of file descriptors is bad, but not the disk's fault, and may pass: see `is_descriptor_shortage`.
    """
    if isinstance(error, FileClosedError) or not isinstance(error, (KafkaStorageError, OSError)):
        return False
    return not is_descriptor_shortage(error)


def is_descriptor_shortage(error: BaseException) -> bool:
    """Whether a file could not be opened because the process, or the machine, has too many open."""
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
