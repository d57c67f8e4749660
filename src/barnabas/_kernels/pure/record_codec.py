"""The record codec in plain Python: the twin of `compiled.record_codec`, with the same names and the same behaviour.

A record inside a batch looks like this (every number but the attributes is zig-zag variable-length)::

    length | attributes (0) | timestamp delta | offset delta | key length, key | value length, value
           | header count | (key length, key, value length, value) per header

A length of -1 means null, which a header key cannot be. `length` counts the bytes after itself, so a record can be
written only once its size is known, and skipped without being parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas._kernels.faults import Fault, record_error
from barnabas._kernels.varint import (
    MAX_VARINT_SIZE,
    MAX_VARLONG_SIZE,
    encode_unsigned,
    encode_varint,
    size_of_varint,
)
from barnabas.common.dataclass import dataclass

# The types of a key or value. All but bytes are copied when appended, because they may change later.
BytesLike = bytes | bytearray | memoryview
Headers = Iterable[tuple[str, BytesLike | None]]

_MAX_INT32: Final = 2**31 - 1
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_NO_TIMESTAMP: Final = -1

# The varints of 0 .. 8191, those of one and two bytes: nearly every length and delta.
VARINTS: Final = tuple([encode_unsigned(number << 1) for number in range(8192)])


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


def encode_headers(headers: Headers) -> bytes:
    """Encodes the header section of a record, including the count."""
    parts: list[bytes] = []
    count = 0
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(f"a header key must be a str, not {type(key).__name__}")
        name = key.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(name)), name)
        if value is None:
            parts.append(b"\x01")
        else:
            content = value if type(value) is bytes else memoryview(value).tobytes()
            parts += (encode_varint(len(content)), content)
        count += 1
    return b"".join([encode_varint(count), *parts])


def size_of_payload(key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
    """Returns the size of key, value and headers in a record, including their lengths."""
    size = 1 if not headers else len(encode_headers(headers))
    for field in (key, value):
        if field is None:
            size += 1
        else:
            length = field.nbytes if isinstance(field, memoryview) else len(field)
            size += size_of_varint(length) + length
    return size


class _OverlongError(Exception):
    """A varint is too long; the caller adds its position."""


class _Fields(NamedTuple):
    """The fields of one record: keys and values as slices of the records, None for null."""

    timestamp_delta: int
    offset_delta: int
    key: slice | None
    value: slice | None
    headers: list[tuple[slice, slice | None]]
    end: int


def _read_number(data: bytes, position: int, max_size: int = MAX_VARINT_SIZE, width: int = 32) -> tuple[int, int]:
    """Reads a variable-length number; also returns the position after it. Raises IndexError where the data ends."""
    raw = shift = 0
    for _ in range(max_size):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> width:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise _OverlongError


def _read_fields(data: bytes, index: int, start: int) -> _Fields:
    """Checks the record number `index`, which starts at byte `start`, and returns its fields."""

    def field(at: int, fault: int, least: int) -> tuple[slice | None, int]:
        length, at = _read_number(data, at)
        if length < least:
            raise record_error(fault, index, start, length)
        return (None if length < 0 else slice(at, at + length)), at + max(length, 0)

    try:
        length, at = _read_number(data, start)
        end = at + length
        if length < 0 or end > len(data):
            raise record_error(Fault.RECORD_LENGTH, index, start, length)
        # Skip one byte: the attributes, which are unused.
        timestamp_delta, at = _read_number(data, at + 1, MAX_VARLONG_SIZE, 64)
        offset_delta, at = _read_number(data, at)
        key, at = field(at, Fault.FIELD_LENGTH, -1)
        value, at = field(at, Fault.FIELD_LENGTH, -1)
        count, at = _read_number(data, at)
        # Every header takes at least two bytes, so a count beyond the remaining bytes is invalid: do not start.
        if count < 0 or count > len(data) - at:
            raise record_error(Fault.HEADER_COUNT, index, start, count)
        headers = []
        for _ in range(count):
            name, at = field(at, Fault.NULL_HEADER_KEY, 0)
            content, at = field(at, Fault.FIELD_LENGTH, -1)
            assert name is not None
            headers.append((name, content))
        if at > len(data):
            raise IndexError
    except IndexError:
        raise record_error(Fault.TRUNCATED, index, start, 0) from None
    except _OverlongError:
        raise record_error(Fault.OVERLONG_VARINT, index, start, 0) from None
    if at != end:
        raise record_error(Fault.RECORD_SIZE, index, start, at - end)
    return _Fields(timestamp_delta, offset_delta, key, value, headers, end)


def iterate_records(
    data: BytesLike, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None, copy: bool
) -> Iterator[Record]:
    """Yields the records of an uncompressed records section.

    With `log_append_time`, every record gets that timestamp. Without `copy`, keys and values are views of `data`.
    """
    content = bytes(data)
    source = content if copy else memoryview(data)
    start = 0
    for index in range(count):
        fields = _read_fields(content, index, start)
        timestamp = base_timestamp + fields.timestamp_delta if log_append_time is None else log_append_time
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise record_error(Fault.TIMESTAMP_RANGE, index, start, 0)
        if index == count - 1 and fields.end != len(content):
            raise record_error(Fault.TRAILING_BYTES, index, start, len(content) - fields.end)
        headers = tuple(
            (content[name].decode("utf-8", "surrogateescape"), None if value is None else source[value])
            for name, value in fields.headers
        )
        key = None if fields.key is None else source[fields.key]
        value = None if fields.value is None else source[fields.value]
        yield Record(base_offset + fields.offset_delta, timestamp, key, value, headers, fields.end - start)
        start = fields.end


def walk_records(
    data: BytesLike, count: int, base_timestamp: int, last_offset_delta: int, consecutive: bool
) -> tuple[int, int, int, int]:
    """Checks every record without creating objects.

    Offset deltas must be 0, 1, 2 ... if `consecutive`, and otherwise ascend within ``0 .. last_offset_delta``. Returns
    the smallest and the largest timestamp, the offset delta of the largest (the first one of several), and the index of
    the first record without a key (-1: all have one). Without records the timestamps are -1.
    """
    content = bytes(data)
    start = 0
    lowest = highest = _NO_TIMESTAMP
    offset_delta_of_highest = first_without_key = previous = -1
    for index in range(count):
        fields = _read_fields(content, index, start)
        if fields.key is None and first_without_key < 0:
            first_without_key = index
        timestamp, delta = base_timestamp + fields.timestamp_delta, fields.offset_delta
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise record_error(Fault.TIMESTAMP_RANGE, index, start, 0)
        if consecutive:
            if delta != index:
                raise record_error(Fault.OFFSET_DELTA, index, start, delta)
        elif not previous < delta <= last_offset_delta:
            raise record_error(Fault.OFFSET_RANGE, index, start, delta)
        previous = delta
        if index == 0 or timestamp < lowest:
            lowest = timestamp
        if index == 0 or timestamp > highest:
            highest, offset_delta_of_highest = timestamp, delta
        if index == count - 1 and fields.end != len(content):
            raise record_error(Fault.TRAILING_BYTES, index, start, len(content) - fields.end)
        start = fields.end
    return lowest, highest, offset_delta_of_highest, first_without_key
