"""Columns under construction: the buffers of Arrow arrays, filled record by record."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barnabas._kernels.pure.columns_encoder import Buffer

Places = list[slice | None]
"""Where the bytes of each field are in a records section; None for null."""

_INT32_MAX: Final = 2**31 - 1
_INLINE: Final = 12
"""The bytes that a view can hold, besides the length."""
_SHORT_VIEW: Final = struct.Struct("=i12s")
_LONG_VIEW: Final = struct.Struct("=i4sii")


class _Sink:
    """The rows of one column, and which of them are null. Without a bitmap, none can be."""

    def __init__(self, validity: Buffer | None, max_rows: int) -> None:
        self.rows = 0
        self.max_rows = max_rows
        self._validity = None if validity is None else np.frombuffer(validity, np.uint8)
        if self._validity is not None:
            if len(self._validity) * 8 < max_rows:
                raise ValueError("the validity bitmap is shorter than its column")
            self._validity[:] = 0

    def is_full(self) -> bool:
        return self.rows == self.max_rows

    def add_rows(self, fields: Places) -> bool:
        """Adds a row for each field; False if there is no room."""
        if len(fields) > self.max_rows - self.rows or (self._validity is None and None in fields):
            return False
        for row, field in enumerate(fields, self.rows):
            if self._validity is not None and field is not None:
                self._validity[row >> 3] |= 1 << (row & 7)
        self.rows += len(fields)
        return True


class BinarySink(_Sink):
    """The buffers of one binary column under construction: validity (None if no null is coming), offsets, bytes.

    Data copied before it is counted may turn out not to fit. Then the sink is no longer `open`, and its content is
    invalid. That happens to the compiled one only.
    """

    def __init__(self, validity: Buffer | None, offsets: Buffer, data: Buffer) -> None:
        self.used = 0
        self.open = True
        self._offsets = np.frombuffer(offsets, np.int32)
        content: Any = np.frombuffer(data, np.uint8)
        self._data = memoryview(content)
        if not len(self._offsets):
            raise ValueError("the offsets of n rows take n + 1 aligned 32-bit numbers")
        super().__init__(validity, len(self._offsets) - 1)
        self._offsets[0] = 0

    def append(self, section: bytes, fields: Places) -> bool:
        """Adds a row for each field; False if there is no room."""
        content = [b"" if field is None else section[field] for field in fields]
        row, end = self.rows, self.used + sum(map(len, content))
        if end > min(len(self._data), _INT32_MAX) or not self.add_rows(fields):
            return False
        self._data[self.used : end] = b"".join(content)
        self._offsets[row : self.rows + 1] = list(accumulate(map(len, content), initial=self.used))
        self.used = end
        return True


class ViewSink(_Sink):
    """One column of views under construction: validity (None if no null is coming), and sixteen bytes per row.

    A view is the length and, up to twelve bytes, the bytes themselves; for longer values the first four bytes, the
    index of the buffer, and the position in it. Rows refer to the buffer that `place` named last, by its index among
    the column's buffers. `referring` counts these rows: short values and nulls need no buffer.
    """

    def __init__(self, validity: Buffer | None, views: Buffer) -> None:
        self.referring = 0
        self._views: Any = np.frombuffer(views, np.uint8)
        self._buffer = self._start = 0
        super().__init__(validity, len(self._views) // 16)

    def place(self, buffer: int, start: int) -> None:
        """Sets the position of the next section: byte `start` of the column's buffer of that index."""
        if buffer < 0 or not 0 <= start <= _INT32_MAX:
            raise ValueError(f"no view reaches byte {start} of buffer {buffer}")
        self._buffer, self._start = buffer, start

    def append(self, section: bytes, fields: Places) -> bool:
        """Adds a row for each field; False if there is no room."""
        row = self.rows
        if self._start + len(section) > _INT32_MAX or not self.add_rows(fields):
            return False
        for at, field in enumerate(fields, row):
            content = b"" if field is None else section[field]
            if field is not None and len(content) > _INLINE:
                position = self._start + field.start
                _LONG_VIEW.pack_into(self._views, at * 16, len(content), content[:4], self._buffer, position)
                self.referring += 1
            else:
                _SHORT_VIEW.pack_into(self._views, at * 16, len(content), content)
        return True


class ColumnSink:
    """The columns being filled, None for those not requested. Sections append to it one after the other.

    It is `open` until `plain_sections` finds an invalid batch, of which it may hold a part.
    """

    def __init__(
        self,
        rows: int,
        keys: BinarySink | ViewSink | None,
        values: BinarySink | ViewSink | None,
        offsets: Buffer | None,
        timestamps: Buffer | None,
        timestamp_types: Buffer | None,
        header_offsets: Buffer | None,
        header_keys: BinarySink | None,
        header_values: BinarySink | None,
    ) -> None:
        self.rows = 0
        self.open = True
        self.max_rows = rows
        self.keys, self.values = keys, values
        self.header_keys, self.header_values = header_keys, header_values
        self.offsets = self._column(offsets, np.int64, rows)
        self.timestamps = self._column(timestamps, np.int64, rows)
        self.timestamp_types = self._column(timestamp_types, np.int32, rows)
        self.header_offsets = self._column(header_offsets, np.int32, rows + 1)
        if self.header_offsets is not None:
            if header_keys is None or header_values is None:
                raise ValueError("header lists need their keys and values")
            self.header_offsets[0] = 0

    def is_full(self) -> bool:
        """Whether all expected rows are filled."""
        columns = (self.keys, self.values, self.header_keys, self.header_values)
        return self.rows == self.max_rows and all(column is None or column.is_full() for column in columns)

    @staticmethod
    def _column(buffer: Buffer | None, kind: type[np.generic], rows: int) -> npt.NDArray[Any] | None:
        if buffer is None:
            return None
        column = np.frombuffer(buffer, kind)
        if len(column) < rows:
            raise ValueError(f"no room for {rows} aligned numbers of {column.itemsize} bytes")
        return column
