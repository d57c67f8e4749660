"""Idle connections: the least recently active one first."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar


class Active(Protocol):
    """A connection that notes when it was last active."""

    last_active_ns: int


T = TypeVar("T", bound=Active)


class IdleExpiryManager(Generic[T]):
    """Finds the connection that has been idle longest.

    Being active is the common case and must cost next to nothing, so all a connection does then is to note the time in
    itself. The heap holds times that may be out of date, but only ever too old. So whoever is on top with a time that
    is *not* out of date really is the one that has been idle longest; any other is put back with its true time.

    Asked once per poll, it names at most one connection to close, and looks only when the oldest can have expired.
    """

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._heap: list[tuple[int, int, T]] = []
        self._members: set[T] = set()
        self._order = 0
        self.next_check_ns = now_ns + self._max_idle_ns
        """Until then nobody can have been idle for too long."""

    def add(self, connection: T, now_ns: int) -> None:
        connection.last_active_ns = now_ns
        self._members.add(connection)
        self._push(connection)

    def _push(self, connection: T) -> None:
        self._order += 1  # decides between equal times, and keeps the heap from comparing connections
        heapq.heappush(self._heap, (connection.last_active_ns, self._order, connection))

    def remove(self, connection: T) -> None:
        self._members.discard(connection)
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._members):
            # Most of the heap is connections that are gone: let go of them.
            self._heap = [entry for entry in self._heap if entry[2] in self._members]
            heapq.heapify(self._heap)

    def oldest(self) -> T | None:
        """The connection that has been idle longest."""
        heap = self._heap
        while heap:
            noted_ns, _, connection = heap[0]
            if connection not in self._members:
                heapq.heappop(heap)
            elif connection.last_active_ns != noted_ns:
                heapq.heappop(heap)
                self._push(connection)
            else:
                return connection
        return None

    def poll_expired(self, now_ns: int) -> T | None:
        """The connection that has been idle longest, if that is too long; the caller closes it."""
        if now_ns <= self.next_check_ns:
            return None
        oldest = self.oldest()
        self.next_check_ns = (now_ns if oldest is None else oldest.last_active_ns) + self._max_idle_ns
        return oldest if oldest is not None and now_ns > self.next_check_ns else None

    def __len__(self) -> int:
        return len(self._members)
