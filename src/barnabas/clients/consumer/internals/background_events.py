"""Passes errors and callbacks from the background thread to the application's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from barnabas.clients.consumer.internals.durations import Durations
from barnabas.common.clock import SYSTEM_CLOCK, Clock


class BackgroundEvent:
    """An event that the application thread handles in poll(), or while it waits in another call."""

    __slots__ = ("queued_ms",)

    queued_ms: int
    """Since when it is queued."""


class ErrorEvent(BackgroundEvent):
    """Raised by the next poll()."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"ErrorEvent({self.error!r})"


class CallbackEvent(BackgroundEvent):
    """A function to be called on the application's thread, such as the callback of `commit_async`."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __repr__(self) -> str:
        return f"CallbackEvent({self.call!r})"


class BackgroundEventQueue:
    """A queue that the background thread fills and the application's thread empties.

    An application that waits for data must handle an event at once, or a rebalance would wait for the end of its poll:
    so each `put` also ends such a wait.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now_ms = clock.hi_res_milliseconds
        self.waited = Durations()
        self.processed = Durations()
        """The application's thread adds to both."""
        self._lock = threading.Lock()
        """Guards `_events`. No other lock is taken inside it."""
        self._events: deque[Any] = deque()
        self.on_put: Callable[[], None] = lambda: None
        """Wakes the application; set by the consumer."""

    def put(self, event: BackgroundEvent) -> None:
        event.queued_ms = self._now_ms()
        with self._lock:
            self._events.append(event)
        self.on_put()

    def put_quietly(self, event: BackgroundEvent) -> None:
        """Puts an event back that was drained too early, without a wake-up."""
        with self._lock:
            self._events.append(event)

    def put_back(self, events: Iterable[BackgroundEvent]) -> None:
        """Puts drained events back to the front of the queue, in their order."""
        with self._lock:
            self._events.extendleft(reversed(list(events)))

    def drain(self) -> list[Any]:
        """Returns all events, oldest first."""
        if not self._events:
            return []
        with self._lock:
            events = list(self._events)
            self._events.clear()
        now = self._now_ms()
        for event in events:
            self.waited.add(now - event.queued_ms)
        return events

    def take(self) -> Any | None:
        """Removes and returns the oldest event; None if there is none."""
        with self._lock:
            return self._events.popleft() if self._events else None

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        return f"BackgroundEventQueue({list(self._events)})"
