"""The thread that runs a timer's expired tasks."""

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
    """Runs tasks one after the other, on its own thread, in the order of submission.

    ``concurrent.futures.ThreadPoolExecutor`` would create an unused future for each task, and append a number to the
    thread's name, which operators look for.

    If a task raises, the error is logged and the next task runs. Shutdown runs the tasks submitted before it.
    """

    def __init__(self, name: str, *, daemon: bool = False, exit_procedure: ExitProcedure = exit_process) -> None:
        super().__init__(name, daemon=daemon, exit_procedure=exit_procedure)
        self._accepting_lock = threading.Lock()
        """Guards the flag and every put, so that no task is queued behind the end marker."""
        self._accepting = True
        self._submitted: queue.SimpleQueue[deque[Runnable] | None] = queue.SimpleQueue()

    def submit(self, tasks: Iterable[Runnable]) -> bool:
        """Queues tasks in order, with one queue operation. Returns False, and runs nothing, after shutdown."""
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
                # Popped, so that each task is freed as soon as it has run: it may hold a large buffer.
                self._run(tasks.popleft())

    @staticmethod
    def _run(task: Runnable) -> None:
        try:
            task.run()
        except Exception:
            log.exception("a timer task failed: %r", task)
