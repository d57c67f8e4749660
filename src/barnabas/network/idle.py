"""Idle connections: the least recently active one first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class IdleExpiryManager(Generic[T]):
    """Keeps connections in the order of their last activity.

    Asked once per poll, it names at most one connection to close. It looks only when the oldest can have expired, so
    that a broker with ten thousand busy connections does no work for this at all.
    """

    def __init__(self, max_idle_ms: int, now_ns: int) -> None:
        self._max_idle_ns = max_idle_ms * 1_000_000
        self._order: OrderedDict[T, int] = OrderedDict()
        self._next_check_ns = now_ns + self._max_idle_ns

    def update(self, connection: T, now_ns: int) -> None:
        order = self._order
        order[connection] = now_ns
        order.move_to_end(connection)

    def remove(self, connection: T) -> None:
        self._order.pop(connection, None)

    def poll_expired(self, now_ns: int) -> T | None:
        """The connection that has been idle longest, if that is too long; the caller closes it."""
        if now_ns <= self._next_check_ns:
            return None
        if not self._order:
            self._next_check_ns = now_ns + self._max_idle_ns
            return None
        oldest, active_ns = next(iter(self._order.items()))
        self._next_check_ns = active_ns + self._max_idle_ns
        return oldest if now_ns > self._next_check_ns else None

    def oldest(self) -> T | None:
        return next(iter(self._order), None)

    def __len__(self) -> int:
        return len(self._order)
