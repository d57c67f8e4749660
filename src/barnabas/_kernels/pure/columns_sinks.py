"""Columns under construction, filled with numpy and Arrow's own kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas._kernels.pure.columns_format import INLINE, Buffer, Flags, Numbers

_INT32_MAX: Final = 2**31 - 1


class BinarySink:
    """The buffers of one binary column under construction: validity (None if no null is coming), offsets, bytes.

    Data copied before it is counted may turn out not to fit. Then the sink is no longer `open`, and its content is
    invalid. That happens to the compiled one only.
    """

    def __init__(self, validity: Buffer | None, offsets: Buffer, data: Buffer) -> None:
        self.rows = self.used = 0
        self.open = True
        self._offsets = np.frombuffer(offsets, np.int32)
        self._data = np.frombuffer(data, np.uint8)
        self._validity = None if validity is None else np.frombuffer(validity, np.uint8)
        if not len(self._offsets):
            raise ValueError("the offsets of n rows take n + 1 aligned 32-bit numbers")
        self._offsets[0] = 0
        if self._validity is not None:
            if len(self._validity) * 8 < len(self._offsets) - 1:
                raise ValueError("the validity bitmap is shorter than its column")
            self._validity[:] = 0

    def is_full(self) -> bool:
        return self.rows == len(self._offsets) - 1

    def append(self, section: bytes, starts: Numbers, lengths: Numbers) -> bool:
        """Adds a row for each start and length (-1 for null); False if there is no room."""
        count = len(starts)
        null = lengths < 0
        lengths = np.maximum(lengths, 0)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if count else 0
        row, used = self.rows, self.used
        if row + count >= len(self._offsets) or used + total > min(len(self._data), _INT32_MAX):
            return False
        if self._validity is None:
            if null.any():
                return False
        elif count:
            _add_validity(self._validity, row, ~null)
        self._offsets[row + 1 : row + count + 1] = used + ends
        if total:
            self._data[used : used + total] = np.frombuffer(_gather(section, starts, lengths), np.uint8)[:total]
        self.rows, self.used = row + count, used + total
        return True


def _gather(section: bytes, starts: Numbers, lengths: Numbers) -> pa.Buffer:
    """Concatenates the bytes of all fields.

    Seen as an Arrow array, the section is fields and gaps in turn: field 0, gap, field 1, gap, ... Taking every second
    element leaves the gaps out.
    """
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = starts + lengths
    whole = [None, pa.py_buffer(bounds), pa.py_buffer(section)]
    fields_and_gaps = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, whole)
    return fields_and_gaps.take(pa.array(np.arange(0, len(bounds), 2))).buffers()[2]


class ViewSink:
    """One column of views under construction: validity (None if no null is coming), and sixteen bytes per row.

    A view is the length and, up to twelve bytes, the bytes themselves; for longer values the first four bytes, the
    index of the buffer, and the position in it. Rows refer to the buffer that `place` named last, by its index among
    the column's buffers. `referring` counts these rows: short values and nulls need no buffer.
    """

    def __init__(self, validity: Buffer | None, views: Buffer) -> None:
        self.rows = self.referring = 0
        octets = np.frombuffer(views, np.uint8)
        self._views = octets[: len(octets) // 16 * 16].reshape(-1, 16)
        self._validity = None if validity is None else np.frombuffer(validity, np.uint8)
        self._buffer = self._start = 0
        if self._validity is not None:
            if len(self._validity) * 8 < len(self._views):
                raise ValueError("the validity bitmap is shorter than its column")
            self._validity[:] = 0

    def is_full(self) -> bool:
        return self.rows == len(self._views)

    def place(self, buffer: int, start: int) -> None:
        """Sets the position of the next section: byte `start` of the column's buffer of that index."""
        if buffer < 0 or not 0 <= start <= _INT32_MAX:
            raise ValueError(f"no view reaches byte {start} of buffer {buffer}")
        self._buffer, self._start = buffer, start

    def append(self, section: bytes, starts: Numbers, lengths: Numbers) -> bool:
        """Adds a row for each start and length (-1 for null); False if there is no room."""
        count, row = len(starts), self.rows
        null = lengths < 0
        if row + count > len(self._views) or self._start + len(section) > _INT32_MAX:
            return False
        if self._validity is None:
            if null.any():
                return False
        elif count:
            _add_validity(self._validity, row, ~null)
        data = np.frombuffer(section, np.uint8)
        lengths = np.maximum(lengths, 0)
        views = np.zeros((count, 16), np.uint8)
        numbers = views.view(np.int32)
        numbers[:, 0] = lengths
        long = np.flatnonzero(lengths > INLINE)
        views[long, 4:8] = data[starts[long, None] + np.arange(4)]
        numbers[long, 2] = self._buffer
        numbers[long, 3] = self._start + starts[long]
        for byte in range(INLINE):
            some = np.flatnonzero((lengths > byte) & (lengths <= INLINE))
            views[some, 4 + byte] = data[starts[some] + byte]
        self._views[row : row + count] = views
        self.rows += count
        self.referring += len(long)
        return True


def _add_validity(validity: npt.NDArray[np.uint8], row: int, valid: Flags) -> None:
    """Sets the validity bits of rows from `row` on."""
    packed = np.packbits(np.concatenate((np.zeros(row & 7, np.bool_), valid)), bitorder="little")
    validity[row >> 3 : (row >> 3) + len(packed)] |= packed


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
