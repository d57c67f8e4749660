"""The twin of the compiled `_columns`: the same classes on numpy and Arrow's own kernels.

Plain Python cannot afford a dozen steps for each record, so both directions are turned on their side: one step over
*all* records at a time.

    encode   Lengths and deltas become arrays, their varints are laid out column by column into one small binary
             array (the bytes in front of each key or value), and Arrow joins prefix, key, prefix, value and headers
             element by element. The data buffer of the result *is* the records section.
    decode   Only the chain of record lengths has to be walked one by one, for each tells where the next begins. Every
             other field is then read for all records at once, and Arrow's `take` gathers keys and values.

The second half of that stands in `_columns_pure_layout` (where fields are) and `_columns_pure_sinks` (where they go).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.records._columns_format import (
    CHANGED,
    INLINE,
    MAX_SECTION,
    MIN_HEADER,
    MIN_RECORD,
    RECORD_COUNT,
    TIMESTAMP_UNIT,
    Buffer,
    Flags,
    Numbers,
    section_error,
)
from barnabas.records._columns_pure_layout import Batch, IrregularError, kept, read_together, walk
from barnabas.records._columns_pure_sinks import BinarySink, ColumnSink, ViewSink
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    HEADER_SIZE,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from barnabas.records.checksum import crc32c

__all__ = [
    "CHANGED",
    "INLINE",
    "MAX_SECTION",
    "MIN_HEADER",
    "MIN_RECORD",
    "RECORD_COUNT",
    "TIMESTAMP_UNIT",
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "Totals",
    "ViewSink",
    "combined_crc32c",
    "plain_extent",
    "plain_sections",
    "records_checksum",
    "repeat_numbers",
    "seal",
    "section_error",
    "totals",
]

_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1

_PRODUCER_STATE: Final = struct.Struct(">qhi")
_PRODUCER_STATE_OFFSET: Final = 43
_UINT32: Final = struct.Struct(">I")


# --- checksum --------------------------------------------------------------------------------------------------------

# Checksums are polynomials over GF(2), lowest power first in the highest bit: x^0 is 2**31.
_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31


def _product(first: int, second: int) -> int:
    """Of two polynomials, modulo the one of CRC-32C."""
    product, power = 0, _ONE
    while power:
        if first & power:
            product ^= second
        second = (second >> 1) ^ (_POLYNOMIAL if second & 1 else 0)
        power >>= 1
    return product


def combined_crc32c(first: int, second: int, length: int) -> int:
    """The checksum of two pieces, one after the other, from those of each; ``length`` is that of the second.

    Each byte that follows multiplies what was before it by x^8, so ``first`` has to be multiplied by x^(8 length),
    which is made of x^8, x^16, x^32 and so on.
    """
    factor, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            factor = _product(square, factor)
        square = _product(square, square)
        length >>= 1
    return _product(factor, first) ^ second


def records_checksum(batch: bytearray | memoryview) -> int:
    """The checksum of the records section of a batch."""
    if len(batch) < HEADER_SIZE:
        raise ValueError(f"{len(batch)} bytes are no batch")
    with memoryview(batch) as view, view[HEADER_SIZE:] as records:
        return crc32c(records)


def seal(
    batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, transactional: bool, checksum: int
) -> None:
    """Finishes the header of a batch: writes down who it is from, unless nobody, and makes the checksum out of that of
    the records section, ``checksum``."""
    if len(batch) < HEADER_SIZE:
        raise ValueError(f"{len(batch)} bytes are no batch")
    if producer_id != NO_PRODUCER_ID:
        _PRODUCER_STATE.pack_into(batch, _PRODUCER_STATE_OFFSET, producer_id, epoch, sequence)
        if transactional:
            batch[ATTRIBUTES_OFFSET + 1] |= TRANSACTIONAL_MASK
    header = crc32c(bytes(batch[ATTRIBUTES_OFFSET:HEADER_SIZE]))
    _UINT32.pack_into(batch, CRC_OFFSET, combined_crc32c(header, checksum, len(batch) - HEADER_SIZE))


# --- encode ----------------------------------------------------------------------------------------------------------


def _numbers(buffer: Buffer, *, wide: bool, first: int, count: int) -> Numbers:
    kind = np.dtype(np.int64 if wide else np.int32)
    return np.frombuffer(buffer, kind, count, first * kind.itemsize).astype(np.int64)


def _bits(bitmap: Buffer | None, first: int, count: int) -> Flags:
    if bitmap is None:
        return np.ones(count, np.bool_)
    packed = np.frombuffer(bitmap, np.uint8)[first >> 3 : (first + count + 7) >> 3]
    skip = first & 7
    return np.unpackbits(packed, bitorder="little")[skip : skip + count].view(np.bool_)


def _zigzag(values: Numbers) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _varint_sizes(raw: npt.NDArray[np.uint64]) -> Numbers:
    sizes = np.ones(len(raw), np.int64)
    most = int(raw.max()) if len(raw) else 0
    bits = 7
    while most >> bits:
        sizes += raw >= np.uint64(1 << bits)
        bits += 7
    return sizes


def _field_sizes(lengths: Numbers) -> Numbers:
    """What a length (-1 for null) and the bytes it announces take."""
    return _varint_sizes(_zigzag(lengths)) + np.maximum(lengths, 0)


def _varints(*fields: Numbers | bytes) -> pa.Array:
    """A large_binary array whose element i is varint i of every field, one after the other.

    A field given as bytes is the same for all records.
    """
    count = next(len(field) for field in fields if not isinstance(field, bytes))
    laid: list[tuple[npt.NDArray[np.uint64], Numbers]] = []
    sizes = np.zeros(count, np.int64)
    for field in fields:
        if isinstance(field, bytes):
            sizes += len(field)
        else:
            raw = _zigzag(field)
            laid.append((raw, _varint_sizes(raw)))
            sizes += laid[-1][1]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    position = offsets[:-1].copy()
    numbers = iter(laid)
    for field in fields:
        if isinstance(field, bytes):
            for step, byte in enumerate(field):
                data[position + step] = byte
            position += len(field)
            continue
        raw, widths = next(numbers)
        shortest, longest = (int(widths.min()), int(widths.max())) if count else (0, 0)
        for step in range(longest):
            some = slice(None) if step < shortest else np.flatnonzero(widths > step)
            group = (raw[some] >> np.uint64(7 * step)) & np.uint64(0x7F)
            if step + 1 < longest:
                group |= (widths[some] > step + 1).astype(np.uint64) << np.uint64(7)
            data[position[some] + step] = group
        position += widths
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The elements of several large_binary arrays glued together, nulls as nothing."""
    empty = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*parts, empty, null_handling="replace", null_replacement="")


