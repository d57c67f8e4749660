"""The memory of batches that are over, for the ones to come."""

from __future__ import annotations

from typing import Final

LEAST_BYTES: Final = 128 * 1024
"""What is smaller comes out of memory that the allocator keeps anyway."""


class SpareBuffers:
    """Keeps the buffers of large batches that were acknowledged, and gives them to the next batches.

    Memory that a process has not had before is cleared by the system, page by page, at the first touch. For a batch of
    a megabyte that takes several times as long as writing the records into it, and an allocator gives blocks of that
    size back to the system as soon as they are free. Whoever sends one table after the other would pay for that each
    time.

    The buffer that came back last goes out first: it is the one that is most likely in the processor's cache still.
    What is kept here is no more than ``limit`` bytes; together with what is in use, that is bounded by half as much
    again as ``buffer.memory``. Any thread may call any method: a list appends, and pops, in one step.
    """

    __slots__ = ("_buffers", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """A buffer to be made ``size`` bytes long and overwritten; None if there is none that is about as large."""
        if size >= LEAST_BYTES:
            try:
                buffer = self._buffers.pop()
            except IndexError:
                return None
            if len(buffer) <= 2 * size:  # a much larger one would be cut down
                return buffer
        return None

    def give(self, buffer: bytearray) -> None:
        """Nobody reads, or writes, these bytes any more."""
        size = len(buffer)
        if size >= LEAST_BYTES and (len(self._buffers) + 1) * size <= self._limit:
            self._buffers.append(buffer)

    def clear(self) -> None:
        self._limit = 0
        self._buffers.clear()

    def __len__(self) -> int:
        return len(self._buffers)
