"""The one thread that runs what a timer hands it."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process

log = LimitedLogger(logging.getLogger(__name__))


class Runnable(Protocol):
    def run(self) -> object: ...


class TaskExecutor(ShutdownableThread):
    """Runs tasks one after the other, on a thread of its own, in the order they were submitted.

    ``concurrent.futures.ThreadPoolExecutor`` would do the same with a future for each task, which nobody looks at, and
    a number appended to the thread's name, which operators look for.

    A task that raises is logged and the next one is run. Shutdown runs what was submitted before it.
    """

    def __init__(self, name: str, *, daemon: bool = False, exit_procedure: ExitProcedure = exit_process) -> None:
        super().__init__(name, daemon=daemon, exit_procedure=exit_procedure)
        self._accepting_lock = threading.Lock()
        """Keeps the end marker last: guards the flag, and every put, so that no task is queued behind the marker."""
        self._accepting = True
        self._submitted: queue.SimpleQueue[deque[Runnable] | None] = queue.SimpleQueue()

    def submit(self, tasks: Iterable[Runnable]) -> bool:
        """Has these run, in order: many tasks for the price of one hand-over. False, and nothing is run, after
        shutdown."""
        with self._accepting_lock:
            if self._accepting:
                self._submitted.put(deque(tasks))
            return self._accepting

    def on_shutdown_initiated(self) -> None:
        with self._accepting_lock:
            self._accepting = False
            self._submitted.put(None)

    def do_work(self) -> None:
        while (tasks := self._submitted.get()) is not None:
            while tasks:
                # Popped, so that each task is let go of as soon as it has run: it may hold a large buffer.
                self._run(tasks.popleft())

    @staticmethod
    def _run(task: Runnable) -> None:
        try:
            task.run()
        except Exception:
            log.exception("a timer task failed: %r", task)
