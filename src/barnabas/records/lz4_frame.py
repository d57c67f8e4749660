"""LZ4 frames, the container in which Kafka's clients exchange lz4 data.

A frame is a magic number, a descriptor, blocks, and an end mark::

    04 22 4d 18 | FLG BD [content size] HC | (length, block [checksum]) ... | 00 00 00 00 [content checksum]

FLG says whether blocks are independent of each other (or refer back to earlier ones), which checksums are present, and
whether the content size is stated. BD is the largest block size, HC one byte of a hash of the descriptor. A length with
its top bit set marks a block that is stored uncompressed.

Writing: Kafka's Java client reads *independent* blocks only, while our codec library writes linked ones by default. So
for the default level this module writes the frame itself, around blocks compressed one by one. (Level 9 is the default
and selects the fast compressor, as in Kafka. Other levels select the thorough one, which the library offers for whole
frames only; with independent blocks, it adds a harmless checksum to each.)

Reading: any valid frame. The usual kind (independent blocks, no checksums: Java's and librdkafka's) is read block by
block, ten times faster than by the library's frame reader, which reads the others.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from typing import Final

from barnabas.common.errors import CorruptRecordError

MAX_LEVEL: Final = 17
DEFAULT_LEVEL: Final = 9

_MAGIC: Final = 0x184D2204
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_BLOCK_SIZE: Final = 1 << 16
# Version 1, independent blocks, at most 64 KiB per block, and the hash of these two bytes.
_FRAME_START: Final = bytes.fromhex("04224d18 6040 82")
_END_MARK: Final = bytes(4)
_STORED: Final = 0x80000000

_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_DICTIONARY: Final = 0x01

# One byte of an LZ4 block extends a match by 255 bytes at most.
_MAX_RATIO: Final = 255

_UINT32: Final = struct.Struct("<I")
_UINT64: Final = struct.Struct("<Q")


def compress(data: bytes | bytearray | memoryview, level: int = DEFAULT_LEVEL) -> bytes:
    """Compresses `data` to one frame of independent blocks."""
    import cramjam

    if level != DEFAULT_LEVEL:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    view = memoryview(data)
    parts: list[bytes | memoryview] = [_FRAME_START]
    for start in range(0, len(view), _BLOCK_SIZE):
        block = view[start : start + _BLOCK_SIZE]
        compressed = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        if len(compressed) < len(block):
            parts += (_UINT32.pack(len(compressed)), compressed)
        else:
            parts += (_UINT32.pack(len(block) | _STORED), block)
    parts.append(_END_MARK)
    return b"".join(parts)


def decompress(data: bytes | bytearray | memoryview, max_output: int) -> bytearray:
    """Decompresses one or several frames; raises before the output exceeds `max_output`."""
    import cramjam

    view = memoryview(data)
    scan = _Scan(view, max_output)
    output = bytearray(min(scan.bound, max_output))
    try:
        written = _decompress_blocks(view, scan, output) if scan.is_plain else cramjam.lz4.decompress_into(view, output)
    except cramjam.DecompressionError as error:
        if scan.bound > max_output:
            raise CorruptRecordError(
                f"lz4: the data is damaged, or larger than {max_output} bytes when decompressed: {error}"
            ) from error
        raise CorruptRecordError(f"lz4: {error}") from error
    if scan.content_size is not None and written != scan.content_size:
        raise CorruptRecordError(f"lz4: {written} bytes, but the frame announces {scan.content_size}")
    # The bound can be far above the actual size (megabytes per block), and views may keep this memory for long.
    del output[written:]
    return output


def output_bound(data: memoryview) -> int:
    """Returns an upper bound for the decompressed size of the frames."""
    return _Scan(data, sys.maxsize).bound


def _decompress_blocks(view: memoryview, scan: _Scan, output: bytearray) -> int:
    import cramjam

    written = 0
    with memoryview(output) as whole:
        for start, length, is_stored, limit in scan.blocks:
            with whole[written : written + limit] as room:
                if not is_stored:
                    written += cramjam.lz4.decompress_block_into(view[start : start + length], room)
                elif length <= len(room):
                    room[:length] = view[start : start + length]
                    written += length
                else:
                    raise _too_large(len(output))
    return written


class _Scan:
    """Scans the frames without decompressing: finds the blocks and an upper bound for their decompressed size."""

    __slots__ = ("blocks", "bound", "content_size", "is_plain")

    def __init__(self, view: memoryview, max_output: int) -> None:
        self.blocks: list[tuple[int, int, bool, int]] = []
        self.bound = 0
        # Whether all frames have independent blocks without checksums, which can be decompressed one by one.
        self.is_plain = True
        self.content_size: int | None = None
        position = frames = 0
        while position < len(view):
            magic = _uint32(view, position)
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 8 + _uint32(view, position + 4)
                if position > len(view):
                    raise _cut_off()
            elif magic == _MAGIC:
                position = self._frame(view, position, max_output)
                frames += 1
            else:
                raise CorruptRecordError(f"lz4: no frame at byte {position} (magic {magic:#010x})")
        if frames != 1:
            # The stated size of one of several frames cannot be compared with the whole; the bound includes all sizes.
            self.content_size = None
            if frames == 0:
                raise CorruptRecordError("lz4: no frame in the data")

    def _frame(self, view: memoryview, position: int, max_output: int) -> int:
        if len(view) < position + 7:
            raise _cut_off()
        flags, descriptor = view[position + 4], view[position + 5]
        if flags >> 6 != 1 or flags & 0x02 or descriptor & 0x8F or descriptor < 0x40:
            raise CorruptRecordError(f"lz4: frame descriptor {flags:#04x} {descriptor:#04x} is not valid")
        if flags & _DICTIONARY:
            raise CorruptRecordError("lz4: the frame needs a dictionary")
        block_limit = 1 << (8 + 2 * (descriptor >> 4))
        end = position + 6
        content_size = None
        if flags & _CONTENT_SIZE:
            end += 8
            if len(view) <= end:
                raise _cut_off()
            (content_size,) = _UINT64.unpack_from(view, position + 6)
            if content_size > max_output:
                raise _too_large(max_output)
        if flags & (_INDEPENDENT | _BLOCK_CHECKSUM | _CONTENT_CHECKSUM) != _INDEPENDENT:
            self.is_plain = False
        if (_xxh32(bytes(view[position + 4 : end])) >> 8) & 0xFF != view[end]:
            raise CorruptRecordError("lz4: the hash of the frame descriptor is wrong")
        position = end + 1

        bound = 0
        while length := _uint32(view, position):
            position += 4
            is_stored = bool(length & _STORED)
            length &= ~_STORED
            if length > block_limit:
                raise CorruptRecordError(f"lz4: a block of {length} bytes is larger than the frame's {block_limit}")
            self.blocks.append((position, length, is_stored, block_limit))
            bound += length if is_stored else min(block_limit, length * _MAX_RATIO)
            position += length + (4 if flags & _BLOCK_CHECKSUM else 0)
        position += 4 + (4 if flags & _CONTENT_CHECKSUM else 0)
        if position > len(view):
            raise _cut_off()
        self.bound += bound if content_size is None else min(bound, content_size)
        self.content_size = content_size
        return position


def _uint32(view: memoryview, position: int) -> int:
    if position + 4 > len(view):
        raise _cut_off()
    number: int = _UINT32.unpack_from(view, position)[0]
    return number


def _cut_off() -> CorruptRecordError:
    return CorruptRecordError("lz4: the data ends in the middle of a frame")


def _too_large(max_output: int) -> CorruptRecordError:
    return CorruptRecordError(f"lz4: larger than {max_output} bytes when decompressed")


@lru_cache(maxsize=64)
def _xxh32(data: bytes) -> int:
    """Computes xxHash of a frame descriptor, which has fewer than 16 bytes. Most clients write one and the same."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    value = prime5 + len(data)
    whole_words = len(data) // 4 * 4
    for start in range(0, whole_words, 4):
        value = (value + _UINT32.unpack_from(data, start)[0] * prime3) & 0xFFFFFFFF
        value = (((value << 17) | (value >> 15)) & 0xFFFFFFFF) * prime4
    for byte in data[whole_words:]:
        value = (value + byte * prime5) & 0xFFFFFFFF
        value = (((value << 11) | (value >> 21)) & 0xFFFFFFFF) * prime1
    value &= 0xFFFFFFFF
    value = (value ^ (value >> 15)) * prime2 & 0xFFFFFFFF
    value = (value ^ (value >> 13)) * prime3 & 0xFFFFFFFF
    return value ^ (value >> 16)
