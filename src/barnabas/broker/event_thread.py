"""A thread that runs functions one after the other, for those who only need that."""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.common.shutdownable_thread import ExitProcedure
from barnabas.controller.event_queue import EventQueueClosedError, KafkaEventQueue

logger = logging.getLogger(__name__)


class EventThread:
    """An :class:`~barnabas.metadata.event_executor.EventExecutor` with a thread behind it."""

    def __init__(self, name: str, clock: Clock, exit_procedure: ExitProcedure) -> None:
        self._queue = KafkaEventQueue(name, clock, exit_procedure)
        self._name = name

    def start(self) -> None:
        self._queue.start()

    def execute(self, event: Callable[[], object]) -> None:
        self._queue.append(_Call(self._name, event))

    def close(self) -> None:
        """Returns when the thread has ended; what still waits is not run."""
        self._queue.close()


class _Call:
    """A function as an event."""

    __slots__ = ("_function", "_name")

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self._name = name
        self._function = function

    def run(self) -> None:
        self._function()

    def handle_exception(self, error: Exception) -> None:
        if not isinstance(error, EventQueueClosedError):
            logger.error("Unexpected error on %s", self._name, exc_info=error)
