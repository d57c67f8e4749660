"""Where the loader's work is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

Event = Callable[[], None]


class EventExecutor(Protocol):
    """Runs events one at a time, in the order in which they were given; usually the thread of an event queue.

    ``execute`` may be called from any thread and returns at once. It must not run the event itself: an event that
    gives rise to another one has to come to its end before that one starts.
    """

    def execute(self, event: Event) -> None: ...


class SteppedExecutor:
    """An executor that does nothing until it is told to: for tests, and for simulations of a whole cluster.

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
        """Runs the next event; False if there is none."""
        if not self._events:
            return False
        self._events.popleft()()
        return True

    def run_all(self) -> int:
        """Runs events, also those that come up meanwhile, until none is left. Returns how many there were."""
        count = 0
        while self.run_once():
            count += 1
        return count
