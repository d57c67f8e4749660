"""Executors of the loader's events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

Event = Callable[[], None]


class EventExecutor(Protocol):
    """Runs events one at a time, in order; usually the thread of an event queue.

    ``execute`` may be called from any thread and returns at once. It must not run the event itself: an event that adds
    another one has to end before that one starts.
    """

    def execute(self, event: Event) -> None: ...


class SteppedExecutor:
    """Runs events only on request, for tests and simulations of a whole cluster.

    >>> executor = SteppedExecutor()
    >>> executor.execute(lambda: print("first"))
    >>> executor.execute(lambda: print("second"))
    >>> executor.run_once()
    first
    True
    >>> executor.run_all()
    second
    1
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def execute(self, event: Event) -> None:
        self._events.append(event)

    def run_once(self) -> bool:
        """Runs the next event; returns False if there is none."""
        if not self._events:
            return False
        self._events.popleft()()
        return True

    def run_all(self) -> int:
        """Runs events, including new ones, until none is left. Returns their number."""
        count = 0
        while self.run_once():
            count += 1
        return count
