"""The file ``.lock`` in a log directory, which excludes a second broker.

The operating system releases the lock when the process ends, however it ends. Apache Kafka takes the same kind of lock,
so that Barnabas and Kafka exclude each other. Such a lock belongs to the whole process, so a list excludes a second
broker in the *same* process.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from barnabas.common.errors import BarnabasError
from barnabas.log.segment.file_handle import DATA_FILE_MODE
from barnabas.log.storage_errors import disk_access

try:
    import fcntl
except ImportError:  # brokers in other processes are not excluded then
    fcntl = None  # type: ignore[assignment]

LOCK_FILE: Final = ".lock"

_held: set[Path] = set()
_held_lock: Final = threading.Lock()
"""Guards `_held`, the lock files of this process. No other lock is taken inside it."""


class LogDirLockedError(BarnabasError):
    """Another broker is using the directory."""


class LogDirLock:
    """The lock of one log directory, from construction until `release`."""

    def __init__(self, log_dir: Path) -> None:
        """Takes the lock. Raises `LogDirLockedError` if it is held, `KafkaStorageError` on an I/O error."""
        self._path = log_dir / LOCK_FILE
        with _held_lock:
            # Checked before the file is opened, because closing it would release the lock of the other broker in this
            # process.
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
        """Releases the lock. Idempotent."""
        with _held_lock:
            if self._path in _held and self._fd >= 0:
                _held.discard(self._path)
                os.close(self._fd)
                self._fd = -1
