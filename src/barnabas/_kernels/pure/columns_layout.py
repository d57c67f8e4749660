"""Finds the fields of records with numpy.

A dozen Python steps per record are too slow. So only the chain of record lengths is walked one by one, because each
gives the start of the next; every other field is then read for all records at once (`read_together`).

Sections with any irregularity go through `walk` instead: a plain loop that reads like the format's description, and
reports what is wrong and where.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas._kernels.faults import MIN_RECORD, TIMESTAMP_UNIT, Fault, section_error
from barnabas._kernels.pure.columns_format import MIN_HEADER, Numbers

# Records with more headers than this are walked: reading the 500th header of the only record that has one, with steps
# made for thousands of records, would take far too long.
_MAX_ROUNDS: Final = 64

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)


class Layout(NamedTuple):
    """The positions of all fields in a section: one entry per record, and per header in the second half."""

    offsets: Numbers
    timestamps: Numbers
    keys: Numbers
    key_lengths: Numbers
    values: Numbers
    value_lengths: Numbers
    header_counts: Numbers
    header_keys: Numbers
    header_key_lengths: Numbers
    header_values: Numbers
    header_value_lengths: Numbers


class IrregularError(Exception):
    """The vectorised reader leaves this section to the walk: very many headers, or corrupt data."""


class Batch(NamedTuple):
    """The fields of the batch header that reading the records requires."""

    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None
    scale: int


def _starts(data: bytes, count: int) -> tuple[Numbers, Numbers]:
    """Follows the chain of lengths: returns where the content of each record begins and ends."""
    begins, ends = array("q"), array("q")
    position, size = 0, len(data)
    for _ in range(count):
        if position >= size:
            raise IrregularError
        raw = data[position]
        position += 1
        shift = 7
        while raw >> shift:  # the top bit of the last byte read says that one more follows
            if position >= size or shift > 28:
                raise IrregularError
            raw = raw & ((1 << shift) - 1) | data[position] << shift
            position += 1
            shift += 7
        if raw & 1 or raw >> 32:
            raise IrregularError
        begins.append(position)
        position += raw >> 1
        ends.append(position)
    if position != size:
        raise IrregularError
    return np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64)


def _read_varints(data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Reads the varint at each position; returns values and next positions. None may reach its end."""
    if (at >= ends).any():
        raise IrregularError
    byte = data[at]
    raw = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while more.size:
        position = after[more]
        if shift >= width or (position >= ends[more]).any():
            raise IrregularError
        byte = data[position]
        group = (byte & 0x7F).astype(np.uint64)
        if shift + 7 > width and (group >> np.uint64(width - shift)).any():
            raise IrregularError
        raw[more] |= group << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def read_together(data: bytes, batch: Batch) -> Layout:
    """Returns the layout of a regular section, field by field."""
    octets = np.frombuffer(data, np.uint8)
    begins, ends = _starts(data, batch.record_count)
    stamp_deltas, at = _read_varints(octets, begins + 1, ends, 64)
    deltas, at = _read_varints(octets, at, ends, 32)
    key_lengths, keys = _read_varints(octets, at, ends, 32)
    if (key_lengths < -1).any() or (key_lengths > ends - keys).any():
        raise IrregularError
    value_lengths, values = _read_varints(octets, keys + np.maximum(key_lengths, 0), ends, 32)
    if (value_lengths < -1).any() or (value_lengths > ends - values).any():
        raise IrregularError
    counts, at = _read_varints(octets, values + np.maximum(value_lengths, 0), ends, 32)
    if (counts < 0).any() or (counts > (ends - at) // MIN_HEADER).any():
        raise IrregularError
    headers, at = _read_headers(octets, at, ends, counts)
    if (at != ends).any():
        raise IrregularError
    out_of_order = (deltas < 0).any() or (deltas > batch.last_offset_delta).any() or (np.diff(deltas) <= 0).any()
    if out_of_order or batch.base_offset > _INT64_MAX - batch.last_offset_delta:
        raise IrregularError
    if batch.append_timestamp is None:
        lowest, highest = (batch.base_timestamp + int(ends_of(stamp_deltas)) for ends_of in (np.min, np.max))
        if lowest < _INT64_MIN or highest > _INT64_MAX:
            raise IrregularError
        timestamps = batch.base_timestamp + stamp_deltas
    else:
        lowest = highest = batch.append_timestamp
        timestamps = np.full(batch.record_count, batch.append_timestamp, np.int64)
    if lowest * batch.scale < _INT64_MIN or highest * batch.scale > _INT64_MAX:
        raise IrregularError
    offsets, timestamps = batch.base_offset + deltas, timestamps * batch.scale
    return Layout(offsets, timestamps, keys, key_lengths, values, value_lengths, counts, *headers)


def _read_headers(
    data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers, counts: Numbers
) -> tuple[tuple[Numbers, Numbers, Numbers, Numbers], Numbers]:
    """Returns positions and lengths of all header keys and values, and where each record's headers end.

    The first headers of all records are read together, then the second ones of those that have two, and so on.
    """
    if len(counts) and counts.max() > _MAX_ROUNDS:
        raise IrregularError
    slots = np.cumsum(counts) - counts
    columns = tuple(np.empty(int(counts.sum()), np.int64) for _ in range(4))
    after = at.copy()
    for ordinal in range(int(counts.max()) if len(counts) else 0):
        some = np.flatnonzero(counts > ordinal)
        end, slot = ends[some], slots[some] + ordinal
        lengths, keys = _read_varints(data, after[some], end, 32)
        if (lengths < 0).any() or (lengths > end - keys).any():
            raise IrregularError
        value_lengths, values = _read_varints(data, keys + lengths, end, 32)
        if (value_lengths < -1).any() or (value_lengths > end - values).any():
            raise IrregularError
        for column, found in zip(columns, (keys, lengths, values, value_lengths), strict=True):
            column[slot] = found
        after[some] = values + np.maximum(value_lengths, 0)
    return (columns[0], columns[1], columns[2], columns[3]), after


class _DamageError(Exception):
    """A fault found by the walk, before its record is known: the number and its detail."""

    def __init__(self, fault: int, detail: int) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail


def _varint(data: bytes, at: int, end: int, width: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        if at >= end:
            raise _DamageError(Fault.TRUNCATED, 0)
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if raw >> width:
            raise _DamageError(Fault.OVERLONG_VARINT, 0)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift >= width:
            raise _DamageError(Fault.OVERLONG_VARINT, 0)


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the length (-1 for null) of a field, and where it starts."""
    length, at = _varint(data, at, end, 32)
    if length < -1 or length > end - at:
        raise _DamageError(Fault.FIELD_LENGTH, length)
    return length, at


def walk(data: bytes, batch: Batch) -> Layout:
    """Returns the layout of any section, record by record."""
    layout = Layout(*(array("q") for _ in Layout._fields))  # type: ignore[arg-type]
    at, index, start, before = 0, 0, 0, -1
    try:
        for index in range(batch.record_count):  # noqa: B007 - the handler below tells how far it got
            start = at
            at, before = _walk_record(data, at, batch, before, layout)
        if at != len(data):
            raise _DamageError(Fault.TRAILING_BYTES, len(data) - at)
    except _DamageError as damage:
        raise section_error(damage.fault, batch.base_offset, index, start, damage.detail) from None
    return Layout(*(np.frombuffer(column, np.int64) for column in layout))


def _walk_record(data: bytes, at: int, batch: Batch, before: int, layout: Layout) -> tuple[int, int]:
    """Adds the record at `at` to the layout; returns where the next one starts, and this one's offset delta."""
    into: Any = layout
    length, at = _varint(data, at, len(data), 32)
    end = at + length
    if length < MIN_RECORD - 1 or end > len(data):
        raise _DamageError(Fault.RECORD_LENGTH, length)
    # The attributes byte is unused; readers skip it, whatever its value.
    stamp_delta, at = _varint(data, at + 1, end, 64)
    delta, at = _varint(data, at, end, 32)
    key_length, key = _length(data, at, end)
    value_length, value = _length(data, key + max(key_length, 0), end)
    headers, at = _varint(data, value + max(value_length, 0), end, 32)
    if headers < 0 or headers > (end - at) // MIN_HEADER:
        raise _DamageError(Fault.HEADER_COUNT, headers)
    timestamp = batch.base_timestamp + stamp_delta if batch.append_timestamp is None else batch.append_timestamp
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise _DamageError(Fault.TIMESTAMP_RANGE, 0)
    if not _INT64_MIN <= timestamp * batch.scale <= _INT64_MAX:
        raise _DamageError(TIMESTAMP_UNIT, timestamp)
    if not before < delta <= batch.last_offset_delta or batch.base_offset + delta > _INT64_MAX:
        raise _DamageError(Fault.OFFSET_RANGE, delta)
    for _ in range(headers):
        header_key_length, header_key = _length(data, at, end)
        if header_key_length < 0:
            raise _DamageError(Fault.NULL_HEADER_KEY, header_key_length)
        header_value_length, header_value = _length(data, header_key + header_key_length, end)
        at = header_value + max(header_value_length, 0)
        into.header_keys.append(header_key)
        into.header_key_lengths.append(header_key_length)
        into.header_values.append(header_value)
        into.header_value_lengths.append(header_value_length)
    if at != end:
        raise _DamageError(Fault.RECORD_SIZE, end - at)
    into.offsets.append(batch.base_offset + delta)
    into.timestamps.append(timestamp * batch.scale)
    into.keys.append(key)
    into.key_lengths.append(key_length)
    into.values.append(value)
    into.value_lengths.append(value_length)
    into.header_counts.append(headers)
    return end, delta


def kept(layout: Layout, start_offset: int) -> Layout:
    """Drops the records before `start_offset`. Offsets ascend, so they are the first ones."""
    records = int(np.searchsorted(layout.offsets, start_offset))
    if not records:
        return layout
    headers = int(layout.header_counts[:records].sum())
    first_header = Layout._fields.index("header_keys")
    return Layout(*(part[headers if field >= first_header else records :] for field, part in enumerate(layout)))
