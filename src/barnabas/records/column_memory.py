"""Memory for the long values of tables that come one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa

MOST_SPARES: Final = 3
"""A table is being filled, its application looks at the one before, and may not have let go of the one before that."""
ROOMY: Final = 4
"""A buffer that is more than so many times as large as wanted is not used: who keeps the table keeps all of it."""
LEAST_BYTES: Final = 1 << 20
"""What is smaller is in good hands at the allocator."""


class ColumnMemory:
    """The buffers of the last few large columns, to be used again as soon as nobody has them any more.

    An allocator gives memory of this size back to the system, which clears every page of it when it is touched again.
    For a table of long values that takes as long as to copy them.

    Somebody still has a buffer as long as there is an Arrow buffer of it: a ``bytearray`` cannot change its size then,
    and says so. Any thread may call `take`.
    """

    __slots__ = ("_allocate", "_capacity", "_lock", "_spares")

    def __init__(
        self, allocate: Callable[[int], bytearray] = bytearray, capacity: Callable[[int], int] = lambda size: size
    ) -> None:
        """``capacity`` says how large a buffer for so many bytes is to be."""
        self._allocate = allocate
        self._capacity = capacity
        self._lock = threading.Lock()
        self._spares: list[bytearray] = []

    def take(self, size: int) -> pa.Buffer:
        """A buffer of at least so many bytes, which are whatever was there before."""
        if size < LEAST_BYTES:
            return pa.allocate_buffer(size)
        with self._lock:
            spares = self._spares
            for index in range(len(spares) - 1, -1, -1):
                if size <= len(spares[index]) <= ROOMY * size and _is_free(spares[index]):
                    spares.append(spares.pop(index))
                    return pa.py_buffer(spares[-1])
            memory = self._allocate(max(self._capacity(size), size))
            spares.append(memory)
            del spares[:-MOST_SPARES]
            return pa.py_buffer(memory)


def _is_free(memory: bytearray) -> bool:
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
