"""Variable-length integers: how records say their lengths and deltas in as few bytes as they need.

Two steps make one number. *Zig-zag* folds the sign into the lowest bit, so that small negative numbers stay small
(0, -1, 1, -2 become 0, 1, 2, 3). Then the result is cut into groups of seven bits, lowest group first, one group per
byte; the top bit of a byte says that another one follows::

    >>> encode_varint(-1), encode_varint(63), encode_varint(64)
    (b'\\x01', b'~', b'\\x80\\x01')

A ``varint`` carries 32 bits in at most five bytes, a ``varlong`` 64 bits in at most ten. A number that goes on for
longer, or that has bits beyond its width, was not written by any encoder, and is refused rather than cut down.
Padding (``80 00`` for zero) is harmless and accepted, as Kafka does.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import CorruptRecordError

MAX_VARINT_SIZE: Final = 5
MAX_VARLONG_SIZE: Final = 10

_INT32_RANGE: Final = range(-(2**31), 2**31)
_INT64_RANGE: Final = range(-(2**63), 2**63)


def encode_varint(value: int) -> bytes:
    """The bytes of a 32-bit number."""
    if value not in _INT32_RANGE:
        raise ValueError(f"{value} does not fit in a 32-bit varint")
    return encode_unsigned((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """The bytes of a 64-bit number."""
    if value not in _INT64_RANGE:
        raise ValueError(f"{value} does not fit in a 64-bit varlong")
    return encode_unsigned((value << 1) ^ (value >> 63))


def encode_unsigned(value: int) -> bytes:
    """Seven bits per byte, lowest first; `value` is not negative (zig-zag has been applied, where it is wanted)."""
    if value < 0x80:
        return bytes((value,))
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def size_of_varint(value: int) -> int:
    """How many bytes `encode_varint` makes of `value`."""
    return size_of_unsigned((value << 1) ^ (value >> 31))


def size_of_varlong(value: int) -> int:
    """How many bytes `encode_varlong` makes of `value`."""
    return size_of_unsigned((value << 1) ^ (value >> 63))


def size_of_unsigned(value: int) -> int:
    return (value.bit_length() + 6) // 7 or 1


def decode_varint(buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """The 32-bit number at `position`, and the position after it."""
    raw, end = _decode(buffer, position, MAX_VARINT_SIZE, 32)
    return (raw >> 1) ^ -(raw & 1), end


def decode_varlong(buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """The 64-bit number at `position`, and the position after it."""
    raw, end = _decode(buffer, position, MAX_VARLONG_SIZE, 64)
    return (raw >> 1) ^ -(raw & 1), end


def _decode(buffer: bytes | bytearray | memoryview, position: int, max_size: int, width: int) -> tuple[int, int]:
    # A negative position would quietly count from the end of the buffer.
    if position < 0:
        raise CorruptRecordError(f"varint at negative position {position}")
    value = shift = 0
    for index in range(position, position + max_size):
        if index >= len(buffer):
            raise CorruptRecordError(f"varint at byte {position} is cut off by the end of the {len(buffer)} bytes")
        byte = buffer[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> width:
                raise CorruptRecordError(f"varint at byte {position} does not fit in {width} bits")
            return value, index + 1
        shift += 7
    raise CorruptRecordError(f"varint at byte {position} does not end within {max_size} bytes")
