"""Meters: how often something happens."""

from __future__ import annotations

import math
import threading

from barnabas.common.clock import Clock
from barnabas.metrics.units import TimeUnit

TICK_NS = 5_000_000_000


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


class Meter:
    """Counts events, and knows their rate: over all time, and over the last 1, 5 and 15 minutes.

    The rates of the last minutes are moving averages that are brought up to date every five seconds, counted from the
    start of the meter. Yammer has a thread for that. Here whoever marks or reads does it, if five seconds are over:
    first it accounts for the time that has passed, then it adds its own events. The outcome is the same and an idle
    meter costs nothing.

    The unit of the rates is given: a meter of requests counts per second. One that counts nanoseconds per nanosecond
    shows a share of time; see `IdleMeter`.
    """

    __slots__ = (
        "_count",
        "_fifteen_minutes",
        "_five_minutes",
        "_lock",
        "_nanoseconds",
        "_next_tick_ns",
        "_one_minute",
        "_start_ns",
        "_uncounted",
        "event_type",
        "rate_unit",
    )

    def __init__(self, clock: Clock, event_type: str = "events", rate_unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self.event_type = event_type
        self.rate_unit = rate_unit
        self._nanoseconds = clock.nanoseconds
        self._lock = threading.Lock()  # guards everything below; nothing is called with it held
        self._count = 0
        self._uncounted = 0
        self._start_ns = clock.nanoseconds()
        self._next_tick_ns = self._start_ns + TICK_NS
        self._one_minute = _MovingAverage(1)
        self._five_minutes = _MovingAverage(5)
        self._fifteen_minutes = _MovingAverage(15)

    def mark(self, events: int = 1, now_ns: int | None = None) -> None:
        """Counts events; at the time that the caller already knows from the same clock, or now."""
        if now_ns is None:
            now_ns = self._nanoseconds()
        with self._lock:
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            self._count += events
            self._uncounted += events

    @property
    def count(self) -> int:
        return self._count

    @property
    def mean_rate(self) -> float:
        """Over all time since the start; 0 at the start itself."""
        elapsed_ns = self._nanoseconds() - self._start_ns
        return self._count / elapsed_ns * self.rate_unit.nanoseconds if elapsed_ns > 0 else 0.0

    @property
    def one_minute_rate(self) -> float:
        return self._rate(self._one_minute)

    @property
    def five_minute_rate(self) -> float:
        return self._rate(self._five_minutes)

    @property
    def fifteen_minute_rate(self) -> float:
        return self._rate(self._fifteen_minutes)

    def _rate(self, average: _MovingAverage) -> float:
        now_ns = self._nanoseconds()
        with self._lock:
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
            return average.rate * self.rate_unit.nanoseconds

    def _tick(self, now_ns: int) -> None:
        ticks = (now_ns - self._next_tick_ns) // TICK_NS + 1
        self._next_tick_ns += ticks * TICK_NS
        for average in (self._one_minute, self._five_minutes, self._fifteen_minutes):
            average.tick(self._uncounted, ticks - 1)
        self._uncounted = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._count} {self.event_type})"


class IdleMeter(Meter):
    """What share of its time something waits: 0 when it never does, 1 when it does nothing else.

    It counts nanoseconds of waiting per nanosecond. Kafka's broker has such meters under names that end in Percent,
    although the figure is a fraction: RequestHandlerAvgIdlePercent, where 0 means that all handlers are busy all the
    time, and AcceptorBlockedPercent, where 1 means that no connection is accepted.

    Several threads may share a meter, as the request handlers do. Then each reports its share, which is the waiting
    time divided by the number of threads, or the meter of eight idle threads would show 8.
    """

    __slots__ = ()

    def __init__(self, clock: Clock, event_type: str = "percent") -> None:
        super().__init__(clock, event_type, TimeUnit.NANOSECONDS)

    def waited(self, nanoseconds: int, threads: int = 1, now_ns: int | None = None) -> None:
        """One of so many threads has waited for so long."""
        self.mark(nanoseconds // threads, now_ns)
