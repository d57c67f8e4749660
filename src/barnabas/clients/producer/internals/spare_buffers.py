"""The memory of batches that are over, for the ones to come."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.network.transport.local.shared_memory import LEAST_BYTES, SUPPORTED, SharedMemory

log = logging.getLogger(__name__)

_ROOMY: Final = 2
"""A buffer that is more than so many times as large as wanted would be cut down."""


class SpareBuffers:
    """Keeps the buffers of large batches that were acknowledged, and gives them to the next batches.

    Memory that a process has not had before is cleared by the system, page by page, at the first touch. For a batch of
    a megabyte that takes several times as long as writing the records into it, and an allocator gives blocks of that
    size back to the system as soon as they are free. Whoever sends one table after the other would pay for that each
    time.

    As soon as there is a broker that can look at it, this is memory that it *can* look at (`SharedMemory`): a batch in
    there need not go through a socket. Such a buffer is a memoryview of the size that was asked for, and has to come
    back, or its place is lost; others are bytearrays.

    The buffer that came back last goes out first: it is the one that is most likely in the processor's cache still.
    What is kept here is no more than ``limit`` bytes; together with what is in use, that is bounded by half as much
    again as ``buffer.memory``. Any thread may call any method: a list appends, and pops, in one step.
    """

    __slots__ = ("_buffers", "_largest", "_limit", "_memory", "_slots", "_wanted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: list[bytearray] = []
        self._memory: SharedMemory | None = None
        self._wanted: Callable[[], bool] | None = None
        self._largest = self._slots = 0

    def share(self, wanted: Callable[[], bool], largest: int, total: int) -> None:
        """Takes memory that is shared as soon as it is wanted: ``total`` bytes, in buffers of up to ``largest``."""
        if SUPPORTED and LEAST_BYTES <= largest <= total:
            self._wanted, self._largest = wanted, largest
            self._slots = total // largest + 1  # the one that is written while all others wait

    def take(self, size: int) -> bytearray | memoryview | None:
        """A buffer to be overwritten: a memoryview of this size, or a bytearray to be made ``size`` bytes long; None if
        there is none that is about as large."""
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
        except OSError as error:  # a limit, perhaps: sockets will do
            log.info("No memory to share with brokers on this machine: %s", error)
            self._memory = self._wanted = None
        return self._memory

    def give(self, buffer: bytearray | memoryview) -> None:
        """Nobody reads, or writes, these bytes any more."""
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
