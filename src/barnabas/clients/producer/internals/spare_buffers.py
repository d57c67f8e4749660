"""Reuses the memory of completed batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.network.transport.local.shared_memory import LEAST_BYTES, SUPPORTED, SharedMemory

log = logging.getLogger(__name__)

_ROOMY: Final = 2
"""A buffer more than this many times as large as requested would be cut down."""


class SpareBuffers:
    """Keeps the buffers of large acknowledged batches for the next batches.

    The system clears memory that is new to a process, page by page, at the first touch. For a batch of a megabyte that
    takes several times as long as writing the records, and an allocator returns blocks of that size to the system as
    soon as they are free. A thread that sends table after table would pay for that each time.

    As soon as a broker can map it, this is shared memory (`SharedMemory`): a batch in it need not go through a socket.
    Such a buffer is a memoryview of the requested size, and must be returned, or its place is lost; others are
    bytearrays.

    The last returned buffer is reused first, because it is most likely still in the processor's cache. At most
    ``limit`` bytes are kept; together with the memory in use, that is bounded by one and a half times
    ``buffer.memory``. All methods are thread-safe: a list appends, and pops, in one step.
    """

    __slots__ = ("_buffers", "_largest", "_limit", "_memory", "_slots", "_wanted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: list[bytearray] = []
        self._memory: SharedMemory | None = None
        self._wanted: Callable[[], bool] | None = None
        self._largest = self._slots = 0

    def share(self, wanted: Callable[[], bool], largest: int, total: int) -> None:
        """Allocates shared memory on first use: ``total`` bytes, in buffers of up to ``largest``."""
        if SUPPORTED and LEAST_BYTES <= largest <= total:
            self._wanted, self._largest = wanted, largest
            self._slots = total // largest + 1  # one is written while all others wait

    def take(self, size: int) -> bytearray | memoryview | None:
        """Returns a buffer to overwrite: a memoryview of this size, or a bytearray to be resized to ``size``; None if
        there is none of about this size."""
        if size < LEAST_BYTES:
            return None
        memory = self._memory
        if self._wanted is not None and (memory is None or memory.retired) and self._wanted():
            memory = self._renew()
        if memory is not None:
            shared = memory.take(size)
            if shared is not None:
                return shared
        try:
            buffer = self._buffers.pop()
        except IndexError:
            return None
        return buffer if len(buffer) <= _ROOMY * size else None

    def _renew(self) -> SharedMemory | None:
        try:
            self._memory = SharedMemory(self._largest, self._slots)
        except OSError as error:  # perhaps a limit: use sockets
            log.info("No memory to share with brokers on this machine: %s", error)
            self._memory = self._wanted = None
        return self._memory

    def give(self, buffer: bytearray | memoryview) -> None:
        """Returns a buffer that is no longer read or written."""
        if isinstance(buffer, memoryview):
            memory = self._memory
            if memory is not None:
                memory.give(buffer)
            return
        size = len(buffer)
        if size >= LEAST_BYTES and (len(self._buffers) + 1) * size <= self._limit:
            self._buffers.append(buffer)

    def clear(self) -> None:
        self._limit = 0
        self._buffers.clear()
        self._wanted = None
        if self._memory is not None:
            self._memory.retire()
            self._memory = None

    def __len__(self) -> int:
        return len(self._buffers)
