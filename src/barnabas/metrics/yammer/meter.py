"""Meters: how often something happens."""

from __future__ import annotations

from barnabas._kernels import metrics
from barnabas.common.clock import Clock
from barnabas.metrics.units import TimeUnit

EventCount = metrics.EventCount


class Meter:
    """Counts events, and knows their rate: over all time, and over the last 1, 5 and 15 minutes.

    The rates of the last minutes are moving averages that are brought up to date every five seconds, counted from the
    start of the meter. Yammer has a thread for that. Here whoever marks or reads does it, if five seconds are over:
    first it accounts for the time that has passed, then it adds its own events. The outcome is the same and an idle
    meter costs nothing.

    The unit of the rates is given: a meter of requests counts per second. One that counts nanoseconds per nanosecond
    shows a share of time; see `IdleMeter`.
    """

    __slots__ = ("_nanoseconds", "_start_ns", "event_type", "events", "rate_unit")

    def __init__(self, clock: Clock, event_type: str = "events", rate_unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self.event_type = event_type
        self.rate_unit = rate_unit
        self._nanoseconds = clock.nanoseconds
        self._start_ns = clock.nanoseconds()
        self.events = EventCount(self._start_ns)
        """What is counted. Whoever has a number of events and the time at hand may add to it directly."""

    def mark(self, events: int = 1, now_ns: int | None = None) -> None:
        """Counts events; at the time that the caller already knows from the same clock, or now."""
        self.events.add(events, self._nanoseconds() if now_ns is None else now_ns)

    @property
    def _count(self) -> int:
        """What has been counted so far: `count`, for a meter that does more than to tell that."""
        return self.events.count

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


__all__ = ["EventCount", "IdleMeter", "Meter"]
