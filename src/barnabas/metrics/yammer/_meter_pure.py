"""The count of a meter and its moving averages: the twin of the compiled `_meter`, with the same names and behaviour.

**Locks.** Every method is one step as seen from other threads. Here a lock does that; the compiled twin uses the lock
that every object has where Python runs without the interpreter lock, and where there is that lock, runs no Python code
between its first change and its last.
"""

from __future__ import annotations

import math
import threading

TICK_NS = 5_000_000_000
MINUTES = (1, 5, 15)


class _MovingAverage:
    """A rate per nanosecond that follows what happens with a delay of some minutes.

    Every five seconds it moves a part `alpha` of the way towards the rate of those five seconds. It starts from the
    first rate it sees.
    """

    __slots__ = ("alpha", "rate", "started")

    def __init__(self, minutes: int) -> None:
        self.alpha = 1 - math.exp(-5 / 60 / minutes)
        self.rate = 0.0
        self.started = False

    def tick(self, events: int, silent_ticks: int) -> None:
        """Five seconds with so many events have passed, and after them so many times five without any."""
        rate = events / TICK_NS
        if self.started:
            self.rate += self.alpha * (rate - self.rate)
        else:
            self.rate = rate
            self.started = True
        if silent_ticks:
            self.rate *= (1 - self.alpha) ** silent_ticks


class EventCount:
    """How many events there were, and how many per nanosecond over the last 1, 5 and 15 minutes."""

    __slots__ = ("_averages", "_count", "_lock", "_next_tick_ns", "_uncounted")

    def __init__(self, start_ns: int) -> None:
        self._lock = threading.Lock()  # guards everything below; nothing is called with it held
        self._count = 0
        self._uncounted = 0
        self._next_tick_ns = start_ns + TICK_NS
        self._averages = tuple(map(_MovingAverage, MINUTES))

    def add(self, events: int, now_ns: int) -> None:
        with self._lock:
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            self._count += events
            self._uncounted += events

    @property
    def count(self) -> int:
        return self._count

    def rate(self, which: int, now_ns: int) -> float:
        """Of the last 1, 5 or 15 minutes: `which` is the place in `MINUTES`."""
        with self._lock:
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            return self._averages[which].rate

    def _tick(self, now_ns: int) -> None:
        ticks = (now_ns - self._next_tick_ns) // TICK_NS + 1
        self._next_tick_ns += ticks * TICK_NS
        for average in self._averages:
            average.tick(self._uncounted, ticks - 1)
        self._uncounted = 0
