"""Columns to records sections and back, record by record: the twin of `compiled.columns`.

`columns_encoder` encodes. For decoding, `Section` finds the fields, and the sinks of `columns_sinks` store them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from barnabas._kernels.faults import CHANGED, MIN_RECORD, RECORD_COUNT, TIMESTAMP_UNIT, Fault, section_error
from barnabas._kernels.pure.columns_encoder import BinaryColumn, Buffer, Encoder, HeaderColumn
from barnabas._kernels.pure.columns_sinks import BinarySink, ColumnSink, Fields, ViewSink
from barnabas._kernels.pure.murmur2 import partition_for_key

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
_MIN_HEADER: Final = 2
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)


class _Record(NamedTuple):
    """One record of a section: its fields are positions and lengths."""

    delta: int
    timestamp: int
    key: tuple[int, int]
    value: tuple[int, int]
    header_keys: Fields
    header_values: Fields


class _DamageError(Exception):
    """A fault in a record, found before the record's number is known: the fault and its detail."""

    def __init__(self, fault: int, detail: int) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail


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
        self._base_offset, self._base_timestamp, self._scale = base_offset, base_timestamp, scale
        self._append_timestamp = append_timestamp
        self._last_delta = min(last_offset_delta, _INT64_MAX - base_offset)
        if len(self._data) > _INT32_MAX:
            raise ValueError(f"a records section of {len(self._data)} bytes is longer than a batch can be")
        if not 0 <= count <= len(self._data) // MIN_RECORD:
            raise section_error(RECORD_COUNT, base_offset, count, 0, len(self._data))
        self._kept = kept = [record for record in self._read(count) if base_offset + record.delta >= start_offset]
        self.records = len(kept)
        self.null_keys, self.key_bytes = _sizes([record.key for record in kept])
        self.null_values, self.value_bytes = _sizes([record.value for record in kept])
        self._header_keys = [field for record in kept for field in record.header_keys]
        self._header_values = [field for record in kept for field in record.header_values]
        self.headers = len(self._header_keys)
        _, self.header_key_bytes = _sizes(self._header_keys)
        self.null_header_values, self.header_value_bytes = _sizes(self._header_values)

    def _read(self, count: int) -> list[_Record]:
        records: list[_Record] = []
        at = start = index = 0
        before = -1
        try:
            for index in range(count):  # noqa: B007 - the handler below says how far it got
                start = at
                record, at = self._record(at, before)
                before = record.delta
                records.append(record)
            if at != len(self._data):
                raise _DamageError(Fault.TRAILING_BYTES, len(self._data) - at)
        except _DamageError as damage:
            raise section_error(damage.fault, self._base_offset, index, start, damage.detail) from None
        return records

    def _record(self, at: int, before: int) -> tuple[_Record, int]:
        """Reads the record at `at`; `before` is the offset delta of the previous one. Also returns where it ends."""
        data = self._data
        length, at = _varint(data, at, len(data), 32)
        end = at + length
        if length < MIN_RECORD - 1 or end > len(data):
            raise _DamageError(Fault.RECORD_LENGTH, length)
        # The attributes byte is unused; readers skip it, whatever its value.
        stamp_delta, at = _varint(data, at + 1, end, 64)
        delta, at = _varint(data, at, end, 32)
        key, at = _field(data, at, end)
        value, at = _field(data, at, end)
        headers, at = _varint(data, at, end, 32)
        if headers < 0 or headers > (end - at) // _MIN_HEADER:
            raise _DamageError(Fault.HEADER_COUNT, headers)
        timestamp = self._base_timestamp + stamp_delta if self._append_timestamp is None else self._append_timestamp
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise _DamageError(Fault.TIMESTAMP_RANGE, 0)
        if not _INT64_MIN <= timestamp * self._scale <= _INT64_MAX:
            raise _DamageError(TIMESTAMP_UNIT, timestamp)
        if not before < delta <= self._last_delta:
            raise _DamageError(Fault.OFFSET_RANGE, delta)
        record = _Record(delta, timestamp * self._scale, key, value, [], [])
        for _ in range(headers):
            key, at = _field(data, at, end)
            if key[1] < 0:
                raise _DamageError(Fault.NULL_HEADER_KEY, key[1])
            record.header_keys.append(key)
            value, at = _field(data, at, end)
            record.header_values.append(value)
        if at != end:
            raise _DamageError(Fault.RECORD_SIZE, end - at)
        return record, end

    def fill(self, sink: ColumnSink) -> None:
        """Appends the records to the columns of `sink`."""
        data, kept, row, end = self._data, self._kept, sink.rows, sink.rows + self.records
        room = end <= sink.max_rows
        if room and sink.offsets is not None:
            sink.offsets[row:end] = [self._base_offset + record.delta for record in kept]
        if room and sink.timestamps is not None:
            sink.timestamps[row:end] = [record.timestamp for record in kept]
        if room and sink.timestamp_types is not None:
            sink.timestamp_types[row:end] = int(self._append_timestamp is not None)
        if room and sink.keys is not None:
            room = sink.keys.append(data, [record.key for record in kept])
        if room and sink.values is not None:
            room = sink.values.append(data, [record.value for record in kept])
        if room and sink.header_offsets is not None:
            assert sink.header_keys is not None
            assert sink.header_values is not None
            entries = sink.header_keys.rows
            for index, record in enumerate(kept):
                entries += len(record.header_keys)
                sink.header_offsets[row + index + 1] = entries
            room = sink.header_keys.append(data, self._header_keys)
            room = room and sink.header_values.append(data, self._header_values)
        if not room:
            raise section_error(CHANGED, self._base_offset, self.records, len(data), 0)
        sink.rows = end


def _sizes(fields: Fields) -> tuple[int, int]:
    """Returns how many of the fields are null, and how many bytes the others have."""
    return sum(length < 0 for _, length in fields), sum(max(length, 0) for _, length in fields)


def _varint(data: bytes, at: int, end: int, width: int) -> tuple[int, int]:
    """Reads a number of `width` bits that ends before `end`; also returns the position after it."""
    raw = 0
    for shift in range(0, width, 7):
        if at >= end:
            raise _DamageError(Fault.TRUNCATED, 0)
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if raw >> width:
            break
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise _DamageError(Fault.OVERLONG_VARINT, 0)


def _field(data: bytes, at: int, end: int) -> tuple[tuple[int, int], int]:
    """Reads the length (-1 for null) of a field; returns where the field is and how long, and the position after it."""
    length, at = _varint(data, at, end, 32)
    if length < -1 or length > end - at:
        raise _DamageError(Fault.FIELD_LENGTH, length)
    return (at, length), at + max(length, 0)


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
    """Sums the sizes of sections, in the order of `SIZES`."""
    return tuple(sum([getattr(section, name) for section in sections]) for name in SIZES)
