"""The file ``.lock`` in a log directory: no two brokers in the same directory.

The lock is one that the operating system takes back when the process ends, however it ends. It is of the kind that
Apache Kafka takes, so that a broker of ours keeps one of theirs out, and the other way round. Locks of that kind belong
to the process as a whole, so a second broker in the *same* process is kept out by a list.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from barnabas.common.errors import BarnabasError
from barnabas.log.file_handle import DATA_FILE_MODE
from barnabas.log.storage_errors import disk_access

try:
    import fcntl
except ImportError:  # then, brokers in other processes are not kept out
    fcntl = None  # type: ignore[assignment]

LOCK_FILE: Final = ".lock"

_held: set[Path] = set()
_held_lock: Final = threading.Lock()
"""Guards `_held`, the lock files of this process. Nothing else is locked inside it."""


class LogDirLockedError(BarnabasError):
    """Another broker is using the directory."""


class LogDirLock:
    """The lock of one log directory, from construction until `release`."""

    def __init__(self, log_dir: Path) -> None:
        """`LogDirLockedError` if somebody has it, `KafkaStorageError` if that cannot be found out."""
        self._path = log_dir / LOCK_FILE
        with _held_lock:
            # Before the file is opened: to close it again would release the lock that somebody else here has.
            if self._path in _held:
                raise LogDirLockedError(f"{log_dir} is in use by another broker in this process")
            with disk_access("lock", self._path):
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, DATA_FILE_MODE)
                try:
                    if fcntl is not None:
                        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError) as error:
                    os.close(fd)
                    raise LogDirLockedError(f"{log_dir} is in use by another broker") from error
                except OSError:
                    os.close(fd)
                    raise
            _held.add(self._path)
        self._fd = fd

    def release(self) -> None:
        """Lets others in. More than once does no harm."""
        with _held_lock:
            if self._path in _held and self._fd >= 0:
                _held.discard(self._path)
                os.close(self._fd)
                self._fd = -1