def _binary_array(valid: Flags, offsets: Numbers, data: Buffer) -> pa.Array:
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(valid), buffers)


def _check_buffers(validity: Buffer | None, offsets: Buffer | None, *, wide: bool, first: int, length: int) -> None:
    if first < 0 or length < 0:
        raise ValueError("an Arrow array cannot start or end before its buffers do")
    if validity is not None and memoryview(validity).nbytes * 8 < first + length:
        raise ValueError("the validity bitmap is shorter than its array")
    if length and (offsets is None or memoryview(offsets).nbytes < (first + length + 1) * (8 if wide else 4)):
        raise ValueError("the offsets buffer is shorter than its array")


class BinaryColumn:
    """A binary or string Arrow array as raw memory: validity bits, 32- or 64-bit offsets, bytes.

    `first` is the array's own offset (a sliced array shares its parent's buffers), `length` its number of elements.
    """

    def __init__(
        self,
        validity: Buffer | None,
        offsets: Buffer | None,
        data: Buffer | None,
        wide: bool,
        first: int,
        length: int,
    ) -> None:
        _check_buffers(validity, offsets, wide=wide, first=first, length=length)
        self.length = length
        self.valid = _bits(validity, first, length)
        size = 0 if data is None else memoryview(data).nbytes
        bounds = _numbers(offsets, wide=wide, first=first, count=length + 1) if length else np.zeros(1, np.int64)
        # Arrow's kernels trust offsets, so none that point outside may get there.
        outside = self.valid & ((bounds[:-1] < 0) | (bounds[1:] < bounds[:-1]) | (bounds[1:] > size))
        if outside.any():
            raise ValueError(f"record {np.argmax(outside)}: the array's offsets point outside its data")
        self.lengths = np.where(self.valid, bounds[1:] - bounds[:-1], -1)
        self.array = _binary_array(self.valid, bounds, b"" if data is None else data)


