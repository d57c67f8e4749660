"""The record codec in plain Python: the twin of `compiled.record_codec`, with the same names and the same behaviour.

A record inside a batch looks like this (every number but the attributes is zig-zag variable-length)::

    length | attributes (0) | timestamp delta | offset delta | key length, key | value length, value
           | header count | (key length, key, value length, value) per header

A length of -1 means null, which a header key cannot be. `length` counts the bytes after itself, so a record can be
written only once its size is known, and skipped without being parsed.

All of this runs for every record, so it is less readable than the rest of the package: small numbers come from a table,
pieces are joined once at the end, and an IndexError marks the end of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas._kernels.faults import Fault, record_error
from barnabas._kernels.varint import (
    MAX_VARINT_SIZE,
    MAX_VARLONG_SIZE,
    encode_unsigned,
    encode_varint,
    size_of_varint,
)

# The types of a key or value. All but bytes are copied when appended, because they may change later.
BytesLike = bytes | bytearray | memoryview
Headers = Iterable[tuple[str, BytesLike | None]]

_MAX_INT32: Final = 2**31 - 1
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_NO_TIMESTAMP: Final = -1

# The varints of 0 .. 8191, those of one and two bytes: nearly every length and delta.
VARINTS: Final = tuple([encode_unsigned(number << 1) for number in range(8192)])
# The values of one-byte varints.
_ZIGZAG: Final = tuple([(byte >> 1) ^ -(byte & 1) for byte in range(128)])


class Record:
    """One record, read from a batch. `headers` is a tuple of ``(key, value or None)`` pairs.

    `size_in_bytes` is the record's size in the uncompressed batch. Header keys that are not UTF-8 are decoded with
    ``surrogateescape``: producers can write them, and this way they survive being written again.
    """

    __slots__ = ("headers", "key", "offset", "size_in_bytes", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | memoryview | None,
        value: bytes | memoryview | None,
        headers: tuple[tuple[str, bytes | memoryview | None], ...] = (),
        size_in_bytes: int = 0,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.size_in_bytes = size_in_bytes

    def _fields(self) -> tuple[Any, ...]:
        return (self.offset, self.timestamp, self.key, self.value, self.headers, self.size_in_bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, self._fields())

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, size_in_bytes={self.size_in_bytes})"
        )


def encode_headers(headers: Headers) -> bytes:
    """Encodes the header section of a record, including the count."""
    parts = [b""]
    count = 0
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(f"a header key must be a str, not {type(key).__name__}")
        encoded_key = key.encode("utf-8", "surrogateescape")
        size = len(encoded_key)
        if value is None:
            parts += (VARINTS[size] if size < 8192 else encode_varint(size), encoded_key, b"\x01")
        else:
            data = value if type(value) is bytes else memoryview(value).tobytes()
            value_size = len(data)
            parts += (
                VARINTS[size] if size < 8192 else encode_varint(size),
                encoded_key,
                VARINTS[value_size] if value_size < 8192 else encode_varint(value_size),
                data,
            )
        count += 1
    parts[0] = VARINTS[count] if count < 8192 else encode_varint(count)
    return b"".join(parts)


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


def _read_number(data: bytes, position: int, max_size: int, width: int) -> tuple[int, int]:
    """Reads a variable-length number of any size. Raises IndexError where the data ends."""
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


def iterate_records(
    data: BytesLike, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None, copy: bool
) -> Iterator[Record]:
    """Yields the records of an uncompressed records section.

    With `log_append_time`, every record gets that timestamp. Without `copy`, keys and values are views of `data`.
    """
    content = data if type(data) is bytes else bytes(data)
    source = content if copy else memoryview(data)
    size = len(content)
    last = count - 1
    single = _ZIGZAG
    position = start = index = 0
    key: bytes | memoryview | None
    value: bytes | memoryview | None
    headers: tuple[tuple[str, bytes | memoryview | None], ...]
    # The same four lines decode each number of one byte (from the table) or two (the 128 subtracted is the first byte's
    # "more follows" bit); longer ones are rare and use a function. A function for all of them would double the time.
    try:
        for index in range(count):
            start = position
            length = content[position]
            position += 1
            if length < 128:
                length = single[length]
            elif (byte := content[position]) < 128:
                position += 1
                length += (byte << 7) - 128
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = _read_number(content, position - 1, MAX_VARINT_SIZE, 32)
            end = position + length
            if length < 0 or end > size:
                raise record_error(Fault.RECORD_LENGTH, index, start, length)

            # Skip one byte: the attributes, which are unused.
            timestamp = content[position + 1]
            position += 2
            if timestamp < 128:
                timestamp = single[timestamp]
            elif (byte := content[position]) < 128:
                position += 1
                timestamp += (byte << 7) - 128
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            else:
                timestamp, position = _read_number(content, position - 1, MAX_VARLONG_SIZE, 64)

            offset = content[position]
            position += 1
            if offset < 128:
                offset = single[offset]
            elif (byte := content[position]) < 128:
                position += 1
                offset += (byte << 7) - 128
                offset = (offset >> 1) ^ -(offset & 1)
            else:
                offset, position = _read_number(content, position - 1, MAX_VARINT_SIZE, 32)

            length = content[position]
            position += 1
            if length < 128:
                length = single[length]
            elif (byte := content[position]) < 128:
                position += 1
                length += (byte << 7) - 128
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = _read_number(content, position - 1, MAX_VARINT_SIZE, 32)
            if length >= 0:
                key = source[position : position + length]
                position += length
            elif length == -1:
                key = None
            else:
                raise record_error(Fault.FIELD_LENGTH, index, start, length)

            length = content[position]
            position += 1
            if length < 128:
                length = single[length]
            elif (byte := content[position]) < 128:
                position += 1
                length += (byte << 7) - 128
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = _read_number(content, position - 1, MAX_VARINT_SIZE, 32)
            if length >= 0:
                value = source[position : position + length]
                position += length
            elif length == -1:
                value = None
            else:
                raise record_error(Fault.FIELD_LENGTH, index, start, length)

            if content[position]:
                headers, position = _read_headers(content, source, position, index, start)
            else:
                headers = ()
                position += 1
            if position != end:
                raise record_error(Fault.RECORD_SIZE, index, start, position - end)
            if log_append_time is not None:
                timestamp = log_append_time
            else:
                timestamp += base_timestamp
                if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                    raise record_error(Fault.TIMESTAMP_RANGE, index, start, 0)
            if index == last and position != size:
                raise record_error(Fault.TRAILING_BYTES, index, start, size - position)
            yield Record(base_offset + offset, timestamp, key, value, headers, position - start)
    except IndexError:
        raise record_error(Fault.TRUNCATED, index, start, 0) from None
    except _OverlongError:
        raise record_error(Fault.OVERLONG_VARINT, index, start, 0) from None


def _read_headers(
    content: bytes, source: bytes | memoryview, position: int, index: int, start: int
) -> tuple[tuple[tuple[str, bytes | memoryview | None], ...], int]:
    size = len(content)
    count, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
    # Every header takes at least two bytes, so a count beyond the remaining bytes is invalid: do not start.
    if count < 0 or count > size - position:
        raise record_error(Fault.HEADER_COUNT, index, start, count)
    headers: list[tuple[str, bytes | memoryview | None]] = []
    for _ in range(count):
        length = content[position]
        if length < 128:
            length = _ZIGZAG[length]
            position += 1
        else:
            length, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
        if length < 0:
            raise record_error(Fault.NULL_HEADER_KEY, index, start, length)
        key = content[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length = content[position]
        if length < 128:
            length = _ZIGZAG[length]
            position += 1
        else:
            length, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
        if length >= 0:
            headers.append((key, source[position : position + length]))
            position += length
        elif length == -1:
            headers.append((key, None))
        else:
            raise record_error(Fault.FIELD_LENGTH, index, start, length)
    if position > size:
        raise IndexError
    return tuple(headers), position


def walk_records(
    data: BytesLike, count: int, base_timestamp: int, last_offset_delta: int, consecutive: bool
) -> tuple[int, int, int, int]:
    """Checks every record without creating objects.

    Offset deltas must be 0, 1, 2 ... if `consecutive`, and otherwise ascend within ``0 .. last_offset_delta``. Returns
    the smallest and the largest timestamp, the offset delta of the largest (the first one of several), and the index of
    the first record without a key (-1: all have one). Without records the timestamps are -1.
    """
    content = data if type(data) is bytes else bytes(data)
    size = len(content)
    position = start = index = 0
    lowest = highest = _NO_TIMESTAMP
    offset_delta_of_highest = first_without_key = previous = -1
    try:
        for index in range(count):
            start = position
            length, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
            end = position + length
            if length < 0 or end > size:
                raise record_error(Fault.RECORD_LENGTH, index, start, length)
            # Skip one byte: the attributes, which are unused.
            timestamp, position = _read_number(content, position + 1, MAX_VARLONG_SIZE, 64)
            delta, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
            for is_key in (True, False):
                length, position = _read_number(content, position, MAX_VARINT_SIZE, 32)
                if length < -1:
                    raise record_error(Fault.FIELD_LENGTH, index, start, length)
                if length >= 0:
                    position += length
                elif is_key and first_without_key < 0:
                    first_without_key = index
            if content[position] == 0:
                position += 1
            else:
                _, position = _read_headers(content, content, position, index, start)
            if position != end:
                raise record_error(Fault.RECORD_SIZE, index, start, position - end)
            timestamp += base_timestamp
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
                highest = timestamp
                offset_delta_of_highest = delta
            if index == count - 1 and position != size:
                raise record_error(Fault.TRAILING_BYTES, index, start, size - position)
    except IndexError:
        raise record_error(Fault.TRUNCATED, index, start, 0) from None
    except _OverlongError:
        raise record_error(Fault.OVERLONG_VARINT, index, start, 0) from None
    return lowest, highest, offset_delta_of_highest, first_without_key
