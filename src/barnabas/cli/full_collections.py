"""Full garbage collections of a broker's process, at times when they are short.

A full collection looks at every tracked object and stops all threads meanwhile: 30 ms for 200,000 objects. Python
starts one after a number of allocations, and so in the middle of the large request that has made these allocations and
still holds them. So the interpreter's own full collections are switched off (`SELDOM`), and the main thread starts them
instead: after as many allocations as Python would, but not while a large request is in flight.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from barnabas.common.clock import Clock

SELDOM: Final = (700, 3, 1 << 30)
"""Thresholds for `gc.set_threshold`: Python's own for new objects, and no full collection.

A collection of the middle generation stops all threads for as long as its objects take. When 1,000 clients connect,
most new objects are those of connections, and stay: after 10 young collections, as in Python, it took 2 to 5 ms.
"""
AFTER: Final = 1000
"""How many collections of the middle generation come before a full one: about two million allocations."""
POSTPONED_NS: Final = 60_000_000_000
"""The longest time for which large requests postpone a full collection."""
REST: Final = 1_000
"""After a collection, no other one runs for so many times its duration: at most a thousandth of the time is spent. With
a hundredth, one collection of 100 ms in 10 s was the p99 of every client."""


class FullCollections:
    """Runs a full collection when it is due and nothing large is in flight."""

    def __init__(
        self,
        is_busy: Callable[[], bool],
        clock: Clock,
        *,
        pending: Callable[[], int] = lambda: gc.get_count()[2],
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._is_busy = is_busy
        self._now_ns = clock.nanoseconds
        self._pending = pending
        self._collect = collect
        self._due_since: int | None = None
        self._not_before = 0

    def run_if_due(self) -> None:
        if self._pending() < AFTER:
            return
        now = self._now_ns()
        if self._due_since is None:
            self._due_since = now
        if now < self._not_before or (self._is_busy() and now - self._due_since < POSTPONED_NS):
            return
        self._due_since = None
        self._collect()
        end = self._now_ns()
        self._not_before = end + REST * (end - now)
