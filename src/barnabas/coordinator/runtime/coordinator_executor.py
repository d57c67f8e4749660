"""Runs tasks that take too long for the event loop of a partition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_timer import EventScheduler

logger = LimitedLogger(logging.getLogger(__name__))

R = TypeVar("R")


class CoordinatorExecutor(Protocol):
    """Runs tasks outside the event loop, and their results inside it."""

    def schedule(
        self,
        key: str,
        task: Callable[[], R],
        operation: Callable[[R | None, BaseException | None], CoordinatorResult[Any]],
    ) -> bool:
        """Runs `task` on another thread, and then `operation` in the partition's loop, with its result or error.

        Returns False if a task with this key is scheduled. `task` must not access the state machine.
        """
        ...

    def is_scheduled(self, key: str) -> bool: ...

    def cancel(self, key: str) -> None:
        """Discards the result of the task."""
        ...


class CancelledTaskError(Exception):
    """The task was cancelled while it ran."""


class EventBasedCoordinatorExecutor:
    """An executor on a thread pool that all partitions share.

    `_tasks` belongs to the partition's loop.
    """

    def __init__(self, pool: Executor, schedule_event: EventScheduler) -> None:
        self._pool = pool
        self._schedule_event = schedule_event
        self._tasks: dict[str, object] = {}

    def schedule(
        self,
        key: str,
        task: Callable[[], R],
        operation: Callable[[R | None, BaseException | None], CoordinatorResult[Any]],
    ) -> bool:
        if key in self._tasks:
            return False
        token = object()
        self._tasks[key] = token

        def on_finished(future: Future[R]) -> None:
            if future.cancelled():
                return  # the pool is shut down
            error = future.exception()

            def in_the_loop() -> CoordinatorResult[Any]:
                if self._tasks.get(key) is not token:
                    raise CancelledTaskError
                del self._tasks[key]
                return operation(None if error is not None else future.result(), error)

            self._schedule_event(f"executor-{key}", in_the_loop, self._on_done)

        try:
            self._pool.submit(task).add_done_callback(on_finished)
        except RuntimeError:
            del self._tasks[key]  # the pool is shut down, and so will be the coordinator
        return True

    @staticmethod
    def _on_done(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, CancelledTaskError):
            logger.info("Cannot apply the result of a task to its coordinator: %r", error)

    def is_scheduled(self, key: str) -> bool:
        return key in self._tasks

    def cancel(self, key: str) -> None:
        self._tasks.pop(key, None)

    def cancel_all(self) -> None:
        self._tasks.clear()
