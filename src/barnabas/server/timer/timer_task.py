"""Timer tasks and the timer interface."""

from __future__ import annotations

import abc
from typing import Any, Protocol

from barnabas.common.exceptions import BarnabasError


class TimerClosedError(BarnabasError, RuntimeError):
    """The timer is closed: a task added now would never run."""


class Timer(Protocol):
    """Runs tasks when their delay is over: :class:`SystemTimer` in a broker, :class:`MockTimer` in a test."""

    def add(self, task: TimerTask) -> None:
        """Schedules the task after its delay. A task that is already waiting restarts its delay.

        Raises :class:`TimerClosedError` after :meth:`close`.
        """
        ...

    def remove(self, task: TimerTask) -> bool:
        """Removes the task if it still waits. Called by :meth:`TimerTask.cancel`."""
        ...

    def advance_clock(self, timeout_ms: int) -> bool:
        """Waits at most ``timeout_ms`` for due tasks and processes them; returns whether there were any."""
        ...

    def wake(self) -> None:
        """Ends the wait of the current :meth:`advance_clock`, or of the next one."""
        ...

    def size(self) -> int:
        """Returns the number of waiting tasks."""
        ...

    def close(self) -> None:
        """Runs the tasks that have already fallen due, drops the others and stops the timer's threads."""
        ...


class TimerTask(abc.ABC):
    """A task that runs after ``delay_ms``, unless it is cancelled first.

    The task itself is the list node in its bucket, so a timer allocates nothing for it. This requires an ownership rule
    for the links: until its first :meth:`Timer.add` a task belongs to its creator. After that it belongs to the timer,
    whose lock guards all fields below. A task cannot move to another timer.

    Any thread may call :meth:`cancel` at any time, even on a task that was never added or has already run.
    """

    __slots__ = ("_next", "_previous", "_timer", "delay_ms", "expiration_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.expiration_ms = -1
        """When the task falls due on the timer's clock; set by the timer."""
        self._timer: Timer | None = None
        # Neighbours in the bucket: tasks or the bucket itself. None while the task does not wait.
        self._next: Any = None
        self._previous: Any = None

    @abc.abstractmethod
    def run(self) -> None:
        """Called on the timer's thread when the delay is over."""

    def cancel(self) -> bool:
        """Removes the task from its timer at once. Returns False if it was not waiting.

        A task that has fallen due and is queued for the executor is no longer waiting: it runs.
        """
        timer = self._timer
        # Without a timer, this cancel precedes the add, and an add after a cancel is valid.
        return timer is not None and timer.remove(self)

    def __repr__(self) -> str:
        state = "idle" if self._next is None else f"due at {self.expiration_ms}"
        return f"<{type(self).__name__} delay={self.delay_ms}ms {state}>"
