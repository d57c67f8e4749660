"""Throttled connections, and the queue in which they wait (Q05)."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading

from barnabas.common.clock import Clock
from barnabas.common.shutdownable_thread import ShutdownableThread
from barnabas.metrics.sensor import Sensor
from barnabas.server.throttling import ThrottleCallback

logger = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000
POLL_MS = 1_000


class ThrottledChannel:
    """A connection that is muted until a point in time.

    The constructor mutes the connection, before it is in any queue, so that it cannot be unmuted first.
    """

    __slots__ = ("_callback", "end_time_ns")

    def __init__(self, clock: Clock, throttle_time_ms: int, callback: ThrottleCallback) -> None:
        self._callback = callback
        self.end_time_ns = clock.nanoseconds() + throttle_time_ms * _NS_PER_MS
        callback.start_throttling()

    def notify_throttling_done(self) -> None:
        """Unmutes the connection; must be called once."""
        self._callback.end_throttling()

    def __repr__(self) -> str:
        return f"ThrottledChannel(until {self.end_time_ns})"


class DelayQueue:
    """Returns throttled channels when their throttle time ends, the earliest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        """Guards both fields below. Only the lock of a mock clock is taken inside it."""
        self._heap: list[tuple[int, int, ThrottledChannel]] = []
        self._closed = False
        # Breaks ties in insertion order, so that channels themselves are never compared.
        self._order = itertools.count()

    def add(self, channel: ThrottledChannel) -> None:
        with self._changed:
            heapq.heappush(self._heap, (channel.end_time_ns, next(self._order), channel))
            if self._heap[0][2] is channel:
                self._changed.notify()

    def poll(self, timeout_ms: float) -> ThrottledChannel | None:
        """Returns the next channel whose throttle time has ended; waits for at most that time, and not after close."""
        deadline = self._clock.nanoseconds() + int(timeout_ms * _NS_PER_MS)
        with self._changed:
            while True:
                now = self._clock.nanoseconds()
                until = deadline
                if self._heap:
                    first = self._heap[0][0]
                    if first <= now:
                        return heapq.heappop(self._heap)[2]
                    until = min(first, deadline)
                if now >= deadline or self._closed:
                    return None
                self._clock.wait(self._changed, (until - now) / _NS_PER_MS)

    def close(self) -> None:
        """Wakes up a waiting poll."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._heap)


class ThrottledChannelReaper(ShutdownableThread):
    """Unmutes the channels of a delay queue when their throttle time ends.

    It is the only consumer of the queue, so each channel is unmuted exactly once. At shutdown the remaining channels
    stay muted, because their connections are closed anyway.
    """

    def __init__(self, name: str, queue: DelayQueue, queue_size: Sensor, clock: Clock) -> None:
        super().__init__(name, daemon=True, clock=clock)
        self._queue = queue
        self._queue_size = queue_size

    def do_work(self) -> None:
        channel = self._queue.poll(POLL_MS)
        if channel is not None:
            self._queue_size.record(-1)
            try:
                channel.notify_throttling_done()
            except Exception:  # an error of one connection must not leave the others muted
                logger.exception("Cannot unmute %r", channel)

    def on_shutdown_initiated(self) -> None:
        self._queue.close()
