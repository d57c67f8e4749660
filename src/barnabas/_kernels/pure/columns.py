"""Columns to records sections and back, record by record: the twin of `compiled.columns`.

`columns_encoder` encodes. For decoding, `record_codec.read_records` finds the fields, `Section` checks and counts
them, and the sinks of `columns_sinks` store them.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any, Final

from barnabas._kernels.faults import CHANGED, MIN_RECORD, RECORD_COUNT, TIMESTAMP_UNIT, Fault, section_error
from barnabas._kernels.pure.columns_encoder import BinaryColumn, Buffer, Encoder, HeaderColumn
from barnabas._kernels.pure.columns_sinks import BinarySink, ColumnSink, Places, ViewSink
from barnabas._kernels.pure.murmur2 import partition_for_key
from barnabas._kernels.pure.record_codec import Fields, read_records

__all__ = [
    "READING_ROOM",
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "ViewSink",
    "partitions_for_keys",
    "plain_extent",
    "plain_sections",
    "totals",
]

READING_ROOM: Final = 1 << 18
"""The extra size of a column of values into which batches are read from a file: for the bytes around the values of a
block, and for the part of a record before it."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class Section:
    """One decompressed records section, fully checked, with the sizes of its columns.

    `append_timestamp` is the batch's log-append time, which replaces the timestamps of all its records, or None.
    Records before `start_offset` are checked but neither counted nor filled. Timestamps are multiplied by `scale`.

    `sizes` are the numbers of records, null keys, key bytes, null values, value bytes, headers, bytes of header keys,
    null header values, and bytes of header values.

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
        size = len(self._data)
        if size > _INT32_MAX:
            raise ValueError(f"a records section of {size} bytes is longer than a batch can be")
        self._error = error = partial(section_error, base_offset)
        if not 0 <= count <= size // MIN_RECORD or (size and not count):
            raise error(RECORD_COUNT, count, 0, size)
        self._base_offset, self._scale = base_offset, scale
        self._timestamp_type = int(append_timestamp is not None)
        self._kept: list[Fields] = []
        before, last_delta = -1, min(last_offset_delta, _INT64_MAX - base_offset)
        for index, record in enumerate(read_records(self._data, count, base_timestamp, append_timestamp, error)):
            if abs(record.timestamp * scale) > _INT64_MAX and scale != 1:
                raise error(TIMESTAMP_UNIT, index, record.start, record.timestamp)
            if not before < record.offset_delta <= last_delta:
                raise error(Fault.OFFSET_RANGE, index, record.start, record.offset_delta)
            before = record.offset_delta
            if base_offset + before >= start_offset:
                self._kept.append(record)
        self._keys = [record.key for record in self._kept]
        self._values = [record.value for record in self._kept]
        self._header_keys: Places = [name for record in self._kept for name, _ in record.headers]
        self._header_values = [value for record in self._kept for _, value in record.headers]
        self.sizes = (
            len(self._kept),
            *_sizes(self._keys),
            *_sizes(self._values),
            len(self._header_keys),
            _sizes(self._header_keys)[1],
            *_sizes(self._header_values),
        )

    def fill(self, sink: ColumnSink) -> None:
        """Appends the records to the columns of `sink`."""
        data, kept, row, end = self._data, self._kept, sink.rows, sink.rows + len(self._kept)
        room = end <= sink.max_rows
        if room and sink.offsets is not None:
            sink.offsets[row:end] = [self._base_offset + record.offset_delta for record in kept]
        if room and sink.timestamps is not None:
            sink.timestamps[row:end] = [record.timestamp * self._scale for record in kept]
        if room and sink.timestamp_types is not None:
            sink.timestamp_types[row:end] = self._timestamp_type
        if room and sink.keys is not None:
            room = sink.keys.append(data, self._keys)
        if room and sink.values is not None:
            room = sink.values.append(data, self._values)
        if room and sink.header_offsets is not None:
            assert sink.header_keys is not None
            assert sink.header_values is not None
            ends = accumulate((len(record.headers) for record in kept), initial=sink.header_keys.rows)
            sink.header_offsets[row : end + 1] = list(ends)
            room = sink.header_keys.append(data, self._header_keys)
            room = room and sink.header_values.append(data, self._header_values)
        if not room:
            raise self._error(CHANGED, len(kept), len(data), 0)
        sink.rows = end


def _sizes(fields: Places) -> tuple[int, int]:
    """Returns how many of the fields are null, and how many bytes the others have."""
    return fields.count(None), sum(field.stop - field.start for field in fields if field is not None)


def plain_extent(*_: Any) -> tuple[int, int, bool]:
    """Returns upper bounds for the first call of `plain_sections`, from the batch headers, unchecked.

    The number of records, the bytes of their keys and values together, and whether no other batch follows.
    """
    return 0, 0, False


def plain_sections(_data: memoryview, at: int, *_: Any) -> tuple[list[Section], int, int | None, bool]:
    """Returns the sections of batches from `at` on that only need to be checked and read, up to one that needs more.

    Also returns where that batch begins; the offset after the last section, None if there was none; and whether nothing
    more follows for certain, except perhaps the beginning of a batch.

    The caller handles batches that need more: compressed, a marker, empty, before the start offset, perhaps of an
    aborted transaction, cut off, or invalid. Here that is every batch. The compiled kernel saves some thirty calls per
    batch, which take longer than the records of a small batch do.
    """
    return [], at, None, False


def partitions_for_keys(keys: BinaryColumn, count: int, out: Any) -> None:
    """Writes the partition of each key to `out`, an array of 32-bit numbers; -1 where the key is null."""
    if count < 1:
        raise ValueError(f"a topic of {count} partitions has none to choose from")
    if len(out) != keys.length:
        raise ValueError("one 32-bit number for each key")
    for row, key in enumerate(keys.elements):
        out[row] = -1 if key is None else partition_for_key(key, count)


def totals(sections: list[Section]) -> tuple[int, ...]:
    """Sums the sizes of sections."""
    return tuple(map(sum, zip((0,) * 9, *(section.sizes for section in sections), strict=True)))
