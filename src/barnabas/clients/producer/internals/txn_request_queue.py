"""The transaction manager's queue of requests."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.common.clock import Clock

if TYPE_CHECKING:
    from threading import RLock

    from barnabas.clients.producer.internals.transaction_requests import TxnRequestHandler


class TxnRequestQueue:
    """Requests by priority, then by arrival. One at a time is in flight."""

    __slots__ = ("_clock", "_lock", "_order", "_waiting", "in_flight_correlation_id")

    def __init__(self, lock: RLock, clock: Clock) -> None:
        self._lock = lock
        """The transaction manager's lock, which guards the queue."""
        self._clock = clock
        self._waiting: list[tuple[int, int, TxnRequestHandler]] = []
        self._order = itertools.count()
        self.in_flight_correlation_id: int | None = None
        """The correlation id of the request in flight."""

    def push(self, handler: TxnRequestHandler) -> None:
        with self._lock:
            heapq.heappush(self._waiting, (handler.priority, next(self._order), handler))

    def retry(self, handler: TxnRequestHandler) -> None:
        """Puts a request back, to be sent again after its back-off."""
        with self._lock:
            handler.not_before_ms = self._clock.hi_res_milliseconds() + handler.retry_backoff_ms
            self.push(handler)

    def first(self) -> TxnRequestHandler | None:
        return self._waiting[0][2] if self._waiting else None

    def pop(self) -> TxnRequestHandler:
        return heapq.heappop(self._waiting)[2]

    def clear(self) -> None:
        self._waiting.clear()

    def __iter__(self) -> Iterator[TxnRequestHandler]:
        return iter([handler for _, _, handler in self._waiting])

    def __len__(self) -> int:
        return len(self._waiting)
