"""The record codec in plain Python: the twin of `compiled.record_codec`, with the same names and the same behaviour.

A record inside a batch looks like this (every number but the attributes is zig-zag variable-length)::

    length | attributes (0) | timestamp delta | offset delta | key length, key | value length, value
           | header count | (key length, key, value length, value) per header

A length of -1 means null, which a header key cannot be. `length` counts the bytes after itself, so a record can be
written only once its size is known, and skipped without being parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from barnabas._kernels.faults import MIN_HEADER, MIN_RECORD, Fault, record_error
from barnabas._kernels.varint import encode_unsigned, encode_varlong, size_of_varint
from barnabas.common.dataclass import dataclass

# The types of a key or value. All but bytes are copied when appended, because they may change later.
BytesLike = bytes | bytearray | memoryview
Headers = Iterable[tuple[str, BytesLike | None]]

_INT64: Final = range(-(2**63), 2**63)

# The varints of 0 .. 8191, those of one and two bytes: nearly every length and delta.
_VARINTS: Final = tuple([encode_unsigned(number << 1) for number in range(8192)])


@dataclass(frozen=True, slots=True)
class Record:
    """One record, read from a batch. `headers` is a tuple of ``(key, value or None)`` pairs.

    `size_in_bytes` is the record's size in the uncompressed batch. Header keys that are not UTF-8 are decoded with
    ``surrogateescape``: producers can write them, and this way they survive being written again.
    """

    offset: int
    timestamp: int
    key: bytes | memoryview | None
    value: bytes | memoryview | None
    headers: tuple[tuple[str, bytes | memoryview | None], ...] = ()
    size_in_bytes: int = 0


def encode_number(number: int) -> bytes:
    """Encodes a length or a delta."""
    return _VARINTS[number] if 0 <= number < 8192 else encode_varlong(number)


def encode_field(field: BytesLike | None) -> bytes:
    """Encodes a length, -1 for null, and the bytes."""
    if field is None:
        return b"\x01"
    data = field if type(field) is bytes else memoryview(field).tobytes()
    return encode_number(len(data)) + data


def encode_headers(headers: Headers) -> bytes:
    """Encodes the header section of a record, including the count."""
    parts: list[bytes] = []
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(f"a header key must be a str, not {type(key).__name__}")
        parts += (encode_field(key.encode("utf-8", "surrogateescape")), encode_field(value))
    return b"".join([encode_number(len(parts) // 2), *parts])


def encode_payload(key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> bytes:
    """Encodes key, value and headers of a record, including their lengths."""
    return encode_field(key) + encode_field(value) + (encode_headers(headers) if headers else b"\0")


def size_of_payload(key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
    """Returns the size of what `encode_payload` returns."""
    size = 1 if not headers else len(encode_headers(headers))
    for field in (key, value):
        length = -1 if field is None else memoryview(field).nbytes
        size += size_of_varint(length) + max(length, 0)
    return size


class _DamageError(Exception):
    """A fault in a record, and its detail: the arguments. The caller adds the position."""


class Fields(NamedTuple):
    """The fields of one record: keys and values as slices of the records, None for null."""

    start: int
    end: int
    timestamp: int
    offset_delta: int
    key: slice | None
    value: slice | None
    headers: list[tuple[slice, slice | None]]


def _read_number(data: bytes, position: int, end: int, width: int = 32) -> tuple[int, int]:
    """Reads a number of `width` bits that ends before `end`; also returns the position after it."""
    raw = 0
    for shift in range(0, width, 7):
        if position >= end:
            raise _DamageError(Fault.TRUNCATED, 0)
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if raw >> width:
            break
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
    raise _DamageError(Fault.OVERLONG_VARINT, 0)


def _read_field(data: bytes, position: int, end: int) -> tuple[slice | None, int]:
    """Reads a length (-1 for null) and as many bytes, all before `end`; also returns the position after them."""
    length, position = _read_number(data, position, end)
    if length < -1 or length > end - position:
        raise _DamageError(Fault.FIELD_LENGTH, length)
    return (None, position) if length < 0 else (slice(position, position + length), position + length)


def _read_fields(data: bytes, start: int) -> Fields:
    """Checks the record at byte `start`, and returns its fields with the timestamp delta."""
    length, at = _read_number(data, start, len(data))
    end = at + length
    if length < MIN_RECORD - 1 or end > len(data):
        raise _DamageError(Fault.RECORD_LENGTH, length)
    # Skip one byte: the attributes, which are unused.
    timestamp_delta, at = _read_number(data, at + 1, end, 64)
    offset_delta, at = _read_number(data, at, end)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    count, at = _read_number(data, at, end)
    # Every header takes at least two bytes, so a count beyond the remaining bytes is invalid: do not start.
    if count < 0 or count > (end - at) // MIN_HEADER:
        raise _DamageError(Fault.HEADER_COUNT, count)
    headers = []
    for _ in range(count):
        length, _ = _read_number(data, at, end)
        if length < 0:
            raise _DamageError(Fault.NULL_HEADER_KEY, length)
        name, at = _read_field(data, at, end)
        content, at = _read_field(data, at, end)
        assert name is not None
        headers.append((name, content))
    if at != end:
        raise _DamageError(Fault.RECORD_SIZE, end - at)
    return Fields(start, end, timestamp_delta, offset_delta, key, value, headers)


def read_records(
    data: bytes,
    count: int,
    base_timestamp: int,
    log_append_time: int | None,
    error: Callable[[int, int, int, int], Exception] = record_error,
) -> Iterator[Fields]:
    """Checks the records of a section one after the other, and yields their fields with the timestamp.

    `error` makes the exception for a fault, the index and the position of its record, and a detail.
    """
    end = 0
    for index in range(count):
        start = end
        try:
            fields = _read_fields(data, start)
        except _DamageError as damage:
            fault, detail = damage.args
            raise error(fault, index, start, detail) from None
        timestamp = base_timestamp + fields.timestamp if log_append_time is None else log_append_time
        if timestamp not in _INT64:
            raise error(Fault.TIMESTAMP_RANGE, index, start, 0)
        end = fields.end
        if index == count - 1 and end != len(data):
            raise error(Fault.TRAILING_BYTES, index, start, len(data) - end)
        yield fields._replace(timestamp=timestamp)


def iterate_records(
    data: BytesLike, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None, copy: bool
) -> Iterator[Record]:
    """Yields the records of an uncompressed records section.

    With `log_append_time`, every record gets that timestamp. Without `copy`, keys and values are views of `data`.
    """
    octets = bytes(data)
    source = octets if copy else memoryview(data)
    for start, end, timestamp, offset_delta, key, value, headers in read_records(
        octets, count, base_timestamp, log_append_time
    ):
        yield Record(
            base_offset + offset_delta,
            timestamp,
            None if key is None else source[key],
            None if value is None else source[value],
            tuple(
                (octets[name].decode("utf-8", "surrogateescape"), None if content is None else source[content])
                for name, content in headers
            ),
            end - start,
        )


def walk_records(
    data: BytesLike, count: int, base_timestamp: int, last_offset_delta: int, consecutive: bool
) -> tuple[int, int, int, int]:
    """Checks every record without creating objects.

    Offset deltas must be 0, 1, 2 ... if `consecutive`, and otherwise ascend within ``0 .. last_offset_delta``. Returns
    the smallest and the largest timestamp, the offset delta of the largest (the first one of several), and the index of
    the first record without a key (-1: all have one). Without records the timestamps are -1.
    """
    lowest = highest = offset_delta_of_highest = first_without_key = previous = -1
    for index, fields in enumerate(read_records(bytes(data), count, base_timestamp, None)):
        timestamp, delta = fields.timestamp, fields.offset_delta
        if consecutive and delta != index:
            raise record_error(Fault.OFFSET_DELTA, index, fields.start, delta)
        if not consecutive and not previous < delta <= last_offset_delta:
            raise record_error(Fault.OFFSET_RANGE, index, fields.start, delta)
        previous = delta
        if fields.key is None and first_without_key < 0:
            first_without_key = index
        if index == 0 or timestamp < lowest:
            lowest = timestamp
        if index == 0 or timestamp > highest:
            highest, offset_delta_of_highest = timestamp, delta
    return lowest, highest, offset_delta_of_highest, first_without_key
