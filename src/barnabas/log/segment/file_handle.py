"""File descriptors with automatic lifetime, and the system calls for storage."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.log.dirs.scratch_directories import is_scratch

if sys.platform == "darwin":
    import fcntl

Buffer = bytes | bytearray | memoryview
BUFFER_TYPES: Final = (bytes, bytearray, memoryview)

_LOGGER: Final = logging.getLogger(__name__)

DATA_FILE_MODE: Final = 0o600
"""The mode of every file that storage creates: ACLs restrict who may read records, and the metadata log has SCRAM keys.
The process's umask can only restrict it further."""
DATA_DIR_MODE: Final = 0o700

_MAX_BUFFERS: Final = 1024
"""The maximum number of buffers per call (IOV_MAX) on Linux and macOS."""


class FileHandle(int):
    """A file descriptor that closes itself when the last reference to it is dropped.

    A fetch response is a list of regions of segment files, which ``sendfile`` moves whenever the client's socket has
    room. Meanwhile the segment may be deleted. Closing its descriptor then would be worse than an error: the next file
    or connection would reuse the number, and the consumer would receive the contents of that.

    So a handle is never closed explicitly. It *is* the descriptor's number, and every user of the number, such as a
    `FileRegion` or the rest of a partially sent one, thereby holds a reference to the handle. A file is closed by
    dropping the reference::

        region = FileRegion(handle, 0, 4096)
        del handle             # the segment is deleted; the file's space is not free yet
        socket.sendfile ...    # region.fd is the handle
        del region             # now it is closed

    Arithmetic on a handle gives an ordinary number, which keeps nothing open.
    """

    __slots__ = ()

    @classmethod
    def open(cls, path: str | os.PathLike[str], flags: int) -> FileHandle:
        kind = ScratchFileHandle if is_scratch(path) else cls
        return kind(os.open(path, flags | os.O_CLOEXEC, DATA_FILE_MODE))

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        try:
            _close(self)
        except OSError as error:
            _LOGGER.warning("closing file descriptor %d: %s", self, error)


class ScratchFileHandle(FileHandle):
    """A handle of a file that need not outlive the process: syncing it does nothing."""

    __slots__ = ()


def ensure_spare_descriptors(count: int) -> None:
    """Raises `OSError` (EMFILE) unless more than `count` files can be opened, judging by the lowest free number."""
    if sys.platform == "win32":
        return
    import resource  # not available on Windows

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return  # this error is unrelated to the number of files
    os.close(lowest)
    if limit != resource.RLIM_INFINITY and lowest >= limit - count:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def write_fully(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes all buffers consecutively, and returns their total size.

    It makes one system call unless the file system writes only a part. (Python itself repeats an interrupted call.)
    """
    rest = list(buffers)
    start = position
    while rest:
        written = _pwritev(fd, rest[:_MAX_BUFFERS], position)
        position += written
        done = 0
        while done < len(rest) and written >= len(rest[done]):
            written -= len(rest[done])
            done += 1
        if done == 0 and written == 0:
            raise OSError(f"wrote nothing of {sum(map(len, rest))} bytes")
        del rest[:done]
        if written:
            rest[0] = memoryview(rest[0])[written:]
    return position - start


def _joined_pwritev(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Replaces ``pwritev`` on systems without it: macOS before 11."""
    return os.pwrite(fd, buffers[0] if len(buffers) == 1 else b"".join(buffers), position)


_pwritev: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", _joined_pwritev)


def read_fully(fd: int, size: int, position: int) -> bytes:
    """Reads `size` bytes, or up to the end of the file if that comes first."""
    data = os.pread(fd, size, position)
    if len(data) == size:
        return data
    parts = [data]
    read = len(data)
    while data and read < size:
        data = os.pread(fd, size - read, position + read)
        parts.append(data)
        read += len(data)
    return b"".join(parts)


if sys.platform == "darwin":

    def sync_data(fd: int) -> None:
        """Forces the file's contents to disk; on macOS, ``fsync`` alone leaves them in the disk's cache."""
        if isinstance(fd, ScratchFileHandle):
            return
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:  # a file system without it
            os.fsync(fd)

else:

    def sync_data(fd: int) -> None:
        """Forces the file's contents and its size to disk."""
        if isinstance(fd, ScratchFileHandle):
            return
        os.fdatasync(fd)
