"""A timer for tests, without threads."""

from __future__ import annotations

import heapq
import threading

from barnabas.common.clock import MockClock
from barnabas.server.timer.timer_task import TimerClosedError, TimerTask


class MockTimer:
    """Runs tasks on the thread that advances its clock, in the order of their expiration.

    >>> class Note(TimerTask):
    ...     def run(self) -> None:
    ...         print("due at", timer.clock.hi_res_milliseconds())
    >>> timer = MockTimer()
    >>> timer.add(Note(30))
    >>> timer.add(Note(10))
    >>> timer.advance_clock(20)
    due at 10
    True
    >>> timer.size()
    1

    Unlike a :class:`~barnabas.server.timer.SystemTimer` it advances time itself: :meth:`advance_clock` moves the clock
    from task to task and then to the end of the timeout. Each task sees the time it was due at, and a task that another
    task adds runs in the same call if it falls due in it. A purgatory with this timer needs ``reaper_enabled=False``: a
    reaper would keep advancing the clock.

    It deliberately uses a heap and shares nothing with the timing wheel, so that tests can compare the two.
    """

    def __init__(self, clock: MockClock | None = None) -> None:
        self.clock = MockClock() if clock is None else clock
        self._lock = threading.Lock()
        """Guards the fields below; not held while a task runs."""
        self._order: list[tuple[int, int]] = []  # (expiration, ticket), with tickets of cancelled tasks left in
        self._waiting: dict[int, TimerTask] = {}
        self._tickets: dict[int, int] = {}  # id of a waiting task -> its ticket
        self._last_ticket = 0
        self._closed = False

    def add(self, task: TimerTask) -> None:
        expiration_ms = task.delay_ms + self.clock.hi_res_milliseconds()
        with self._lock:
            if self._closed:
                raise TimerClosedError(f"a {type(task).__name__} is added to a timer that is closed")
            if task._timer is not None and task._timer is not self:
                raise ValueError(f"this {type(task).__name__} belongs to another timer")
            self._forget(task)
            task._timer = self
            task.expiration_ms = expiration_ms
            if task.delay_ms > 0:
                self._last_ticket += 1
                self._waiting[self._last_ticket] = task
                self._tickets[id(task)] = self._last_ticket
                heapq.heappush(self._order, (expiration_ms, self._last_ticket))
                return
        task.run()

    def remove(self, task: TimerTask) -> bool:
        with self._lock:
            return self._forget(task)

    def advance_clock(self, timeout_ms: int) -> bool:
        """Advances the clock by ``timeout_ms`` and runs the tasks that fall due; returns whether any did."""
        end_ms = self.clock.hi_res_milliseconds() + timeout_ms
        any_due = False
        while (task := self._take_next(end_ms)) is not None:
            any_due = True
            self._move_clock_to(task.expiration_ms)
            task.run()
        self._move_clock_to(end_ms)
        return any_due

    def wake(self) -> None:
        """Does nothing: :meth:`advance_clock` never blocks."""

    def size(self) -> int:
        with self._lock:
            return len(self._waiting)

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _take_next(self, end_ms: int) -> TimerTask | None:
        with self._lock:
            while self._order and self._order[0][0] <= end_ms and not self._closed:
                task = self._waiting.pop(heapq.heappop(self._order)[1], None)
                if task is not None:
                    del self._tickets[id(task)]
                    return task
            return None

    def _move_clock_to(self, time_ms: int) -> None:
        remaining = time_ms - self.clock.hi_res_milliseconds()
        if remaining > 0:
            self.clock.advance(remaining)

    def _forget(self, task: TimerTask) -> bool:
        ticket = self._tickets.pop(id(task), None)
        return ticket is not None and self._waiting.pop(ticket, None) is not None
