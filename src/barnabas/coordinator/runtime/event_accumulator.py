"""Queues events by partition."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock

K_co = TypeVar("K_co", bound=Hashable, covariant=True)


class KeyedEvent(Protocol[K_co]):
    """An event for one key."""

    @property
    def key(self) -> K_co: ...


K = TypeVar("K", bound=Hashable)
E = TypeVar("E", bound=KeyedEvent[Hashable])


class EventAccumulator(Generic[K, E]):
    """Queues by key, and guarantees that at most one event per key is in progress.

    ::

        p0:  e1 e4 e5        taken by thread A: e4 has to wait until A is done with e1
        p1:  e2              free: thread B gets it
        p2:  e3 e6           free

    A coordinator needs no other locking. The thread that runs an event of a partition owns the partition, and its state
    machine is single-threaded code. After an event its key goes to the end of the queue, so a busy partition does not
    starve the others.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        """Guards everything below. Nothing but the clock is called while it is held."""
        self._queues: dict[K, deque[E]] = {}
        """Never contains an empty queue."""
        self._available: deque[K] = deque()
        """Keys with events, none of which is in progress."""
        self._in_process: set[K] = set()
        self._size = 0
        self._closed = False

    def add_last(self, event: E) -> None:
        """Adds an event after all others of its key. Raises `RuntimeError` after `close`."""
        self._add(event, first=False)

    def add_first(self, event: E) -> None:
        """Adds an event before all others of its key."""
        self._add(event, first=True)

    def _add(self, event: E, *, first: bool) -> None:
        key: K = event.key  # type: ignore[assignment]
        with self._changed:
            if self._closed:
                raise RuntimeError("the event accumulator is closed")
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                if key not in self._in_process:
                    self._available.append(key)
                    self._changed.notify()
            if first:
                queue.appendleft(event)
            else:
                queue.append(event)
            self._size += 1

    def try_begin(self, key: K) -> bool:
        """Takes a free key without waiting events, for an event that the caller runs at once.

        `done` must release it. Returns False if other events are waiting or in progress.
        """
        with self._changed:
            if self._closed or key in self._in_process or key in self._queues:
                return False
            self._in_process.add(key)
            return True

    def poll(self, timeout_ms: float | None = 0) -> E | None:
        """Returns the next event of any free key, and takes the key until `done`; None on a timeout.

        Without a timeout it waits for an event, or for `close`.
        """
        deadline = None if timeout_ms is None else self._clock.nanoseconds() + int(timeout_ms * 1_000_000)
        with self._changed:
            while not self._available:
                if self._closed:
                    return None
                remaining: float | None = None
                if deadline is not None:
                    remaining = (deadline - self._clock.nanoseconds()) / 1_000_000
                    if remaining <= 0:
                        return None
                self._clock.wait(self._changed, remaining)
            key = self._available.popleft()
            queue = self._queues[key]
            event = queue.popleft()
            if not queue:
                del self._queues[key]
            self._in_process.add(key)
            self._size -= 1
            return event

    def done(self, key: K) -> None:
        """Releases the key of an event that has ended."""
        with self._changed:
            self._in_process.discard(key)
            if key in self._queues:
                self._available.append(key)
                self._changed.notify()
            elif self._closed:
                self._changed.notify_all()

    def has_waiting(self, key: K) -> bool:
        """Returns whether another event of this key waits."""
        with self._changed:
            return key in self._queues

    def __len__(self) -> int:
        """The number of waiting events."""
        with self._changed:
            return self._size

    def close(self) -> list[E]:
        """Ends all waiting; returns the events that will not run, in order for each key."""
        with self._changed:
            self._closed = True
            left = [event for queue in self._queues.values() for event in queue]
            self._queues.clear()
            self._available.clear()
            self._size = 0
            self._changed.notify_all()
            return left

    def await_idle(self, timeout_ms: float) -> bool:
        """Waits after `close` until no event is in progress on any thread; returns False on a timeout."""
        deadline = self._clock.nanoseconds() + int(timeout_ms * 1_000_000)
        with self._changed:
            while self._in_process:
                remaining = (deadline - self._clock.nanoseconds()) / 1_000_000
                if remaining <= 0:
                    return False
                self._clock.wait(self._changed, remaining)
            return True
