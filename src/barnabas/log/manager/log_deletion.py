"""Deletes logs after a delay."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from barnabas.common.clock import Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)


class _Doomed(NamedTuple):
    delete: Callable[[], None]
    what: str
    since_ms: int
    """On the monotonic clock."""


class LogDeletion:
    """Deletes logs some time after their removal, so that current readers can finish.

    The log manager renames the directory of a deleted log at once, so that its topic can be created again. This class
    deletes the files. One task at a time waits until the next log is due.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, delay_ms: Callable[[], int]) -> None:
        """`delay_ms` is called every time, because the setting can change."""
        self._clock = clock
        self._scheduler = scheduler
        self._delay_ms = delay_ms
        self._lock = threading.Lock()
        """Guards the fields below. Nothing is deleted while it is held."""
        self._queue: deque[_Doomed] = deque()
        self._task: ScheduledTask | None = None
        self._started = False

    def add(self, log: UnifiedLog) -> None:
        """Schedules the deletion of a log whose directory has been renamed."""
        self._add(_Doomed(log.delete, str(log.directory), self._clock.hi_res_milliseconds()))

    def add_directory(self, directory: Path, guard: LogDirGuard) -> None:
        """Schedules the deletion of the directory of a log that is not open."""

        def delete() -> None:
            import shutil

            with guard.watch(f"deleting {directory}"):
                shutil.rmtree(directory)

        self._add(_Doomed(delete, str(directory), self._clock.hi_res_milliseconds()))

    def start(self, initial_delay_ms: int) -> None:
        """Starts to delete, after a delay."""
        with self._lock:
            self._started = True
            self._schedule(initial_delay_ms)

    def stop(self) -> None:
        """Stops. The next start deletes the remaining logs."""
        with self._lock:
            self._started = False
            if self._task is not None:
                self._task.cancel()

    def __len__(self) -> int:
        with self._lock:
            return len(self._queue)

    def _add(self, doomed: _Doomed) -> None:
        with self._lock:
            self._queue.append(doomed)
            if self._started and self._task is None:
                self._schedule(max(self._delay_ms(), 0))

    def _schedule(self, delay_ms: int) -> None:
        self._task = self._scheduler.schedule("kafka-delete-logs", self._delete_due, delay_ms)

    def _delete_due(self) -> None:
        while (doomed := self._next_due()) is not None:
            try:
                doomed.delete()
            except (KafkaStorageError, OSError) as error:
                logger.error("%s is not deleted: %s", doomed.what, error)
            else:
                logger.info("deleted %s", doomed.what)

    def _next_due(self) -> _Doomed | None:
        """Returns the next log to delete; if it is not due yet, schedules the task again."""
        with self._lock:
            self._task = None
            if not self._queue or not self._started:
                return None
            remaining = self._queue[0].since_ms + self._delay_ms() - self._clock.hi_res_milliseconds()
            if remaining > 0:
                self._schedule(remaining)
                return None
            return self._queue.popleft()
