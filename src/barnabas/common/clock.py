"""Clocks: the only source of time.

Everything that measures, waits or times out is given a :class:`Clock`. In a running broker that is
:class:`SystemClock`; in a test it is :class:`MockClock`, whose time stands still until the test advances it. So a test
of a ten-minute idle timeout takes no time, and gives the same result on a loaded machine as on an idle one.

Two kinds of time are kept apart, as in Kafka's ``Time``:

* :meth:`Clock.milliseconds` is the wall clock, for timestamps that people or other machines see. It can jump.
* :meth:`Clock.nanoseconds` is monotonic, and only the difference of two readings has a meaning.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """The interface of clocks."""

    def milliseconds(self) -> int:
        """Returns milliseconds since 1970."""
        ...

    def nanoseconds(self) -> int:
        """Returns monotonic nanoseconds, for intervals."""
        ...

    def hi_res_milliseconds(self) -> int:
        """Returns the monotonic time in milliseconds, for timers and timeouts."""
        ...

    def sleep(self, milliseconds: float) -> None: ...

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Waits on a condition whose lock the caller holds, for at most this time on this clock.

        It works like ``condition.wait``.

        Returns whether it may have been notified. As with any condition, the caller must check its predicate and the
        time again.
        """
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def milliseconds(self) -> int:
        return time.time_ns() // 1_000_000

    nanoseconds = staticmethod(time.perf_counter_ns)
    """The function itself without a wrapper: the broker reads this clock five times for every request."""

    def hi_res_milliseconds(self) -> int:
        return time.perf_counter_ns() // 1_000_000

    def sleep(self, milliseconds: float) -> None:
        if milliseconds > 0:
            time.sleep(milliseconds / 1000)

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        return condition.wait(None if timeout_ms is None else max(timeout_ms, 0) / 1000)


SYSTEM_CLOCK = SystemClock()


class MockClock:
    """A clock that a test advances.

    >>> clock = MockClock(milliseconds=1_000)
    >>> clock.advance(250)
    >>> clock.milliseconds()
    1250

    A thread that sleeps or waits on this clock blocks until :meth:`advance` has moved time past its deadline. A test
    can wait for that with :meth:`await_waiters`, without a real sleep. ``auto_tick_ms`` advances the clock on every
    reading, for code that loops until a deadline.
    """

    def __init__(self, milliseconds: int = 1_700_000_000_000, auto_tick_ms: float = 0) -> None:
        self._changed = threading.Condition()
        """Guards all fields below. It may be taken while another condition's lock is held, never the other way
        round."""
        self._wall_ns = milliseconds * 1_000_000
        self._steady_ns = 0
        self._auto_tick_ns = int(auto_tick_ms * 1_000_000)
        self._waiting: dict[threading.Condition, int] = {}
        self._sleepers = 0

    def milliseconds(self) -> int:
        with self._changed:
            self._tick()
            return self._wall_ns // 1_000_000

    def nanoseconds(self) -> int:
        with self._changed:
            self._tick()
            return self._steady_ns

    def hi_res_milliseconds(self) -> int:
        return self.nanoseconds() // 1_000_000

    def _tick(self) -> None:
        self._wall_ns += self._auto_tick_ns
        self._steady_ns += self._auto_tick_ns

    def advance(self, milliseconds: float) -> None:
        """Advances time and wakes up the waiting threads."""
        step = int(milliseconds * 1_000_000)
        with self._changed:
            self._wall_ns += step
            self._steady_ns += step
            self._changed.notify_all()
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()

    def set_milliseconds(self, milliseconds: int) -> None:
        """Sets the wall clock, possibly back; the monotonic clock does not change."""
        with self._changed:
            self._wall_ns = milliseconds * 1_000_000

    def sleep(self, milliseconds: float) -> None:
        with self._changed:
            deadline = self._steady_ns + int(milliseconds * 1_000_000)
            self._sleepers += 1
            self._changed.notify_all()
            try:
                while self._steady_ns < deadline:
                    self._changed.wait()
            finally:
                self._sleepers -= 1

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        with self._changed:
            deadline = None if timeout_ms is None else self._steady_ns + int(timeout_ms * 1_000_000)
            if deadline is not None and deadline <= self._steady_ns:
                return False
            self._waiting[condition] = self._waiting.get(condition, 0) + 1
            self._changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._changed:
                self._waiting[condition] -= 1
                if not self._waiting[condition]:
                    del self._waiting[condition]
        with self._changed:
            return deadline is None or self._steady_ns < deadline

    def await_waiters(self, count: int = 1, timeout_s: float = 10) -> bool:
        """Blocks, in real time, until this number of threads sleep or wait on this clock. For tests."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sleepers + sum(self._waiting.values()) >= count, timeout_s)
