"""Columns to records sections and back: the twin of `compiled.columns`, on numpy and Arrow's own kernels.

A dozen Python steps per record are too slow, so both directions take one step over *all* records at a time.
`columns_encoder` encodes; for decoding, `columns_layout` finds the fields, and `columns_sinks` stores them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barnabas._kernels.faults import CHANGED, MIN_RECORD, RECORD_COUNT, section_error
from barnabas._kernels.pure.columns_encoder import BinaryColumn, Encoder, HeaderColumn
from barnabas._kernels.pure.columns_format import (
    Buffer,
)
from barnabas._kernels.pure.columns_layout import Batch, IrregularError, kept, read_together, walk
from barnabas._kernels.pure.columns_sinks import BinarySink, ColumnSink, ViewSink

__all__ = [
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "ViewSink",
    "plain_extent",
    "plain_sections",
    "totals",
]

SIZES: Final = (
    "records",
    "null_keys",
    "key_bytes",
    "null_values",
    "value_bytes",
    "headers",
    "header_key_bytes",
    "null_header_values",
    "header_value_bytes",
)
"""The attributes of a `Section` that `totals` sums."""
_INT32_MAX: Final = 2**31 - 1


# --- decode ----------------------------------------------------------------------------------------------------------


class Section:
    """One decompressed records section, fully checked, with the sizes of its columns.

    `append_timestamp` is the batch's log-append time, which replaces the timestamps of all its records, or None.
    Records before `start_offset` are checked but neither counted nor filled. Timestamps are multiplied by `scale`.

    For views the caller says where the bytes stay: `source` holds them, and the section begins at `source_start`.
    """

    source: Buffer | None = None
    source_start: int = 0

    def __init__(
        self,
        data: Buffer,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        scale: int,
    ) -> None:
        if scale < 1:
            raise ValueError(f"a timestamp unit of 1/{scale} ms is none")
        # Copy: a read-only view may belong to a buffer that another owner can write.
        self._data = bytes(data)
        self._base_offset = base_offset
        self._append_time = append_timestamp is not None
        if len(self._data) > _INT32_MAX:
            raise ValueError(f"a records section of {len(self._data)} bytes is longer than a batch can be")
        if not 0 <= count <= len(self._data) // MIN_RECORD:
            raise section_error(RECORD_COUNT, base_offset, count, 0, len(self._data))
        batch = Batch(count, base_offset, last_offset_delta, base_timestamp, append_timestamp, scale)
        try:
            layout = read_together(self._data, batch) if count else walk(self._data, batch)
        except IrregularError:
            layout = walk(self._data, batch)
        self._layout = layout = kept(layout, start_offset)
        self.records = len(layout.offsets)
        self.null_keys = int((layout.key_lengths < 0).sum())
        self.key_bytes = int(layout.key_lengths.sum()) + self.null_keys
        self.null_values = int((layout.value_lengths < 0).sum())
        self.value_bytes = int(layout.value_lengths.sum()) + self.null_values
        self.headers = len(layout.header_keys)
        self.header_key_bytes = int(layout.header_key_lengths.sum())
        self.null_header_values = int((layout.header_value_lengths < 0).sum())
        self.header_value_bytes = int(layout.header_value_lengths.sum()) + self.null_header_values

    def fill(self, sink: ColumnSink) -> None:
        """Appends the records to the columns of `sink`."""
        layout, data, row, end = self._layout, self._data, sink.rows, sink.rows + self.records
        room = end <= sink.max_rows
        if room and sink.offsets is not None:
            sink.offsets[row:end] = layout.offsets
        if room and sink.timestamps is not None:
            sink.timestamps[row:end] = layout.timestamps
        if room and sink.timestamp_types is not None:
            sink.timestamp_types[row:end] = int(self._append_time)
        if room and sink.keys is not None:
            room = sink.keys.append(data, layout.keys, layout.key_lengths)
        if room and sink.values is not None:
            room = sink.values.append(data, layout.values, layout.value_lengths)
        if room and sink.header_offsets is not None:
            assert sink.header_keys is not None
            assert sink.header_values is not None
            sink.header_offsets[row + 1 : end + 1] = sink.header_keys.rows + np.cumsum(layout.header_counts)
            room = sink.header_keys.append(data, layout.header_keys, layout.header_key_lengths)
            room = room and sink.header_values.append(data, layout.header_values, layout.header_value_lengths)
        if not room:
            raise section_error(CHANGED, self._base_offset, self.records, len(data), 0)
        sink.rows = end


# --- batches ----------------------------------------------------------------------------------------------------------


def plain_extent(
    data: memoryview,  # noqa: ARG001 - as the others: for the compiled one
    start_offset: int,  # noqa: ARG001
    may_be_transactional: bool,  # noqa: ARG001
) -> tuple[int, int, bool]:
    """Returns upper bounds for the first call of `plain_sections`, from the batch headers, unchecked.

    The number of records, the bytes of their keys and values together, and whether no other batch follows.
    """
    return 0, 0, False


def plain_sections(
    data: memoryview,  # noqa: ARG001 - as the others: for the compiled one
    at: int,
    start_offset: int,  # noqa: ARG001
    scale: int,  # noqa: ARG001
    check_crc: bool,  # noqa: ARG001
    may_be_transactional: bool,  # noqa: ARG001
    source: Buffer | None,  # noqa: ARG001
    has_views: bool,  # noqa: ARG001
    sink: ColumnSink | None,  # noqa: ARG001
    fd: int = -1,  # noqa: ARG001
    position: int = 0,  # noqa: ARG001
) -> tuple[list[Section], int, int | None, bool]:
    """Returns the sections of batches from `at` on that only need to be checked and read, up to one that needs more.

    Also returns where that batch begins; the offset after the last section, None if there was none; and whether nothing
    more follows for certain, except perhaps the beginning of a batch.

    The caller handles batches that need more: compressed, a marker, empty, before `start_offset`, perhaps of an aborted
    transaction, cut off, or invalid. Here that is every batch. The compiled kernel saves some thirty calls per batch,
    which take longer than the records of a small batch do.

    The sink, if given, gets all columns but the headers of all sections found. If there was no room for keys or values,
    their sink is no longer `open`. If the batch after the last section was invalid, no sink is. No data is lost:
    `Section.fill` can do the same.

    With the descriptor of an open file, `data` holds only the headers of the batches. The rest is read from the file,
    where `data` begins at this position, into the memory of the sink's column of values, which must have room for
    `columns_format.READING_ROOM` more bytes. `Section.fill` must then wait until the file has been read into `data`.
    """
    return [], at, None, False


def totals(sections: list[Section]) -> tuple[int, ...]:
    """Sums the sizes of sections, in the order of `SIZES`."""
    return tuple(sum([getattr(section, name) for section in sections]) for name in SIZES)
