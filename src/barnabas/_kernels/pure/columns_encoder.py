"""Encodes Arrow columns as records sections, record by record."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from barnabas._kernels.pure.record_codec import encode_field, size_of_payload
from barnabas._kernels.varint import encode_varint, encode_varlong, size_of_varint, size_of_varlong

Buffer: TypeAlias = Any  # anything with the buffer protocol: pyarrow.Buffer, numpy.ndarray, bytes, memoryview

MAX_SECTION: Final = 2**31 - 1 - 61
"""Kafka counts the bytes of a batch, its header of 61 included, in signed 32-bit numbers."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


def _spans(
    validity: Buffer | None, offsets: Buffer | None, wide: bool, first: int, length: int, limit: int
) -> list[tuple[int, int] | None]:
    """Returns where each element begins and ends, None for null. `limit` is the size of what the offsets point into."""
    kind = np.dtype(np.int64 if wide else np.int32)
    if first < 0 or length < 0:
        raise ValueError("an Arrow array cannot start or end before its buffers do")
    if validity is not None and memoryview(validity).nbytes * 8 < first + length:
        raise ValueError("the validity bitmap is shorter than its array")
    if not length:
        return []
    if offsets is None or memoryview(offsets).nbytes < (first + length + 1) * kind.itemsize:
        raise ValueError("the offsets buffer is shorter than its array")
    bounds = np.frombuffer(offsets, kind, length + 1, first * kind.itemsize).tolist()
    bits = None if validity is None else np.frombuffer(validity, np.uint8)
    spans: list[tuple[int, int] | None] = []
    for index in range(length):
        place = first + index
        if bits is not None and not bits[place >> 3] >> (place & 7) & 1:
            spans.append(None)
            continue
        begin, end = bounds[index], bounds[index + 1]
        if not 0 <= begin <= end <= limit:
            raise ValueError(f"record {index}: the array's offsets point outside its data")
        spans.append((begin, end))
    return spans


class BinaryColumn:
    """A binary or string Arrow array as raw memory: validity bits, 32- or 64-bit offsets, bytes.

    `first` is the array's own offset (a sliced array shares its parent's buffers), `length` its number of elements.
    """

    def __init__(
        self, validity: Buffer | None, offsets: Buffer | None, data: Buffer | None, wide: bool, first: int, length: int
    ) -> None:
        content: Any = b"" if data is None else np.frombuffer(data, np.uint8)
        octets = memoryview(content)
        self.length = length
        self.elements = [
            None if span is None else octets[span[0] : span[1]]
            for span in _spans(validity, offsets, wide, first, length, len(octets))
        ]


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
        if keys.length != values.length:
            raise ValueError("header keys and values differ in number")
        self.length = length
        self.sections: list[bytes | None] = []
        """The encoded headers of each record; None if a key is null."""
        for begin, end in (span or (0, 0) for span in _spans(validity, offsets, wide, first, length, keys.length)):
            parts = [encode_varint(end - begin)]
            for key, value in zip(keys.elements[begin:end], values.elements[begin:end], strict=True):
                parts += (encode_field(key), encode_field(value))
            self.sections.append(None if None in keys.elements[begin:end] else b"".join(parts))


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
        if keys is not None and keys.length != count:
            raise ValueError(f"{keys.length} keys for {count} values")
        if headers is not None and headers.length != count:
            raise ValueError(f"headers of {headers.length} records for {count} values")
        self._keys = [None] * count if keys is None else keys.elements
        self._values = values.elements
        self._headers = [b"\0"] * count if headers is None else headers.sections
        if timestamps is None:
            self._timestamps = [timestamp] * count
        else:
            if timestamps_first < 0 or memoryview(timestamps).nbytes < (timestamps_first + count) * 8:
                raise ValueError("fewer timestamps than values")
            self._timestamps = np.frombuffer(timestamps, np.int64, count, timestamps_first * 8).tolist()

    def base_timestamp(self, first: int) -> int:
        """Returns the base timestamp of a section that starts with record `first`."""
        if not 0 <= first < self.length:
            raise ValueError(f"no record {first} in {self.length}")
        return self._timestamps[first]

    def _body_size(self, first: int, index: int, headers: bytes) -> int:
        """Returns the size of record `index`, without its length, in a section from `first`."""
        size = 1 + size_of_varlong(self._timestamps[index] - self._timestamps[first]) + size_of_varint(index - first)
        return size + size_of_payload(self._keys[index], self._values[index]) - 1 + len(headers)

    def measure(self, first: int, limit: int) -> tuple[int, int]:
        """Returns how many records, from `first` on, fit in a section of at most `limit` bytes, and its exact size.

        A single record larger than the limit still counts as one: some batch must carry it.
        """
        if not 0 <= first <= self.length:
            raise ValueError(f"no record {first} in {self.length}")
        total = count = 0
        for index in range(first, min(self.length, first + _INT32_MAX)):
            stamp, headers = self._timestamps[index], self._headers[index]
            # Only the largest possible timestamp, after a first record without one, has no delta.
            if stamp < -1 or (stamp == _INT64_MAX and self._timestamps[first] == -1):
                raise ValueError(f"record {index}: timestamp {stamp} is out of range (-1 means none)")
            if headers is None:
                raise ValueError(f"record {index}: a header key cannot be null")
            size = self._body_size(first, index, headers)
            size += size_of_varint(size)
            if total + size > min(limit, MAX_SECTION) and count:
                break
            if size > MAX_SECTION:
                raise ValueError(f"record {index}: larger than the {MAX_SECTION} bytes that a batch can carry")
            total += size
            count += 1
        return count, total

    def write(
        self, first: int, count: int, size: int, reserve: int, into: bytearray | memoryview | None = None
    ) -> tuple[bytearray | memoryview, int]:
        """Writes `reserve` zero bytes and the section of `count` records from `first`, measured at `size`.

        Returns the buffer with the largest timestamp. The buffer is `into`, if given, which is overwritten: a
        bytearray, or a memoryview of the right size.
        """
        if not (first >= 0 and 0 < count <= self.length - first and 0 <= size <= MAX_SECTION and reserve >= 0):
            raise ValueError(f"no section of {count} records from {first} in {size} bytes")
        if isinstance(into, memoryview) and (into.readonly or len(into) != reserve + size or not into.c_contiguous):
            raise ValueError(f"{into!r} is not made for {reserve + size} bytes")
        if not isinstance(into, bytearray | memoryview | None):
            raise TypeError(f"{into!r} is neither a bytearray nor a memoryview")
        base = self._timestamps[first]
        parts = [bytes(reserve)]
        for index in range(first, first + count):
            headers = self._headers[index]
            if headers is None:
                break  # fewer bytes than measured
            parts += (
                encode_varint(self._body_size(first, index, headers)),
                b"\0",
                encode_varlong(self._timestamps[index] - base),
                encode_varint(index - first),
                encode_field(self._keys[index]),
                encode_field(self._values[index]),
                headers,
            )
        if sum(map(len, parts)) != reserve + size:
            raise ValueError(f"{count} records from {first} do not take {size} bytes")
        out = bytearray() if into is None else into
        out[:] = b"".join(parts)
        return out, max(self._timestamps[first : first + count])
