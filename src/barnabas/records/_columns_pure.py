"""The twin of the compiled `_columns`: the same classes on numpy and Arrow's own kernels.

Plain Python cannot afford a dozen steps for each record, so both directions are turned on their side: one step over
*all* records at a time.

    encode   Lengths and deltas become arrays, their varints are laid out column by column into one small binary
             array (the bytes in front of each key or value), and Arrow joins prefix, key, prefix, value and headers
             element by element. The data buffer of the result *is* the records section.
    decode   Only the chain of record lengths has to be walked one by one, for each tells where the next begins. Every
             other field is then read for all records at once, and Arrow's `take` gathers keys and values.

Sections with anything out of order go through `_walk` instead: a plain loop that reads like the format's description,
and says what is wrong and where.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    HEADER_SIZE,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from barnabas.records.checksum import crc32c
from barnabas.records.damage import Fault, record_error

Buffer: TypeAlias = Any  # anything with the buffer protocol: pyarrow.Buffer, numpy.ndarray, bytes, memoryview
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Kafka counts the bytes of a batch, its header of 61 included, in signed 32-bit numbers.
MAX_SECTION: Final = 2**31 - 1 - 61
# length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at least.
MIN_RECORD: Final = 7
# A header is at least two lengths.
MIN_HEADER: Final = 2
# What a view has room for besides the length.
INLINE: Final = 12

# Records with more headers than this are walked: reading the 500th header of the only record that has one, with steps
# made for thousands of records, would take far longer than the bytes deserve.
_MAX_ROUNDS: Final = 64

# Faults that only columns can meet, numbered past those of `damage.Fault`.
TIMESTAMP_UNIT: Final = 100
RECORD_COUNT: Final = 101
CHANGED: Final = 102

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_INT32_MAX: Final = 2**31 - 1

_PRODUCER_STATE: Final = struct.Struct(">qhi")
_PRODUCER_STATE_OFFSET: Final = 43
_UINT32: Final = struct.Struct(">I")


def section_error(fault: int, base_offset: int, index: int, position: int, detail: int) -> ApiError:
    """The exception for a fault in record `index`, at byte `position`, of the batch at `base_offset`.

    Both twins find which fault it is and leave the words to this function, so that they say the same.
    """
    error: ApiError
    if fault == TIMESTAMP_UNIT:
        error = InvalidRecordError(
            f"record {index} at byte {position} has timestamp {detail}, which does not fit timestamp[us]"
        )
    elif fault == RECORD_COUNT:
        error = CorruptRecordError(
            f"it claims {index} records, but its records section has {detail} bytes and each takes {MIN_RECORD} or more"
        )
    elif fault == CHANGED:
        error = CorruptRecordError(f"record {index} at byte {position} changed while it was being read")
    else:
        error = record_error(fault, index, position, detail)
    return type(error)(f"batch at offset {base_offset}: {error}")


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


class _Layout(NamedTuple):
    """Where everything lies in a section: one entry per record, and per header in the second half."""

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


class _IrregularError(Exception):
    """Something that the vectorised reader leaves to the walk: very many headers, or damage."""


class _Batch(NamedTuple):
    """What the batch header says that the records are read by."""

    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None
    scale: int


def _starts(data: bytes, count: int) -> tuple[Numbers, Numbers]:
    """The chain of lengths: where the content of each record begins, and where it ends."""
    begins, ends = array("q"), array("q")
    position, size = 0, len(data)
    for _ in range(count):
        if position >= size:
            raise _IrregularError
        raw = data[position]
        position += 1
        shift = 7
        while raw >> shift:  # the top bit of the last byte read says that one more follows
            if position >= size or shift > 28:
                raise _IrregularError
            raw = raw & ((1 << shift) - 1) | data[position] << shift
            position += 1
            shift += 7
        if raw & 1 or raw >> 32:
            raise _IrregularError
        begins.append(position)
        position += raw >> 1
        ends.append(position)
    if position != size:
        raise _IrregularError
    return np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64)


def _read_varints(data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """The varint at each position, and the positions after them; none may reach its end."""
    if (at >= ends).any():
        raise _IrregularError
    byte = data[at]
    raw = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while more.size:
        position = after[more]
        if shift >= width or (position >= ends[more]).any():
            raise _IrregularError
        byte = data[position]
        group = (byte & 0x7F).astype(np.uint64)
        if shift + 7 > width and (group >> np.uint64(width - shift)).any():
            raise _IrregularError
        raw[more] |= group << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def _read_together(data: bytes, batch: _Batch) -> _Layout:
    """The layout of a section in order, field by field."""
    octets = np.frombuffer(data, np.uint8)
    begins, ends = _starts(data, batch.record_count)
    stamp_deltas, at = _read_varints(octets, begins + 1, ends, 64)
    deltas, at = _read_varints(octets, at, ends, 32)
    key_lengths, keys = _read_varints(octets, at, ends, 32)
    if (key_lengths < -1).any() or (key_lengths > ends - keys).any():
        raise _IrregularError
    value_lengths, values = _read_varints(octets, keys + np.maximum(key_lengths, 0), ends, 32)
    if (value_lengths < -1).any() or (value_lengths > ends - values).any():
        raise _IrregularError
    counts, at = _read_varints(octets, values + np.maximum(value_lengths, 0), ends, 32)
    if (counts < 0).any() or (counts > (ends - at) // MIN_HEADER).any():
        raise _IrregularError
    headers, at = _read_headers(octets, at, ends, counts)
    if (at != ends).any():
        raise _IrregularError
    out_of_order = (deltas < 0).any() or (deltas > batch.last_offset_delta).any() or (np.diff(deltas) <= 0).any()
    if out_of_order or batch.base_offset > _INT64_MAX - batch.last_offset_delta:
        raise _IrregularError
    if batch.append_timestamp is None:
        lowest, highest = (batch.base_timestamp + int(ends_of(stamp_deltas)) for ends_of in (np.min, np.max))
        if lowest < _INT64_MIN or highest > _INT64_MAX:
            raise _IrregularError
        timestamps = batch.base_timestamp + stamp_deltas
    else:
        lowest = highest = batch.append_timestamp
        timestamps = np.full(batch.record_count, batch.append_timestamp, np.int64)
    if lowest * batch.scale < _INT64_MIN or highest * batch.scale > _INT64_MAX:
        raise _IrregularError
    offsets, timestamps = batch.base_offset + deltas, timestamps * batch.scale
    return _Layout(offsets, timestamps, keys, key_lengths, values, value_lengths, counts, *headers)


def _read_headers(
    data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers, counts: Numbers
) -> tuple[tuple[Numbers, Numbers, Numbers, Numbers], Numbers]:
    """Positions and lengths of all header keys and values, and where each record's headers end.

    The first headers of all records are read together, then the second ones of those that have two, and so on.
    """
    if len(counts) and counts.max() > _MAX_ROUNDS:
        raise _IrregularError
    slots = np.cumsum(counts) - counts
    columns = tuple(np.empty(int(counts.sum()), np.int64) for _ in range(4))
    after = at.copy()
    for ordinal in range(int(counts.max()) if len(counts) else 0):
        some = np.flatnonzero(counts > ordinal)
        end, slot = ends[some], slots[some] + ordinal
        lengths, keys = _read_varints(data, after[some], end, 32)
        if (lengths < 0).any() or (lengths > end - keys).any():
            raise _IrregularError
        value_lengths, values = _read_varints(data, keys + lengths, end, 32)
        if (value_lengths < -1).any() or (value_lengths > end - values).any():
            raise _IrregularError
        for column, found in zip(columns, (keys, lengths, values, value_lengths), strict=True):
            column[slot] = found
        after[some] = values + np.maximum(value_lengths, 0)
    return (columns[0], columns[1], columns[2], columns[3]), after


class _DamageError(Exception):
    """A fault found by the walk, before it knows which record it is in: the number and its detail."""

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
    """The length (-1 for null) of a field, and where it starts."""
    length, at = _varint(data, at, end, 32)
    if length < -1 or length > end - at:
        raise _DamageError(Fault.FIELD_LENGTH, length)
    return length, at


def _walk(data: bytes, batch: _Batch) -> _Layout:
    """The layout of any section, record by record."""
    layout = _Layout(*(array("q") for _ in _Layout._fields))  # type: ignore[arg-type]
    at, index, start, before = 0, 0, 0, -1
    try:
        for index in range(batch.record_count):  # noqa: B007 - the handler below tells how far it got
            start = at
            at, before = _walk_record(data, at, batch, before, layout)
        if at != len(data):
            raise _DamageError(Fault.TRAILING_BYTES, len(data) - at)
    except _DamageError as damage:
        raise section_error(damage.fault, batch.base_offset, index, start, damage.detail) from None
    return _Layout(*(np.frombuffer(column, np.int64) for column in layout))


def _walk_record(data: bytes, at: int, batch: _Batch, before: int, layout: _Layout) -> tuple[int, int]:
    """Adds the record at `at` to the layout; returns where the next one starts, and the offset delta of this one."""
    into: Any = layout
    length, at = _varint(data, at, len(data), 32)
    end = at + length
    if length < MIN_RECORD - 1 or end > len(data):
        raise _DamageError(Fault.RECORD_LENGTH, length)
    # The attributes byte has no use so far; readers skip it, whatever it says.
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


def _kept(layout: _Layout, start_offset: int) -> _Layout:
    """Without the records before `start_offset`. Offsets only go up, so they are the first ones."""
    records = int(np.searchsorted(layout.offsets, start_offset))
    if not records:
        return layout
    headers = int(layout.header_counts[:records].sum())
    first_header = _Layout._fields.index("header_keys")
    return _Layout(*(part[headers if field >= first_header else records :] for field, part in enumerate(layout)))


class BinarySink:
    """The buffers of one binary column in the making: validity (none if no null is coming), offsets, bytes.

    What is copied before it is counted may turn out not to fit. Then the sink is not `open` any more, and worth
    nothing; which happens to the compiled one only.
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
    """The bytes of all fields, one after the other.

    Seen as an Arrow array, the section is fields and gaps in turn: field 0, gap, field 1, gap, ... Taking every
    second element leaves the gaps out.
    """
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = starts + lengths
    whole = [None, pa.py_buffer(bounds), pa.py_buffer(section)]
    fields_and_gaps = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, whole)
    return fields_and_gaps.take(pa.array(np.arange(0, len(bounds), 2))).buffers()[2]


class ViewSink:
    """One column of views in the making: validity (none if no null is coming), and sixteen bytes for each row.

    A view is the length and, up to twelve bytes, those themselves; of longer ones the first four, the number of the
    buffer that all are in, and where. Rows refer to the buffer that `place` named last, by its number among the
    column's buffers. `referring` counts those that do: short ones, and nulls, need no buffer.
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
        """The section that comes next begins at byte `start` of the column's buffer of that number."""
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
    """Sets the bits of rows from `row` on."""
    packed = np.packbits(np.concatenate((np.zeros(row & 7, np.bool_), valid)), bitorder="little")
    validity[row >> 3 : (row >> 3) + len(packed)] |= packed


class ColumnSink:
    """The columns being filled, None for those nobody asked for. Sections append to it one after the other.

    It is `open` until `plain_sections` finds a batch with something wrong, of which it may hold a part.
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
        """Whether all rows are there that there was to be room for."""
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
        batch = _Batch(count, base_offset, last_offset_delta, base_timestamp, append_timestamp, scale)
        try:
            layout = _read_together(self._data, batch) if count else _walk(self._data, batch)
        except _IrregularError:
            layout = _walk(self._data, batch)
        self._layout = layout = _kept(layout, start_offset)
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
