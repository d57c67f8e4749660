"""Handles disk failures: the log directory goes offline, and the rest of the broker continues.

A thread that gets an I/O error does not know the other logs of the directory, and holds locks that forbid to look for
them. So it only reports the directory. Another thread takes the directory offline with all its logs::

    any thread        LogDirGuard        LogDirFailureChannel          a thread of the broker
    append fails  ->  "/disk2 failed" -> once for each directory  ->   LogManager.handle_log_dir_failure("/disk2")
    KafkaStorageError to the client

In between, all other operations on the directory are rejected at once: after a failed write the contents of the files
are unknown. A directory stays offline until the broker starts again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.log.storage_errors import is_disk_failure

logger = logging.getLogger(__name__)


class LogDirFailureChannel:
    """Passes failed log directories from the threads that detect a failure to the thread that handles it."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        """Guards changes of all fields below; only the clock is called while it is held. `_offline` is read without
        it, because every append and read needs it."""
        self._offline: dict[Path, str] = {}
        self.any_offline = False
        """Whether any directory is offline. Never reset; set after the directory is in the table."""
        self._queue: deque[Path] = deque()
        self._closed = False

    def has_offline_log_dir(self, log_dir: Path) -> bool:
        return log_dir in self._offline

    @property
    def offline_log_dirs(self) -> dict[Path, str]:
        """The failed directories, with the error messages."""
        with self._changed:
            return dict(self._offline)

    def maybe_add_offline_log_dir(self, log_dir: Path, message: str, error: BaseException | None = None) -> bool:
        """Reports a failed directory; returns whether it was not known yet."""
        with self._changed:
            if log_dir in self._offline:
                logger.debug("%s, which is offline already: %s", log_dir, message)
                return False
            self._offline[log_dir] = message
            self.any_offline = True
            self._queue.append(log_dir)
            self._changed.notify()
        logger.error("Log directory %s has failed and goes offline: %s", log_dir, message, exc_info=error)
        return True

    def take_next_offline_log_dir(self, timeout_ms: float | None = None) -> Path | None:
        """Waits for a failed directory; None on timeout or when the channel is closed. Returns each only once."""
        deadline = None if timeout_ms is None else self._clock.nanoseconds() + int(timeout_ms * 1_000_000)
        with self._changed:
            while not self._queue and not self._closed:
                remaining = None if deadline is None else (deadline - self._clock.nanoseconds()) / 1_000_000
                if remaining is not None and remaining <= 0:
                    break
                self._clock.wait(self._changed, remaining)
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Ends `take_next_offline_log_dir` for all waiting threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LogDirGuard:
    """Guards all operations of a log on its directory.

    >>> guard = LogDirGuard(LogDirFailureChannel(), Path("/disk2"))
    >>> with guard.watch("appending records"):
    ...     pass

    It rejects operations on an offline directory, and takes the directory offline when the disk fails during one. Other
    errors (a batch out of order, a closed file) pass through.
    """

    __slots__ = ("channel", "log_dir")

    def __init__(self, channel: LogDirFailureChannel, log_dir: Path) -> None:
        self.channel = channel
        self.log_dir = log_dir

    def check(self) -> None:
        """Raises `KafkaStorageError` if the directory is offline."""
        if self.channel.any_offline and self.channel.has_offline_log_dir(self.log_dir):
            raise KafkaStorageError(f"log directory {self.log_dir} is offline: its disk has failed before")

    def watch(self, action: str) -> _Watch:
        """Guards a ``with`` block that performs `action`."""
        return _Watch(self, action)

    def guarded(self, action: str, task: Callable[[], object]) -> Callable[[], None]:
        """Returns a task that runs guarded. It does nothing if the directory is offline by then."""

        def run() -> None:
            if self.channel.has_offline_log_dir(self.log_dir):
                return
            with self.watch(action):
                task()

        return run

    def failed(self, action: str, error: KafkaStorageError | OSError) -> KafkaStorageError:
        """Reports a disk error to the channel, and returns the error to raise."""
        if isinstance(error, KafkaStorageError):
            failure = error
        else:
            failure = KafkaStorageError(f"{action} in {self.log_dir}: {error.strerror or error}")
        if is_disk_failure(error):
            self.channel.maybe_add_offline_log_dir(self.log_dir, f"{action}: {error}", error)
        return failure

    def reraise(self, action: str, error: KafkaStorageError | OSError) -> NoReturn:
        """Reports and raises an error, for handlers where a ``with`` block would cost too much."""
        failure = self.failed(action, error)
        if failure is error:
            raise error
        raise failure from error


class _Watch:
    __slots__ = ("_action", "_guard")

    def __init__(self, guard: LogDirGuard, action: str) -> None:
        self._guard = guard
        self._action = action

    def __enter__(self) -> None:
        self._guard.check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (KafkaStorageError, OSError)):
            self._guard.reraise(self._action, error)
