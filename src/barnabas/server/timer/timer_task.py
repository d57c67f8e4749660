"""What a timer runs, and what a timer is."""

from __future__ import annotations

import abc
from typing import Any, Protocol

from barnabas.common.exceptions import BarnabasError


class TimerClosedError(BarnabasError, RuntimeError):
    """The timer has been closed: what is added now would never be run."""


class Timer(Protocol):
    """Runs tasks when their delay is over: :class:`SystemTimer` in a broker, :class:`MockTimer` in a test."""

    def add(self, task: TimerTask) -> None:
        """Has the task run after its delay. One that was already waiting here starts to wait anew.

        Raises :class:`TimerClosedError` after :meth:`close`.
        """
        ...

    def remove(self, task: TimerTask) -> bool:
        """What :meth:`TimerTask.cancel` calls: takes the task out, if it still waits."""
        ...

    def advance_clock(self, timeout_ms: int) -> bool:
        """Waits at most so long for something to fall due and moves on what has; whether anything had."""
        ...

    def wake(self) -> None:
        """Ends an :meth:`advance_clock` that is waiting, or the next one if none is."""
        ...

    def size(self) -> int:
        """The number of tasks that wait."""
        ...

    def close(self) -> None:
        """Runs what has already fallen due, drops the rest and ends the timer's threads."""
        ...


class TimerTask(abc.ABC):
    """Something to :meth:`run` after ``delay_ms``, unless it is cancelled first.

    A task is itself the link of the bucket that it waits in, so a timer allocates nothing for it. That takes a rule
    about who may touch the links: before its first :meth:`Timer.add` a task belongs to whoever made it, and from then
    on, for good, to that timer, whose lock guards all fields below. A task cannot move to another timer.

    :meth:`cancel` may be called by any thread at any time, also on a task that was never added or has long run.
    """

    __slots__ = ("_next", "_previous", "_timer", "delay_ms", "expiration_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.expiration_ms = -1
        """When it falls due on the timer's clock; set by the timer."""
        self._timer: Timer | None = None
        # Neighbours in a bucket, which are tasks or the bucket itself; None while it does not wait.
        self._next: Any = None
        self._previous: Any = None

    @abc.abstractmethod
    def run(self) -> None:
        """Called on the timer's thread when the delay is over."""

    def cancel(self) -> bool:
        """Takes the task off its timer, which forgets it at once. False if it did not wait (any more).

        A task that has fallen due and is on its way to the executor is no longer waiting: it runs.
        """
        timer = self._timer
        # No timer yet means that this cancel comes before the add, and an add after a cancel is valid.
        return timer is not None and timer.remove(self)

    def __repr__(self) -> str:
        state = "idle" if self._next is None else f"due at {self.expiration_ms}"
        return f"<{type(self).__name__} delay={self.delay_ms}ms {state}>"
