"""Meters: rates of events."""

from __future__ import annotations

from barnabas._kernels import metrics
from barnabas.common.clock import Clock
from barnabas.metrics.units import TimeUnit

EventCount = metrics.EventCount


class Meter:
    """Counts events, and computes their rate since the start and over the last 1, 5 and 15 minutes.

    The rates of the last minutes are moving averages that are updated every five seconds, counted from the start of the
    meter. Yammer has a thread for that. Here `mark` and the getters do it when five seconds have passed: first they
    account for the elapsed time, then `mark` adds its events. The result is the same, and an idle meter costs nothing.

    Rates have a unit: a meter of requests counts per second. One that counts nanoseconds per nanosecond is a fraction
    of time; see `IdleMeter`.
    """

    __slots__ = ("_nanoseconds", "_start_ns", "event_type", "events", "rate_unit")

    def __init__(self, clock: Clock, event_type: str = "events", rate_unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self.event_type = event_type
        self.rate_unit = rate_unit
        self._nanoseconds = clock.nanoseconds
        self._start_ns = clock.nanoseconds()
        self.events = EventCount(self._start_ns)
        """The counter. A caller that has a number of events and the time may add to it directly."""

    def mark(self, events: int = 1, now_ns: int | None = None) -> None:
        """Counts events, at a given time of the same clock or now."""
        self.events.add(events, self._nanoseconds() if now_ns is None else now_ns)

    @property
    def _count(self) -> int:
        """The current count; `count` may do more in a subclass."""
        return self.events.count

    @property
    def count(self) -> int:
        return self._count

    @property
    def mean_rate(self) -> float:
        """The rate since the start; 0 at the start itself."""
        elapsed_ns = self._nanoseconds() - self._start_ns
        return self._count / elapsed_ns * self.rate_unit.nanoseconds if elapsed_ns > 0 else 0.0

    @property
    def one_minute_rate(self) -> float:
        return self._rate(0)

    @property
    def five_minute_rate(self) -> float:
        return self._rate(1)

    @property
    def fifteen_minute_rate(self) -> float:
        return self._rate(2)

    def _rate(self, which: int) -> float:
        return self.events.rate(which, self._nanoseconds()) * self.rate_unit.nanoseconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._count} {self.event_type})"


class IdleMeter(Meter):
    """The fraction of time that something waits: 0 if never, 1 if always.

    It counts nanoseconds of waiting per nanosecond. Kafka's broker has such meters with names that end in Percent,
    although they are fractions: RequestHandlerAvgIdlePercent, where 0 means that all handlers are always busy, and
    AcceptorBlockedPercent, where 1 means that no connection is accepted.

    Several threads may share a meter, like the request handlers. Then each reports its share: its waiting time divided
    by the number of threads. Otherwise the meter of eight idle threads would show 8.
    """

    __slots__ = ()

    def __init__(self, clock: Clock, event_type: str = "percent") -> None:
        super().__init__(clock, event_type, TimeUnit.NANOSECONDS)

    def waited(self, nanoseconds: int, threads: int = 1, now_ns: int | None = None) -> None:
        """Records that one of this number of threads has waited."""
        self.mark(nanoseconds // threads, now_ns)


__all__ = ["EventCount", "IdleMeter", "Meter"]
