"""The four codecs of record batches, each in the framing that Kafka's clients expect, with bounded output.

=======  =======================================================  ==========================  =======
codec    framing                                                  levels                      default
=======  =======================================================  ==========================  =======
gzip     RFC 1952; several members are read as one                1 .. 9                      -1 (6)
snappy   xerial: a header, then blocks of 32 KiB with lengths     none
lz4      LZ4 frame, see `lz4_frame`                               1 .. 17                     9
zstd     RFC 8878, see `zstd_frame`                               -131072 .. 22               3
=======  =======================================================  ==========================  =======

The sender of a compressed batch determines how much memory it needs: a few hundred bytes can decompress to gigabytes.
So `decompress` gets a limit, computes a bound from the framing before it allocates, and never exceeds it. For any error
in the data it raises a `CorruptRecordError` that starts with the codec's name.

The library for three of the codecs is imported with the first batch that needs it: many brokers never do.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from barnabas.common.errors import CorruptRecordError
from barnabas.records import lz4_frame
from barnabas.records.batch import CompressionType
from barnabas.records.zstd_frame import FrameScan

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""The default limit for the decompressed size of a batch: a hundred times the default largest batch of a broker."""

_LEVELS: Final = {
    CompressionType.GZIP: (1, zlib.Z_BEST_COMPRESSION),
    CompressionType.LZ4: (1, lz4_frame.MAX_LEVEL),
    CompressionType.ZSTD: (-131072, 22),
}
_DEFAULT_LEVELS: Final = {
    CompressionType.GZIP: zlib.Z_DEFAULT_COMPRESSION,
    CompressionType.LZ4: lz4_frame.DEFAULT_LEVEL,
    CompressionType.ZSTD: 3,
}

# Selects a gzip header and trailer around the deflate stream in zlib.
_GZIP_WBITS: Final = 31
# A header of ten bytes, an empty deflate stream, checksum and size.
_SMALLEST_GZIP: Final = 18
# The size of the first piece for every gzip member after the first.
_GZIP_STEP: Final = 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
# Three bytes of snappy copy 64 bytes at most.
_SNAPPY_MAX_RATIO: Final = 22
_INT32: Final = struct.Struct(">i")


def default_level(compression: CompressionType) -> int | None:
    """Returns the default level; None for a codec without levels."""
    return _DEFAULT_LEVELS.get(compression)


def check_level(compression: CompressionType, level: int | None) -> int | None:
    """Returns `level`, or the default for None; ValueError with the range if the codec does not have this level."""
    if level is None:
        return _DEFAULT_LEVELS.get(compression)
    if compression not in _LEVELS:
        raise ValueError(f"{compression.codec_name} has no compression levels (level {level} was given)")
    lowest, highest = _LEVELS[compression]
    if not lowest <= level <= highest and level != _DEFAULT_LEVELS[compression]:
        extra = " or -1" if compression is CompressionType.GZIP else ""
        raise ValueError(f"{compression.codec_name} level {level} is not between {lowest} and {highest}{extra}")
    return level


