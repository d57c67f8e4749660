"""Idle connections, ordered by last activity."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar


class Active(Protocol):
    """A connection that records when it was last active."""

    last_active_ns: int


T = TypeVar("T", bound=Active)


class IdleExpiryManager(Generic[T]):
    """Finds the connection that has been idle longest.

    Activity is the common case and must cost next to nothing, so a connection then only stores the time in itself. The
    heap holds times that may be outdated, but only ever too old. So an entry on top whose time is *current* really is
    the connection idle longest; any other is put back with its true time.

    An entry names its connection by a number. A closed connection leaves its entry behind, and with a reference in it,
    hundreds of closed connections would stay in memory and be freed together: 10 ms for the TLS engines of 500.

    It is asked once per poll, returns at most one connection to close, and searches only when the oldest can have
    expired.
    """

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._heap: list[tuple[int, int]] = []
        """Time and number of each connection, and of some that are closed. Numbers increase, so they break ties."""
        self._numbers: dict[T, int] = {}
        self._connections: dict[int, T] = {}
        self._next_number = 0
        self.next_check_ns = now_ns + self._max_idle_ns
        """No connection can have expired before this time."""

    def add(self, connection: T, now_ns: int) -> None:
        connection.last_active_ns = now_ns
        number = self._next_number
        self._next_number += 1
        self._numbers[connection] = number
        self._connections[number] = connection
        heapq.heappush(self._heap, (now_ns, number))

    def remove(self, connection: T) -> None:
        number = self._numbers.pop(connection, None)
        if number is None:
            return
        connections = self._connections
        del connections[number]
        if len(self._heap) > 64 and len(self._heap) > 2 * len(connections):
            # Most of the heap is closed connections: drop them.
            self._heap = [entry for entry in self._heap if entry[1] in connections]
            heapq.heapify(self._heap)

    def oldest(self) -> T | None:
        """Returns the connection that has been idle longest."""
        heap = self._heap
        while heap:
            noted_ns, number = heap[0]
            connection = self._connections.get(number)
            if connection is None:
                heapq.heappop(heap)
            elif connection.last_active_ns != noted_ns:
                heapq.heapreplace(heap, (connection.last_active_ns, number))
            else:
                return connection
        return None

    def poll_expired(self, now_ns: int) -> T | None:
        """Returns the connection idle longest if it has expired; the caller closes it."""
        if now_ns <= self.next_check_ns:
            return None
        oldest = self.oldest()
        self.next_check_ns = (now_ns if oldest is None else oldest.last_active_ns) + self._max_idle_ns
        return oldest if oldest is not None and now_ns > self.next_check_ns else None

    def __len__(self) -> int:
        return len(self._numbers)
