"""Encodes Arrow columns as records sections, with numpy and Arrow's own kernels.

Lengths and deltas become arrays, their varints are laid out column by column into one small binary array (the bytes in
front of each key or value), and Arrow joins prefix, key, prefix, value and headers element by element. The data buffer
of the result *is* the records section.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas._kernels.pure.columns_format import MAX_SECTION, Buffer, Flags, Numbers

_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


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
    """Returns the size of each length (-1 for null) and its bytes."""
    return _varint_sizes(_zigzag(lengths)) + np.maximum(lengths, 0)


def _varints(*fields: Numbers | bytes) -> pa.Array:
    """Returns a large_binary array whose element i is varint i of every field, concatenated.

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
    """Joins the elements of several large_binary arrays, treating nulls as empty."""
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
        # Arrow's kernels trust offsets, so reject any that point outside.
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
        # The headers of a record are contiguous in the child array, so the encoded headers of a record are a slice of
        # the encoded entries: only the offsets must be computed. A null list may still cover entries; as a null element
        # it adds nothing to the join.
        entries = _join(_varints(keys.lengths), keys.array, _varints(values.lengths), values.array)
        self.array = _binary_array(valid, entry_ends[np.clip(bounds, 0, keys.length)], entries.buffers()[2])


class Encoder:
    """Encodes columns as records sections.

    The first record of a section gives its base timestamp, as in Kafka's own builder, and deltas count from there, so a
    record's size depends on where its batch starts. That is why `measure` takes the first record and is called per
    batch.
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
        # The size of a record without its length and its two deltas, which depend on the batch.
        self._fixed = 1 + _field_sizes(values.lengths)
        self._fixed += 1 if keys is None else _field_sizes(keys.lengths)
        self._fixed += 1 if headers is None else headers.sizes
        # Deltas and length take at least a byte each: the record ends if they take no more.
        self._least_ends = np.concatenate(([0], np.cumsum(self._fixed + 3)))
        none = np.zeros(0, np.int64)
        self._measured: tuple[int, tuple[Numbers, Numbers, Numbers]] = -1, (none, none, none)

    def base_timestamp(self, first: int) -> int:
        """Returns the base timestamp of a section that starts with record `first`."""
        if not 0 <= first < self.length:
            raise ValueError(f"no record {first} in {self.length}")
        return int(self._timestamps[first])

    def _sizes(self, first: int, end: int) -> tuple[Numbers, Numbers, Numbers]:
        """Returns timestamp deltas, record body sizes and whole record sizes, in a section from `first`."""
        # `write` reuses the sizes that `measure` has just computed.
        if self._measured[0] == first and len(self._measured[1][0]) >= end - first:
            deltas, bodies, sizes = self._measured[1]
            return deltas[: end - first], bodies[: end - first], sizes[: end - first]
        with np.errstate(over="ignore"):  # `measure` rejects overflows
            deltas = self._timestamps[first:end] - self._timestamps[first]
        bodies = self._fixed[first:end] + _varint_sizes(_zigzag(deltas))
        bodies += _varint_sizes(_zigzag(np.arange(end - first, dtype=np.int64)))
        self._measured = first, (deltas, bodies, _varint_sizes(_zigzag(bodies)) + bodies)
        return self._measured[1]

    def measure(self, first: int, limit: int) -> tuple[int, int]:
        """Returns how many records, from `first` on, fit in a section of at most `limit` bytes, and its exact size.

        A single record larger than the limit still counts as one: some batch must carry it.
        """
        if not 0 <= first <= self.length:
            raise ValueError(f"no record {first} in {self.length}")
        if first == self.length:
            return 0, 0
        limit = min(limit, MAX_SECTION)
        # No further record can fit.
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
        # Only the largest possible timestamp, after a first record without one, has no delta.
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
        """Writes `reserve` zero bytes and the section of `count` records from `first`, measured at `size`.

        Returns the buffer with the largest timestamp. The buffer is `into`, if given, which is overwritten: a
        bytearray, or a memoryview of the right size.
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
        section = memoryview(_join(*parts).buffers()[2]).cast("B")[:size]
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
