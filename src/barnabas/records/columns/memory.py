"""Reusable memory for the columns of successive tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from barnabas.common.memory_reuse import is_free

MOST_SPARES: Final = 6
"""One table is being filled, the application reads the previous one, and may still hold the one before that; each of
them may have two parts."""
ROOMY: Final = 8
"""A buffer larger than this multiple of the needed size is not reused: a table keeps its whole buffer alive."""
LEAST_BYTES: Final = 1 << 20
"""Smaller buffers come from the allocator."""
LEAST_BYTES_BESIDE: Final = 1 << 16
LINE: Final = 64
"""The alignment of columns that Arrow recommends."""


class ColumnMemory:
    """Keeps the buffers of the last few large columns and reuses those that are no longer referenced.

    An allocator returns memory of this size to the system, which clears every page of it at the next use. For a table
    of long values that takes as long as copying them.

    A buffer is in use while an Arrow buffer refers to it: its ``bytearray`` then refuses to be resized. Any thread may
    call `take`.
    """

    __slots__ = ("_allocate", "_capacity", "_least", "_lock", "_spares")

    def __init__(
        self,
        allocate: Callable[[int], bytearray] = bytearray,
        capacity: Callable[[int], int] = lambda size: size,
        least: int = LEAST_BYTES,
    ) -> None:
        """``capacity`` maps a requested size of at least ``least`` bytes to the size of the buffer."""
        self._allocate = allocate
        self._least = least
        self._capacity = capacity
        self._lock = threading.Lock()
        self._spares: list[bytearray] = []

    def take(self, size: int) -> pa.Buffer:
        """Returns a buffer of at least `size` bytes with undefined contents."""
        if size < self._least:
            return pa.allocate_buffer(size)
        with self._lock:
            spares = self._spares
            for index in range(len(spares) - 1, -1, -1):
                if size <= len(spares[index]) <= ROOMY * size and is_free(spares[index]):
                    spares.append(spares.pop(index))
                    return pa.py_buffer(spares[-1])
            memory = self._allocate(max(self._capacity(size), size))
            spares.append(memory)
            del spares[:-MOST_SPARES]
            return pa.py_buffer(memory)


class TableMemory:
    """The memory of one consumer's tables: ``values``, and the other columns ``beside`` them, a few bytes per row.

    They are separate because keeping one column keeps everything in the same buffer.
    """

    __slots__ = ("beside", "values")

    def __init__(
        self, allocate: Callable[[int], bytearray] = bytearray, capacity: Callable[[int], int] = lambda size: size
    ) -> None:
        self.values = ColumnMemory(allocate, capacity)
        self.beside = ColumnMemory(allocate, lambda size: 2 * size, LEAST_BYTES_BESIDE)


class ColumnPieces:
    """A buffer that is divided into columns."""

    __slots__ = ("_buffer", "_used", "_view")

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer).cast("B")
        self._used = -buffer.address % LINE

    @staticmethod
    def room_for(sizes: Iterable[int]) -> int:
        """Returns the required size of the buffer."""
        return sum(size + LINE for size in sizes) + LINE

    def cut(self, size: int) -> tuple[pa.Buffer, memoryview]:
        """Returns the next `size` bytes as a read-only Arrow buffer and as a writable view."""
        start = self._used
        self._used += size + -size % LINE
        return self._buffer.slice(start, size), self._view[start : start + size]
