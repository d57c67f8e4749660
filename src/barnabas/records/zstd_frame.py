"""Bounds the decompressed size of zstd data by scanning its frames.

A frame is a magic number, a header, and blocks, each with a header of three bytes for type and size. A *raw* block is
stored uncompressed; an *RLE* block states how often its one byte repeats; a *compressed* block has at most 128 KiB of
output (or the frame's window, if that is smaller). So their sum bounds the output, also without a stated content size:
Java clients stream and cannot state it.

The *window* is the distance that references in a frame may reach back, and the memory that a decoder allocates for it:
up to 128 MiB because of a single byte. No reference can reach back further than the output so far, so a window larger
than the bound is reduced to it before decompression.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import CorruptRecordError

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_LARGEST_BLOCK: Final = 1 << 17
_SINGLE_SEGMENT: Final = 0x20
_CHECKSUM: Final = 0x04
_DICTIONARY_ID_SIZES: Final = (0, 1, 2, 4)
# Decoders are expected to support this window for any frame; only larger ones are checked.
_USUAL_WINDOW: Final = 1 << 23

_UINT32: Final = struct.Struct("<I")


class FrameScan:
    """Scans all frames of `data`: `bound` is an upper bound for their decompressed size.

    The attribute `data` is the input for the decoder: the same bytes, or a copy with oversized windows reduced.
    """

    __slots__ = ("_view", "bound", "data")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data)
        self.data: bytes | bytearray | memoryview = data
        self.bound = 0
        view = self._view
        position = frames = 0
        while position < len(view):
            self._need(position + 8)
            (magic,) = _UINT32.unpack_from(view, position)
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 8 + _UINT32.unpack_from(view, position + 4)[0]
                self._need(position)
            elif magic == _MAGIC:
                position = self._frame(position + 4)
                frames += 1
            else:
                raise CorruptRecordError(f"zstd: no frame at byte {position} (magic {magic:#010x})")
        if frames == 0:
            raise CorruptRecordError("zstd: no frame in the data")

    def _frame(self, position: int) -> int:
        view = self._view
        descriptor = view[position]
        position += 1
        is_single_segment = bool(descriptor & _SINGLE_SEGMENT)
        window_position = position
        window = None
        if not is_single_segment:
            exponent, mantissa = view[position] >> 3, view[position] & 7
            window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
            position += 1
        position += _DICTIONARY_ID_SIZES[descriptor & 3]
        size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
        self._need(position + size_bytes)
        content_size = None
        if size_bytes:
            content_size = int.from_bytes(view[position : position + size_bytes], "little")
            if size_bytes == 2:
                content_size += 256
            if window is None:
                window = content_size
            position += size_bytes

        assert window is not None
        bound, position = self._blocks(position, min(window, _LARGEST_BLOCK))
        if descriptor & _CHECKSUM:
            position += 4
            self._need(position)
        if content_size is not None:
            bound = min(bound, content_size)
        if not is_single_segment and window > max(_USUAL_WINDOW, bound):
            self._cut_window(window_position, max(bound, _LARGEST_BLOCK))
        self.bound += bound
        return position

    def _blocks(self, position: int, block_limit: int) -> tuple[int, int]:
        view = self._view
        bound = 0
        is_last = False
        while not is_last:
            self._need(position + 3)
            header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            position += 3
            is_last = bool(header & 1)
            kind, size = header >> 1 & 3, header >> 3
            if kind == 0:
                bound += size
                position += size
            elif kind == 1:
                bound += min(size, block_limit)
                position += 1
            elif kind == 2:
                bound += block_limit
                position += size
            else:
                raise CorruptRecordError(f"zstd: reserved block type at byte {position - 3}")
            self._need(position)
        return bound, position

    def _cut_window(self, position: int, enough: int) -> None:
        if not isinstance(self.data, bytearray) or self.data is self._view.obj:
            self.data = bytearray(self._view)
        self.data[position] = ((enough - 1).bit_length() - 10) << 3

    def _need(self, end: int) -> None:
        if end > len(self._view):
            raise CorruptRecordError("zstd: the data ends in the middle of a frame")
