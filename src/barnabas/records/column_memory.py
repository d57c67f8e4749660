"""Memory for the columns of tables that come one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from barnabas.common.memory_reuse import is_free

MOST_SPARES: Final = 6
"""A table is being filled, its application looks at the one before, and may not have let go of the one before that; and
each of them may have two parts."""
ROOMY: Final = 8
"""A buffer that is more than so many times as large as wanted is not used: who keeps the table keeps all of it."""
LEAST_BYTES: Final = 1 << 20
"""What is smaller is in good hands at the allocator."""
LEAST_BYTES_BESIDE: Final = 1 << 16
LINE: Final = 64
"""Arrow wants columns to begin at multiples of this."""


class ColumnMemory:
    """The buffers of the last few large columns, to be used again as soon as nobody has them any more.

    An allocator gives memory of this size back to the system, which clears every page of it when it is touched again.
    For a table of long values that takes as long as to copy them.

    Somebody still has a buffer as long as there is an Arrow buffer of it: a ``bytearray`` cannot change its size then,
    and says so. Any thread may call `take`.
    """

    __slots__ = ("_allocate", "_capacity", "_least", "_lock", "_spares")

    def __init__(
        self,
        allocate: Callable[[int], bytearray] = bytearray,
        capacity: Callable[[int], int] = lambda size: size,
        least: int = LEAST_BYTES,
    ) -> None:
        """``capacity`` says how large a buffer for so many bytes is to be, if they are as many as ``least``."""
        self._allocate = allocate
        self._least = least
        self._capacity = capacity
        self._lock = threading.Lock()
        self._spares: list[bytearray] = []

    def take(self, size: int) -> pa.Buffer:
        """A buffer of at least so many bytes, which are whatever was there before."""
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
    """The memory of one consumer's tables: ``values``, and all that is ``beside`` them, which is a few bytes for each.

    Both are apart because who keeps one of the columns keeps all that is in the same buffer.
    """

    __slots__ = ("beside", "values")

    def __init__(
        self, allocate: Callable[[int], bytearray] = bytearray, capacity: Callable[[int], int] = lambda size: size
    ) -> None:
        self.values = ColumnMemory(allocate, capacity)
        self.beside = ColumnMemory(allocate, lambda size: 2 * size, LEAST_BYTES_BESIDE)


class ColumnPieces:
    """A buffer that is cut into columns, one after the other."""

    __slots__ = ("_buffer", "_used", "_view")

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer).cast("B")
        self._used = -buffer.address % LINE

    @staticmethod
    def room_for(sizes: Iterable[int]) -> int:
        """How large the buffer has to be."""
        return sum(size + LINE for size in sizes) + LINE

    def cut(self, size: int) -> tuple[pa.Buffer, memoryview]:
        """The next so many bytes, for Arrow, which may not write there, and for who fills them."""
        start = self._used
        self._used += size + -size % LINE
        return self._buffer.slice(start, size), self._view[start : start + size]
