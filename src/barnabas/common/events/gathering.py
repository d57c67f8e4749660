"""Collects one value per key, then calls back once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Gathering(Generic[K, V]):
    """Waits for a value of each key, and then calls back with all of them.

    Values may arrive on any thread, and before all of them have been requested. So the caller also takes part, and
    calls :meth:`release` after the last request:

    >>> results = []
    >>> gathering = Gathering(["a", "b"], results.append)
    >>> gathering.add("b", 2)
    >>> gathering.release()
    >>> gathering.add("a", 1)
    >>> results
    [{'a': 1, 'b': 2}]
    """

    __slots__ = ("_callback", "_keys", "_lock", "_released", "_values")

    def __init__(self, keys: Iterable[K], callback: Callable[[dict[K, V]], object]) -> None:
        self._keys = tuple(keys)
        self._callback = callback
        self._lock = threading.Lock()
        """Guards the fields below; the callback is called once, without it."""
        self._values: dict[K, V] = {}
        self._released = False

    def add(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._values:
                raise ValueError(f"{key!r} already has a value")
            self._values[key] = value
            done = self._released and len(self._values) == len(self._keys)
        if done:
            self._finish()

    def release(self) -> None:
        with self._lock:
            self._released = True
            done = len(self._values) == len(self._keys)
        if done:
            self._finish()

    def _finish(self) -> None:
        self._callback({key: self._values[key] for key in self._keys})
