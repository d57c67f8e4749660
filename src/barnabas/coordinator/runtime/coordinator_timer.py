"""Timers of a coordinator's state machine, by key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.server.timer.timer_task import Timer, TimerClosedError, TimerTask

logger = LimitedLogger(logging.getLogger(__name__))

RETRY_BACKOFF_MS: Final = 500
MAX_RETRY_BACKOFF_MS: Final = 60_000
"""The maximum backoff of an operation that fails each time, so that the log is not flooded."""

TimeoutOperation = Callable[[], CoordinatorResult[Any]]


class CoordinatorTimer(Protocol):
    """Runs operations on the partition's own event loop after a delay.

    There is one timer per key: scheduling a key again replaces it, so a heartbeat extends a session timeout by
    scheduling it again.
    """

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: TimeoutOperation,
        *,
        retry: bool = True,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        """Schedules an operation. With `retry` it runs again if its records cannot be appended.

        An operation that raises always runs again, with a growing backoff: a session or a rebalance that lost its
        timeout would never end.
        """
        ...

    def schedule_if_absent(self, key: str, delay_ms: int, operation: TimeoutOperation, *, retry: bool = True) -> None:
        """Schedules an operation unless this key is scheduled."""
        ...

    def cancel(self, key: str) -> None: ...

    def is_scheduled(self, key: str) -> bool: ...


class CancelledTimeoutError(Exception):
    """A timer that was due was cancelled before its event ran."""


class EventScheduler(Protocol):
    """Queues a write operation for the partition, and calls back with its outcome."""

    def __call__(
        self,
        name: str,
        operation: Callable[[], CoordinatorResult[Any]],
        on_done: Callable[[BaseException | None], None],
    ) -> None: ...


class EventBasedCoordinatorTimer:
    """A coordinator's timer on the shared timing wheel.

    When a delay ends, the wheel's thread queues an event for the partition. Until it runs, earlier events may cancel or
    replace the timer, so the event first checks that it is still current. `_tasks` is only used in the partition's
    loop; the wheel's thread accesses only its task.
    """

    def __init__(self, timer: Timer, schedule_event: EventScheduler) -> None:
        self._timer = timer
        self._schedule_event = schedule_event
        self._tasks: dict[str, _Timeout] = {}

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: TimeoutOperation,
        *,
        retry: bool = True,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        self._schedule(_Timeout(self, key, delay_ms, operation, retry_backoff_ms if retry else None))

    def _schedule(self, task: _Timeout) -> None:
        key = task.key
        previous = self._tasks.get(key)
        if previous is not None:
            previous.cancel()
        self._tasks[key] = task
        try:
            self._timer.add(task)
        except TimerClosedError:
            logger.debug("Not scheduling %s: the coordinator is shutting down", key)

    def schedule_if_absent(self, key: str, delay_ms: int, operation: TimeoutOperation, *, retry: bool = True) -> None:
        if key not in self._tasks:
            self.schedule(key, delay_ms, operation, retry=retry)

    def cancel(self, key: str) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def is_scheduled(self, key: str) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def on_due(self, task: _Timeout) -> None:
        """Queues the event; runs on the wheel's thread."""

        def operation() -> CoordinatorResult[Any]:
            if self._tasks.get(task.key) is not task:
                raise CancelledTimeoutError
            del self._tasks[task.key]
            try:
                return task.operation()
            except Exception:
                task.failures += 1
                raise

        def on_done(error: BaseException | None) -> None:
            if error is None or isinstance(
                error,
                CancelledTimeoutError
                | NotCoordinatorError
                | CoordinatorLoadInProgressError
                | CoordinatorNotAvailableError,
            ):
                # The new coordinator, or this one after loading, schedules its own timers.
                return
            backoff_ms = task.retry_backoff_ms
            if task.failures:
                backoff_ms = min((backoff_ms or RETRY_BACKOFF_MS) << min(task.failures - 1, 16), MAX_RETRY_BACKOFF_MS)
                logger.error("The timer %r failed; retrying in %d ms", task.key, backoff_ms, exc_info=error)
            elif backoff_ms is None:
                logger.error("Cannot append the records of the timer %r: %r", task.key, error)
                return
            else:
                logger.info("Cannot append the records of the timer %r: %r; retrying", task.key, error)
            if task.key not in self._tasks:
                again = _Timeout(self, task.key, backoff_ms, task.operation, task.retry_backoff_ms)
                again.failures = task.failures
                self._schedule(again)

        self._schedule_event(f"timeout-{task.key}", operation, on_done)


class _Timeout(TimerTask):
    __slots__ = ("_owner", "failures", "key", "operation", "retry_backoff_ms")

    def __init__(
        self,
        owner: EventBasedCoordinatorTimer,
        key: str,
        delay_ms: int,
        operation: TimeoutOperation,
        retry_backoff_ms: int | None,
    ) -> None:
        super().__init__(delay_ms)
        self._owner = owner
        self.key = key
        self.operation = operation
        self.retry_backoff_ms = retry_backoff_ms
        self.failures = 0
        """The number of consecutive failures."""

    def run(self) -> None:
        self._owner.on_due(self)
