"""Which operations wait for what."""

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

    The lock is never held while an operation's own lock is taken: an operation that is being parked holds its lock and
    asks for this one, so the other way round two threads would wait for each other. Hence the walk in
    :meth:`try_complete` is over a copy.

    Operations are kept by identity, so that a subclass may define equality as it likes.
    """

    __slots__ = ("_lock", "watched")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards both levels of the map below."""
        self.watched: dict[Hashable, dict[int, T]] = {}
        """Keys with at least one operation that watches them. Others may look up a key, without the lock."""

    def watch(self, key: Hashable, operation: T) -> None:
        with self._lock:
            operations = self.watched.get(key)
            if operations is None:
                operations = self.watched[key] = {}
            operations[id(operation)] = operation

    def try_complete(self, key: Hashable) -> int:
        """Gives each operation that watches the key its chance; returns how many took it.

        One that raises does not spoil it for the others, nor for the caller, whose request it is not: it is logged, and
        if it is not complete it goes on waiting.
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

    def cancel(self, key: Hashable) -> list[T]:
        """Lets go of all operations that watch the key; returns those that were still to be completed."""
        with self._lock:
            operations = self.watched.pop(key, {})
        return [operation for operation in operations.values() if not operation.is_completed()]

    def purge(self) -> int:
        """Lets go of the operations that are complete; returns how many entries that were."""
        purged: list[T] = []  # they are freed after the lock is, in case that runs anybody's finalizer
        with self._lock:
            for key, operations in list(self.watched.items()):
                finished = [operation for operation in operations.values() if operation.is_completed()]
                self._drop(key, operations, finished)
                purged += finished
        return len(purged)

    def count(self) -> int:
        """How many entries there are; an operation has one for each of its keys."""
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
        """Under the lock. A key without operations goes, too, or the map would grow with every topic ever waited
        for."""
        for operation in finished:
            operations.pop(id(operation), None)
        if not operations:
            del self.watched[key]