class HeaderColumn:
    """A list of (key, value) structs per record: the list's validity and offsets over two binary columns."""

    def __init__(
        self,
        validity: Buffer | None,
        offsets: Buffer | None,
        wide: bool,
        first: int,
        length: int,
        keys: BinaryColumn,
        values: BinaryColumn,
    ) -> None:
        _check_buffers(validity, offsets, wide=wide, first=first, length=length)
        if keys.length != values.length:
            raise ValueError("header keys and values differ in number")
        self.length = length
        valid = _bits(validity, first, length)
        bounds = _numbers(offsets, wide=wide, first=first, count=length + 1) if length else np.zeros(1, np.int64)
        begin, end = np.where(valid, bounds[:-1], 0), np.where(valid, bounds[1:], 0)
        outside = (begin < 0) | (end < begin) | (end > keys.length)
        if outside.any():
            raise ValueError(f"record {np.argmax(outside)}: the array's offsets point outside its data")
        self.counts = end - begin
        null_keys = np.concatenate(([0], np.cumsum(~keys.valid)))
        self.null_key: Flags = null_keys[end] > null_keys[begin]
        entry_ends = np.concatenate(([0], np.cumsum(_field_sizes(keys.lengths) + _field_sizes(values.lengths))))
        self.sizes: Numbers = _varint_sizes(_zigzag(self.counts)) + entry_ends[end] - entry_ends[begin]
        # The headers of a record lie one after the other in the child array, so once the entries are encoded, the
        # encoded headers of a record are a slice of their bytes: only the offsets have to be made. A null list may
        # still cover entries; as a null element it adds nothing to the join.
        entries = _join(_varints(keys.lengths), keys.array, _varints(values.lengths), values.array)
        self.array = _binary_array(valid, entry_ends[np.clip(bounds, 0, keys.length)], entries.buffers()[2])


