"""Lists of the operations that watch each key."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

from barnabas.common.log_safety import LimitedLogger
from barnabas.server.purgatory.delayed_operation import DelayedOperation

log = LimitedLogger(logging.getLogger(__name__))

T = TypeVar("T", bound=DelayedOperation)


class WatcherList(Generic[T]):
    """One shard of a purgatory: the keys that hash to it, each with the operations that watch it, oldest first.

    The lock is never held while an operation's lock is taken: an operation that is being parked holds its lock and
    takes this one, so the opposite order could deadlock. Therefore :meth:`try_complete` iterates over a copy.

    Operations are stored by identity, so that a subclass may define its own equality.
    """

    __slots__ = ("_lock", "watched")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards both levels of the map below."""
        self.watched: dict[Hashable, dict[int, T]] = {}
        """The keys with at least one operation. A key may be looked up without the lock."""

    def watch(self, key: Hashable, operation: T) -> None:
        with self._lock:
            operations = self.watched.get(key)
            if operations is None:
                operations = self.watched[key] = {}
            operations[id(operation)] = operation

    def try_complete(self, key: Hashable) -> int:
        """Lets each operation that watches the key try to complete; returns how many did.

        If an operation raises, the error is logged and the others still run. The caller, which handles another request,
        does not see the error. The operation keeps waiting unless it is complete.
        """
        with self._lock:
            operations = self.watched.get(key)
            if operations is None:
                return 0
            candidates = list(operations.values())
        completed = 0
        finished: list[T] = []
        for operation in candidates:
            try:
                if not operation.is_completed() and operation.safe_try_complete():
                    completed += 1
            except Exception:
                log.exception("%r failed when an event for %r let it try to complete", operation, key)
            if operation.is_completed():
                finished.append(operation)
        if finished:
            self._unwatch(key, finished)
        return completed

    def purge(self) -> int:
        """Removes the completed operations; returns the number of entries removed."""
        purged: list[T] = []  # keeps them alive until the lock is released, because freeing may run a finalizer
        with self._lock:
            for key, operations in list(self.watched.items()):
                finished = [operation for operation in operations.values() if operation.is_completed()]
                self._drop(key, operations, finished)
                purged += finished
        return len(purged)

    def count(self) -> int:
        """Returns the number of entries; an operation has one for each of its keys."""
        with self._lock:
            return sum(map(len, self.watched.values()))

    def watched_keys(self) -> list[Hashable]:
        with self._lock:
            return list(self.watched)

    def _unwatch(self, key: Hashable, finished: list[T]) -> None:
        with self._lock:
            operations = self.watched.get(key)
            if operations is not None:
                self._drop(key, operations, finished)

    def _drop(self, key: Hashable, operations: dict[int, T], finished: list[T]) -> None:
        """Removes operations, and the key if it has none left: otherwise the map would grow with every topic ever
        watched. Requires the lock."""
        for operation in finished:
            operations.pop(id(operation), None)
        if not operations:
            del self.watched[key]
