"""Memory pools: limit the request data held at once.

``queued.max.requests`` bounds how many requests wait, not how large they are. ``queued.max.request.bytes`` bounds their
bytes: the buffer of each request is reserved from a pool before its payload is read, and released when the request has
been handled. An exhausted pool makes the connection stop reading, and TCP makes its peer stop sending.
"""

from __future__ import annotations

import threading
from typing import Protocol


class MemoryPool(Protocol):
    """Grants the right to hold bytes; Python's allocator provides the bytes themselves."""

    bounded: bool

    def try_reserve(self, size: int) -> bool:
        """Whether this many bytes may be held. Never waits."""
        ...

    def release(self, size: int) -> None: ...

    @property
    def available(self) -> int: ...

    @property
    def is_out_of_memory(self) -> bool: ...

    @property
    def size(self) -> int: ...


class UnboundedMemoryPool:
    """Has no limit but the machine's: Kafka's default."""

    __slots__ = ()

    bounded = False
    available = 2**63 - 1
    size = 2**63 - 1
    is_out_of_memory = False

    def try_reserve(self, size: int) -> bool:  # noqa: ARG002 - part of the interface
        return True

    def release(self, size: int) -> None: ...


UNBOUNDED = UnboundedMemoryPool()


class SimpleMemoryPool:
    """A fixed number of bytes.

    Not strict, like Kafka's in the socket server: a reservation is granted while any byte is left, and may overdraw. So
    the bound is the pool's size plus one request per network thread, and small requests cannot starve a large one.
    """

    bounded = True

    def __init__(self, size: int, max_single: int, *, strict: bool = False) -> None:
        if size <= 0 or not 0 < max_single <= size:
            raise ValueError(f"a pool of {size} bytes cannot serve single requests of up to {max_single}")
        self._size = size
        self._max_single = max_single
        self._strict = strict
        self._lock = threading.Lock()
        """Guards the two counters below. Nothing else is locked inside it."""
        self._available = size
        self._denied = 0

    def try_reserve(self, size: int) -> bool:
        if not 0 <= size <= self._max_single:
            raise ValueError(f"{size} bytes asked of a pool that gives out up to {self._max_single} at once")
        with self._lock:
            if self._available >= (size if self._strict else 1):
                self._available -= size
                return True
            self._denied += 1
            return False

    def release(self, size: int) -> None:
        with self._lock:
            self._available += size
            if self._available > self._size:
                self._available -= size
                raise ValueError(f"{size} bytes given back to a pool that has not handed them out")

    @property
    def available(self) -> int:
        return self._available

    @property
    def denied(self) -> int:
        """How many reservations were denied."""
        return self._denied

    @property
    def size(self) -> int:
        return self._size

    @property
    def is_out_of_memory(self) -> bool:
        return self._available <= 0
