"""The buffers of columns that are being filled."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas._kernels import columns as kernel
from barnabas.records.columns.memory import ColumnMemory, ColumnPieces


def allocated(size: int) -> tuple[pa.Buffer, pa.Buffer]:
    """Allocates a separate buffer, in the same form as `ColumnPieces.cut` returns a slice."""
    buffer = pa.allocate_buffer(size)
    return buffer, buffer


class BinaryBuffers:
    """The buffers of a binary column that is being filled, as Arrow buffers and as a kernel sink."""

    __slots__ = ("_is_resizable", "buffers", "nulls", "rows", "sink")

    def __init__(
        self,
        rows: int,
        nulls: int,
        size: int,
        *,
        resizable: bool = False,
        memory: ColumnMemory | None = None,
        pieces: ColumnPieces | None = None,
    ) -> None:
        """Takes the data buffer from ``memory`` if given, else from ``pieces``; the other buffers from ``pieces``."""
        cut = allocated if pieces is None else pieces.cut
        validity, validity_memory = cut((rows + 7) >> 3) if nulls else (None, None)
        offsets, offsets_memory = cut(4 * rows + 4)
        if memory is not None:
            data = data_memory = memory.take(size)
        elif pieces is not None:
            data, data_memory = pieces.cut(size)
        else:
            data = data_memory = pa.allocate_buffer(size, resizable=resizable)
        self.rows = rows
        self.nulls = nulls
        self._is_resizable = resizable and memory is None and pieces is None
        self.buffers = [validity, offsets, data]
        self.sink: Any = kernel.BinarySink(validity_memory, offsets_memory, data_memory)

    def end(self, rows: int, nulls: int, size: int, *, shrink: bool) -> None:
        """Sets the final sizes; no more rows can be added."""
        if self.sink is None:
            return
        # The sink holds the address of memory that is about to move.
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
    """The buffers of a column of views: the views, and the buffers that they refer to.

    A buffer that no view refers to, because all values are short or null, is not kept in the column.
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
        """Sets the buffer that the next views refer to."""
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
