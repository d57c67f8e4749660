"""Passes work from the application to the background thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from barnabas.clients.consumer.internals.background_future import new_future
from barnabas.clients.consumer.internals.durations import Durations
from barnabas.common.clock import SYSTEM_CLOCK, Clock


class ApplicationEvent:
    """A piece of work for the background thread, and the future of its outcome.

    Work that returns a future completes the event when that future is done.
    """

    __slots__ = ("future", "queued_ms", "what", "work")

    def __init__(self, what: str, work: Callable[[int], Any]) -> None:
        self.what = what
        self.work = work
        """Called with the time."""
        self.future: Future[Any] = new_future()
        self.queued_ms = 0

    def process(self, now: int) -> Future[Any] | None:
        """Runs the work; returns the future that it waits for, if any."""
        try:
            outcome = self.work(now)
        except Exception as error:  # noqa: BLE001 - the future has the error
            self.future.set_exception(error)
            return None
        if isinstance(outcome, Future):
            return outcome
        self.future.set_result(outcome)
        return None

    def copy(self, ended: Future[Any]) -> None:
        """Takes over the outcome of the future that the work waited for."""
        error = ended.exception()
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(ended.result())

    def __repr__(self) -> str:
        return f"ApplicationEvent({self.what})"


class ApplicationEventQueue:
    """A queue that any thread fills and the background thread empties."""

    def __init__(self, wake: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._lock = threading.Lock()
        """Guards both fields below. No other lock is taken inside it."""
        self._events: deque[ApplicationEvent] = deque()
        self._closed_by: Exception | None = None
        self._unfinished: set[ApplicationEvent] = set()
        """Events whose work waits for a future. Owned by the background thread."""
        self._wake = wake
        self._now_ms = clock.hi_res_milliseconds
        self.waited = Durations()
        self.processed = Durations()
        self.expired = 0
        """Calls whose wait timed out; counted by the application thread."""

    def submit(self, what: str, work: Callable[[int], Any]) -> Future[Any]:
        """Runs a function on the background thread."""
        event = ApplicationEvent(what, work)
        event.queued_ms = self._now_ms()
        with self._lock:
            refused = self._closed_by
            if refused is None:
                self._events.append(event)
        if refused is not None:
            event.future.set_exception(refused)
        else:
            self._wake()
        return event.future

    def process(self, now: int) -> None:
        if not self._events:
            return
        while self._events:
            with self._lock:
                event = self._events.popleft() if self._events else None
            if event is not None:
                self.waited.add(now - event.queued_ms)
                pending = event.process(now)
                if pending is not None:
                    self._unfinished.add(event)
                    pending.add_done_callback(partial(self._finish, event))
        self.processed.add(self._now_ms() - now)

    def _finish(self, event: ApplicationEvent, ended: Future[Any]) -> None:
        if event in self._unfinished:
            self._unfinished.remove(event)
            event.copy(ended)

    def close(self, error: Exception) -> None:
        """Rejects all events, and fails those that are not finished, because the background thread has ended."""
        with self._lock:
            self._closed_by = error
            left = list(self._events)
            self._events.clear()
        unfinished, self._unfinished = self._unfinished, set()
        for event in (*unfinished, *left):
            event.future.set_exception(error)

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        return f"ApplicationEventQueue({list(self._events)})"
