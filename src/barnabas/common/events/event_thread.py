"""A thread that runs functions one after the other."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.common.events.event_queue import KafkaEventQueue, QueuedCall
from barnabas.common.shutdownable_thread import ExitProcedure


class EventThread:
    """An :class:`~barnabas.metadata.event_executor.EventExecutor` with a thread behind it."""

    def __init__(self, name: str, clock: Clock, exit_procedure: ExitProcedure) -> None:
        self._queue = KafkaEventQueue(name, clock, exit_procedure)
        self._name = name

    def start(self) -> None:
        self._queue.start()

    def execute(self, event: Callable[[], object]) -> None:
        self._queue.append(QueuedCall(self._name, event))

    def close(self) -> None:
        """Waits until the thread has ended; functions still queued do not run."""
        self._queue.close()