def compress(
    compression: CompressionType, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes | bytearray | memoryview:
    """Compresses `data` in the framing of `compression`."""
    level = check_level(compression, level)
    if compression is CompressionType.NONE:
        return data
    if compression is CompressionType.SNAPPY:
        return _compress_snappy(data)
    assert level is not None
    if compression is CompressionType.LZ4:
        return lz4_frame.compress(data, level)
    if compression is CompressionType.ZSTD:
        return _compress_zstd(data, level)
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def decompress(
    compression: CompressionType, data: bytes | bytearray | memoryview, max_output: int
) -> bytes | bytearray | memoryview:
    """Decompresses `data`; `CorruptRecordError` if the result exceeds `max_output` bytes."""
    if compression is CompressionType.NONE:
        return data
    if compression is CompressionType.LZ4:
        return lz4_frame.decompress(data, max_output)
    if compression is CompressionType.ZSTD:
        return _decompress_zstd(data, max_output)
    if compression is CompressionType.SNAPPY:
        return _decompress_snappy(memoryview(data), max_output)
    return _decompress_gzip(memoryview(data), max_output)


def output_bound(compression: CompressionType, data: memoryview) -> int:
    """Returns an upper bound for the decompressed size, from the framing; 0 if `data` is not compressed.

    A gzip stream only states its size, in its last four bytes. `CorruptRecordError` if the framing is damaged.
    """
    if compression is CompressionType.NONE:
        return 0
    if compression is CompressionType.LZ4:
        return lz4_frame.output_bound(data)
    if compression is CompressionType.ZSTD:
        return FrameScan(data).bound
    if compression is CompressionType.SNAPPY:
        return sum(_snappy_sizes(_snappy_blocks(data)))
    if len(data) < _SMALLEST_GZIP:
        raise CorruptRecordError(f"gzip: {len(data)} bytes are not a whole member")
    return int.from_bytes(data[-4:], "little")


def _too_large(codec: str, max_output: int) -> CorruptRecordError:
    return CorruptRecordError(f"{codec}: larger than {max_output} bytes when decompressed")


def _compress_zstd(data: bytes | bytearray | memoryview, level: int) -> memoryview:
    import cramjam

    return memoryview(cramjam.zstd.compress(data, level=level))


def _decompress_zstd(data: bytes | bytearray | memoryview, max_output: int) -> bytearray:
    import cramjam

    scan = FrameScan(data)
    output = bytearray(min(scan.bound, max_output))
    try:
        written = cramjam.zstd.decompress_into(scan.data, output)
    except cramjam.DecompressionError as error:
        if scan.bound > max_output:
            raise CorruptRecordError(
                f"zstd: the data is damaged, or larger than {max_output} bytes when decompressed: {error}"
            ) from error
        raise CorruptRecordError(f"zstd: {error}") from error
    # The bound can be far above the actual size (up to 128 KiB per block), and views may keep this memory for long.
    del output[written:]
    return output


def _decompress_gzip(view: memoryview, max_output: int) -> bytes:
    """Decompresses gzip data one member at a time.

    zlib returns unused input as a copy. The first member gets the whole input, because it is nearly always the only
    one. The others get a small piece that doubles each time; otherwise, thousands of tiny members would copy the rest
    thousands of times.
    """
    outputs: list[bytes] = []
    room = max_output
    position = 0
    step = len(view)
    while position < len(view) or not outputs:
        decompressor = zlib.decompressobj(_GZIP_WBITS)
        while not decompressor.eof:
            piece = view[position : position + step]
            if not piece:
                raise CorruptRecordError("gzip: the data ends in the middle of a member")
            position += len(piece)
            step *= 2
            try:
                # One byte above the limit, to tell "exactly the limit" from "too much". Never 0, which means no limit.
                output = decompressor.decompress(piece, room + 1)
            except zlib.error as error:
                raise CorruptRecordError(f"gzip: {error}") from error
            if len(output) > room:
                raise _too_large("gzip", max_output)
            room -= len(output)
            outputs.append(output)
        position -= len(decompressor.unused_data)
        step = _GZIP_STEP
    return outputs[0] if len(outputs) == 1 else b"".join(outputs)


def _compress_snappy(data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes | memoryview] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, max_output: int) -> memoryview:
    import cramjam

    blocks = _snappy_blocks(view)
    sizes = _snappy_sizes(blocks)
    total = sum(sizes)
    if total > max_output:
        raise _too_large("snappy", max_output)
    try:
        output = memoryview(bytearray(total))
        written = 0
        for block, size in zip(blocks, sizes, strict=True):
            written += cramjam.snappy.decompress_raw_into(block, output[written : written + size])
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(str(error) if str(error).startswith("snappy") else f"snappy: {error}") from error
    return output[:written]


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    """Returns the xerial blocks, or a single block of bare snappy, as some clients send it."""
    return _xerial_blocks(view) if bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC else [view]


def _snappy_sizes(blocks: list[memoryview]) -> list[int]:
    """Returns the decompressed size that each block states."""
    import cramjam

    sizes = []
    for block in blocks:
        if not block:
            raise CorruptRecordError("snappy: an empty block")
        try:
            size = cramjam.snappy.decompress_raw_len(block)
        except cramjam.DecompressionError as error:
            raise CorruptRecordError(str(error) if str(error).startswith("snappy") else f"snappy: {error}") from error
        # The stated size is needed for the allocation, but only a possible one is trusted.
        if size > len(block) * _SNAPPY_MAX_RATIO:
            raise CorruptRecordError(f"snappy: a block of {len(block)} bytes claims to hold {size}")
        sizes.append(size)
    return sizes


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position = 0
    while position < len(view):
        # A stream that was written in several parts has a header before each.
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise CorruptRecordError("snappy: the data ends in the middle of the header")
            # As lenient as Java: some producers write the number 1 with reversed bytes.
            (compatible_version,) = _INT32.unpack_from(view, position - 4)
            if compatible_version < 1:
                raise CorruptRecordError(f"snappy: unknown block format {compatible_version}")
            continue
        if position + 4 > len(view):
            raise CorruptRecordError("snappy: the data ends in the middle of a block length")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise CorruptRecordError(f"snappy: a block of {length} bytes where {len(view) - position} are left")
        blocks.append(view[position : position + length])
        position += length
    return blocks
