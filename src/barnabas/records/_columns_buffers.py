"""The memory of columns in the making."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas.records import _columns_kernel as kernel
from barnabas.records.column_memory import ColumnMemory


class BinaryBuffers:
    """The buffers of a binary column in the making, as Arrow's and as the kernel sees them."""

    __slots__ = ("_is_resizable", "buffers", "nulls", "rows", "sink")

    def __init__(
        self, rows: int, nulls: int, size: int, *, resizable: bool = False, memory: ColumnMemory | None = None
    ) -> None:
        validity = pa.allocate_buffer((rows + 7) >> 3) if nulls else None
        self.rows = rows
        self.nulls = nulls
        data = pa.allocate_buffer(size, resizable=resizable) if memory is None else memory.take(size)
        self._is_resizable = resizable and memory is None
        self.buffers = [validity, pa.allocate_buffer(4 * rows + 4), data]
        self.sink: Any = kernel.BinarySink(*self.buffers)

    def end(self, rows: int, nulls: int, size: int, *, shrink: bool) -> None:
        """This is what there is in them after all; nothing more can be put into them."""
        if self.sink is None:
            return
        # It holds the address of memory that is about to move.
        self.sink = None
        self.rows = rows
        self.nulls = nulls
        if not nulls:
            self.buffers[0] = None
        if self._is_resizable:
            self.buffers[2].resize(size, shrink_to_fit=shrink)
        else:
            self.buffers[2] = self.buffers[2].slice(0, size)

    def array(self, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, self.buffers, self.nulls)


class ViewBuffers:
    """The same of a column of views: these, and the buffers that they refer to.

    A buffer that no view refers to, because all are short or null, is none of the column's: nobody has to hold it.
    """

    __slots__ = ("_referring", "_source", "buffers", "nulls", "rows", "sink")

    def __init__(self, rows: int, nulls: int) -> None:
        validity = pa.allocate_buffer((rows + 7) >> 3) if nulls else None
        self.rows = rows
        self.nulls = nulls
        self.buffers = [validity, pa.allocate_buffer(16 * rows)]
        self.sink = kernel.ViewSink(*self.buffers)
        self._source: Any = None
        self._referring = 0

    def refer_to(self, source: Any, start: int) -> None:
        """What is filled in next lies in this buffer."""
        if source is not self._source:
            self._keep_source()
            self._source = source
        self.sink.place(len(self.buffers) - 2, start)

    def _keep_source(self) -> None:
        if self.sink.referring > self._referring:
            self._referring = self.sink.referring
            self.buffers.append(pa.py_buffer(self._source))

    def array(self, kind: pa.DataType) -> pa.Array:
        self._keep_source()
        return pa.Array.from_buffers(kind, self.rows, self.buffers, self.nulls)