class Encoder:
    """Turns columns into records sections.

    The first record of a section gives its base timestamp, as in Kafka's own builder, and deltas count from there:
    a record's size depends on where its batch starts. That is why `measure` takes the first record, and is asked
    batch by batch.
    """

    def __init__(
        self,
        keys: BinaryColumn | None,
        values: BinaryColumn,
        headers: HeaderColumn | None,
        timestamps: Buffer | None,
        timestamps_first: int,
        timestamp: int,
    ) -> None:
        self.length = count = values.length
        self._keys, self._values, self._headers = keys, values, headers
        if keys is not None and keys.length != count:
            raise ValueError(f"{keys.length} keys for {count} values")
        if headers is not None and headers.length != count:
            raise ValueError(f"headers of {headers.length} records for {count} values")
        if timestamps is None:
            self._timestamps = np.full(count, timestamp, np.int64)
        else:
            if timestamps_first < 0 or memoryview(timestamps).nbytes < (timestamps_first + count) * 8:
                raise ValueError("fewer timestamps than values")
            self._timestamps = np.frombuffer(timestamps, np.int64, count, timestamps_first * 8)
        # What a record takes besides its length and its two deltas, which depend on the batch.
        self._fixed = 1 + _field_sizes(values.lengths)
        self._fixed += 1 if keys is None else _field_sizes(keys.lengths)
        self._fixed += 1 if headers is None else headers.sizes
        # Deltas and length take a byte each at least: where the records would end if they took no more than that.
        self._least_ends = np.concatenate(([0], np.cumsum(self._fixed + 3)))
        none = np.zeros(0, np.int64)
        self._measured: tuple[int, tuple[Numbers, Numbers, Numbers]] = -1, (none, none, none)

    def base_timestamp(self, first: int) -> int:
        """The timestamp that the deltas of a section starting with record `first` count from."""
        if not 0 <= first < self.length:
            raise ValueError(f"no record {first} in {self.length}")
        return int(self._timestamps[first])

    def _sizes(self, first: int, end: int) -> tuple[Numbers, Numbers, Numbers]:
        """The timestamp deltas, the record bodies' sizes and the whole records' sizes, in a section from `first`."""
        # `write` asks for what `measure` has just found out.
        if self._measured[0] == first and len(self._measured[1][0]) >= end - first:
            deltas, bodies, sizes = self._measured[1]
            return deltas[: end - first], bodies[: end - first], sizes[: end - first]
        with np.errstate(over="ignore"):  # what overflows here is refused in `measure`
            deltas = self._timestamps[first:end] - self._timestamps[first]
        bodies = self._fixed[first:end] + _varint_sizes(_zigzag(deltas))
        bodies += _varint_sizes(_zigzag(np.arange(end - first, dtype=np.int64)))
        self._measured = first, (deltas, bodies, _varint_sizes(_zigzag(bodies)) + bodies)
        return self._measured[1]

    def measure(self, first: int, limit: int) -> tuple[int, int]:
        """How many records, from `first` on, make a section of at most `limit` bytes, and its exact size.

        A single record larger than the limit is still one record: some batch has to carry it.
        """
        if not 0 <= first <= self.length:
            raise ValueError(f"no record {first} in {self.length}")
        if first == self.length:
            return 0, 0
        limit = min(limit, MAX_SECTION)
        # No more records than these can fit, so no more need be looked at.
        end = int(np.searchsorted(self._least_ends, self._least_ends[first] + limit, side="right")) - 1
        end = min(max(end, first + 1), first + _INT32_MAX)
        sizes = self._sizes(first, end)[2]
        ends = np.cumsum(sizes)
        count = max(int(np.searchsorted(ends, limit, side="right")), 1)
        self._refuse(first, min(first + count + 1, end))
        if ends[count - 1] > MAX_SECTION:
            raise ValueError(f"record {first}: larger than the {MAX_SECTION} bytes that a batch can carry")
        return count, int(ends[count - 1])

    def _refuse(self, first: int, end: int) -> None:
        """Raises for the first record in the range that no batch can carry."""
        stamps = self._timestamps[first:end]
        # Only the largest timestamp of all, after a first record without one, has no delta.
        out_of_range = (stamps < -1) | ((stamps == _INT64_MAX) & (stamps[0] == -1))
        refused = out_of_range if self._headers is None else out_of_range | self._headers.null_key[first:end]
        if not refused.any():
            return
        index = int(np.argmax(refused))
        if out_of_range[index]:
            raise ValueError(f"record {first + index}: timestamp {stamps[index]} is out of range (-1 means none)")
        raise ValueError(f"record {first + index}: a header key cannot be null")

    def write(
        self, first: int, count: int, size: int, reserve: int, into: bytearray | memoryview | None = None
    ) -> tuple[bytearray | memoryview, int]:
        """A bytearray of `reserve` zero bytes and the section of `count` records from `first`, measured at `size`.

        Returns it with the largest timestamp. It is `into`, if that is given, whatever was in it before: a bytearray,
        or a memoryview, which has to have the right size.
        """
        end = first + count
        if not (first >= 0 and count > 0 and end <= self.length and 0 <= size <= MAX_SECTION and reserve >= 0):
            raise ValueError(f"no section of {count} records from {first} in {size} bytes")
        self._refuse(first, end)
        deltas, bodies, sizes = self._sizes(first, end)
        if int(sizes.sum()) != size:
            raise ValueError(f"{count} records from {first} do not take {size} bytes")
        order = np.arange(count, dtype=np.int64)
        value_lengths = self._values.lengths[first:end]
        values = self._values.array.slice(first, count)
        if self._keys is None:
            parts = [_varints(bodies, b"\0", deltas, order, b"\1", value_lengths), values]
        else:
            keys = self._keys.array.slice(first, count)
            before_key = _varints(bodies, b"\0", deltas, order, self._keys.lengths[first:end])
            parts = [before_key, keys, _varints(value_lengths), values]
        if self._headers is None:
            parts.append(pa.scalar(b"\0", pa.large_binary()))
        else:
            parts += [_varints(self._headers.counts[first:end]), self._headers.array.slice(first, count)]
        latest = int(self._timestamps[first:end].max())
        section = memoryview(_join(*parts).buffers()[2])[:size]
        if isinstance(into, memoryview):
            if into.readonly or len(into) != reserve + size:
                raise ValueError(f"{into!r} is not made for {reserve + size} bytes")
            into[:reserve] = bytes(reserve)
            into[reserve:] = section
            return into, latest
        out = bytearray() if into is None else into
        out[:] = bytes(reserve)
        out += section
        return out, latest


