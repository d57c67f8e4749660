"""How large zstd data can get, read off its frames without decompressing anything.

A frame is a magic number, a header, and blocks, each with a header of three bytes that tells its type and size. A
*raw* block is itself; an *RLE* block says how often its one byte repeats; a *compressed* one comes to at most 128 KiB
(or the frame's window, if that is smaller). So their sum bounds the output, also where the content size is not stated:
Java clients compress as they go and cannot state it.

The *window* is how far back a frame says it refers, and the memory that a decoder gets ready for it: up to 128 MiB, on
the word of one byte. No reference can reach back further than the output has come, so a window beyond the bound is cut
down to it before the data is handed on.
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
# Decoders are expected to provide this much for any frame; only larger windows are looked into.
_USUAL_WINDOW: Final = 1 << 23

_UINT32: Final = struct.Struct("<I")


class FrameScan:
    """Goes over all frames of `data`: `bound` is the most they can decompress to.

    `data` is what to decompress: the same bytes, or a copy with unreasonable windows cut down.
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
