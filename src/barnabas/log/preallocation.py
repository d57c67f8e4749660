"""Blocks for a file that is about to grow, asked for before they are needed.

ext4 decides late where a page goes: each page that is appended is counted against the free space, the user's quota and
a table of promises, and all of that is looked up once more when the page is written back. Blocks that the file has
already spare it both: a bare write of 256 KiB takes a fifth less processor time then, all of the writing back
included, and one of 16 KiB an eighth. The blocks lie behind the end of the file, whose size stays what it is
(``FALLOC_FL_KEEP_SIZE``), so whoever looks at the file sees nothing of them but in ``du``.

It is for ext4 alone. XFS does the like by itself; file systems that write everything to a new place, or keep it in
memory, gain nothing; and what others would make of it nobody has measured.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

FIRST: Final = 4 << 20
"""The size from which on a file gets more than it needs: most logs of most brokers never come to that."""
SMALLEST_STEP: Final = 1 << 20
LARGEST_STEP: Final = 32 << 20
SHARE: Final = 8
"""A file gets this part of its size at a time. More would gain nothing, and is not there for anybody else."""
SLACK: Final = 1 << 16
"""What a file may take up beyond its size for other reasons: the rest of its last block, the table of its blocks."""

_KEEP_SIZE: Final = 1
_MOUNTS: Final = Path("/proc/self/mountinfo")
_SECTOR: Final = 512
"""What sizes of files on disk are told in, whatever the file system goes by."""

_refused: set[int] = set()
"""Devices that have said that they cannot do this. A set of numbers, to which any thread may add one at any time."""


def step(size: int) -> int:
    """How much a file of this size should have ahead."""
    return min(max(size // SHARE, SMALLEST_STEP), LARGEST_STEP)


def allocate(fd: int, start: int, size: int) -> bool:
    """Gives a file blocks for a part of it that it does not have yet; false if it is not going to get any.

    A disk without room is no error: whether the next append finds some is a matter of that append.
    """
    device = os.fstat(fd).st_dev
    if device in _refused or file_system(device) != "ext4":
        return False
    fallocate = _fallocate()
    error = errno.ENOSYS if fallocate is None else fallocate(fd, _KEEP_SIZE, start, size)
    if error in (errno.EOPNOTSUPP, errno.ENOSYS):
        logger.info("Files on device %d:%d get no blocks in advance", os.major(device), os.minor(device))
        _refused.add(device)
    return error == 0


def allocated_end(status: os.stat_result) -> int:
    """Up to where a file has blocks, if that is behind its end: a process that was killed has left it so. 0 if not."""
    size = getattr(status, "st_blocks", 0) * _SECTOR
    return size if size > status.st_size + SLACK else 0


def give_back(fd: int, status: os.stat_result) -> None:
    """Frees all blocks behind the end of a file, of which this is known."""
    os.ftruncate(fd, status.st_size)
    # To truncate a file counts as a change, though nothing in it has. The age of a segment can depend on that.
    with suppress(OSError):
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))


@cache
def file_system(device: int) -> str | None:
    """The type of the file system on a device; None if nobody knows."""
    if not sys.platform.startswith("linux"):
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text("utf-8", "replace")
    except OSError:
        return None
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if fields.split()[2:3] == [number]:
            return kind.partition(" ")[0]
    return None


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The system call, which Python does not have: `os.posix_fallocate` makes the file longer. Returns the error."""
    import ctypes  # most processes never need it

    try:
        library = ctypes.CDLL(None, use_errno=True)
        # Where there are two, this is the one whose offsets have 64 bits on every machine.
        function = getattr(library, "fallocate64", None) or library.fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int

    def call(fd: int, mode: int, start: int, size: int) -> int:
        return 0 if function(fd, mode, start, size) == 0 else ctypes.get_errno()

    return call