# --- decode ----------------------------------------------------------------------------------------------------------


class Section:
    """One decompressed records section, checked from end to end, with the sizes its columns will take.

    `append_timestamp` is the batch's log-append time, which replaces the timestamps of all its records, or None.
    Records before `start_offset` are checked but neither counted nor filled. Timestamps come out times `scale`.

    Who wants views says where the bytes stay: `source` is what holds them, and the section begins at `source_start`.
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
        # A copy, as a read-only view may still belong to a buffer that somebody else can write.
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
    """How many records `plain_sections` will find at most before it comes back for the first time, how many bytes their
    keys and values can have together, and whether there is no other batch behind them; as the headers of the batches
    say, of which nothing is checked yet."""
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
) -> tuple[list[Section], int, int | None, bool]:
    """The sections of those batches from `at` on that need no more than to be checked and read, up to one that does;
    where that one begins; the offset behind the last one before it, None if there was none; and whether there is
    nothing more for sure, but the beginning of a batch perhaps.

    What needs more is left to the caller: what is compressed, a marker, empty, before `start_offset`, perhaps of an
    aborted transaction, cut off, or not as it should be. Here that is everything. Compiled, it spares a batch some
    thirty calls, which take longer than its records do if it has just a few.

    The sink, if there is one, gets all but the headers of all sections that are found. If there was no room for keys or
    values, theirs is not `open` any more. If there was something wrong with the batch behind the last section, none of
    it is. Nothing of a section is missing without it: `Section.fill` can do the same.
    """
    return [], at, None, False


class Totals(NamedTuple):
    """The sizes of several sections together, under the same names."""

    records: int
    null_keys: int
    key_bytes: int
    null_values: int
    value_bytes: int
    headers: int
    header_key_bytes: int
    null_header_values: int
    header_value_bytes: int


def totals(sections: list[Section]) -> tuple[int, ...]:
    """What `Totals` has."""
    return tuple(sum([getattr(section, name) for section in sections]) for name in Totals._fields)


def repeat_numbers(numbers: list[int], counts: list[int], into: Buffer) -> None:
    """Fills a buffer with 32-bit numbers: the first one as often as the first count says, and so on."""
    rows = np.frombuffer(into, np.int32)
    if len(numbers) != len(counts) or sum(counts) != len(rows) or min(counts, default=0) < 0:
        raise ValueError("as many counts as numbers, and room for as many numbers as they say")
    rows[:] = np.repeat(np.array(numbers, np.int32), counts)
