"""Columns to records sections and back: the twin of `compiled.columns`, on numpy and Arrow's own kernels.

Plain Python cannot afford a dozen steps for each record, so both directions are turned on their side: one step over
*all* records at a time. `columns_encoder` does that in one direction; in the other, `columns_layout` finds
where fields are, and `columns_sinks` is where they go.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from barnabas._kernels.faults import CHANGED, MIN_RECORD, RECORD_COUNT, section_error
from barnabas._kernels.pure.checksum import crc32c
from barnabas._kernels.pure.columns_encoder import BinaryColumn, Encoder, HeaderColumn
from barnabas._kernels.pure.columns_format import (
    Buffer,
)
from barnabas._kernels.pure.columns_layout import Batch, IrregularError, kept, read_together, walk
from barnabas._kernels.pure.columns_sinks import BinarySink, ColumnSink, ViewSink

__all__ = [
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "ViewSink",
    "combined_crc32c",
    "plain_extent",
    "plain_sections",
    "records_checksum",
    "repeat_numbers",
    "seal",
    "totals",
]

ATTRIBUTES_OFFSET: Final = 21
CRC_OFFSET: Final = 17
HEADER_SIZE: Final = 61
NO_PRODUCER_ID: Final = -1
TRANSACTIONAL_MASK: Final = 0x10
SIZES: Final = (
    "records",
    "null_keys",
    "key_bytes",
    "null_values",
    "value_bytes",
    "headers",
    "header_key_bytes",
    "null_header_values",
    "header_value_bytes",
)
"""The attributes of a `Section` that `totals` adds up."""
_INT32_MAX: Final = 2**31 - 1

_PRODUCER_STATE: Final = struct.Struct(">qhi")
_PRODUCER_STATE_OFFSET: Final = 43
_UINT32: Final = struct.Struct(">I")


# --- checksum --------------------------------------------------------------------------------------------------------

# Checksums are polynomials over GF(2), lowest power first in the highest bit: x^0 is 2**31.
_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31


def _product(first: int, second: int) -> int:
    """Of two polynomials, modulo the one of CRC-32C."""
    product, power = 0, _ONE
    while power:
        if first & power:
            product ^= second
        second = (second >> 1) ^ (_POLYNOMIAL if second & 1 else 0)
        power >>= 1
    return product


def combined_crc32c(first: int, second: int, length: int) -> int:
    """The checksum of two pieces, one after the other, from those of each; ``length`` is that of the second.

    Each byte that follows multiplies what was before it by x^8, so ``first`` has to be multiplied by x^(8 length),
    which is made of x^8, x^16, x^32 and so on.
    """
    factor, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            factor = _product(square, factor)
        square = _product(square, square)
        length >>= 1
    return _product(factor, first) ^ second


def records_checksum(batch: bytearray | memoryview) -> int:
    """The checksum of the records section of a batch."""
    if len(batch) < HEADER_SIZE:
        raise ValueError(f"{len(batch)} bytes are no batch")
    with memoryview(batch) as view, view[HEADER_SIZE:] as records:
        return crc32c(records)


def seal(
    batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, transactional: bool, checksum: int
) -> None:
    """Finishes the header of a batch: writes down who it is from, unless nobody, and makes the checksum out of that of
    the records section, ``checksum``."""
    if len(batch) < HEADER_SIZE:
        raise ValueError(f"{len(batch)} bytes are no batch")
    if producer_id != NO_PRODUCER_ID:
        _PRODUCER_STATE.pack_into(batch, _PRODUCER_STATE_OFFSET, producer_id, epoch, sequence)
        if transactional:
            batch[ATTRIBUTES_OFFSET + 1] |= TRANSACTIONAL_MASK
    header = crc32c(bytes(batch[ATTRIBUTES_OFFSET:HEADER_SIZE]))
    _UINT32.pack_into(batch, CRC_OFFSET, combined_crc32c(header, checksum, len(batch) - HEADER_SIZE))


# --- decode ----------------------------------------------------------------------------------------------------------


class Section:
    """One decompressed records section, checked from end to end, with the sizes its columns will take.

    `append_timestamp` is the batch's log-append time, which replaces the timestamps of all its records, or None.
    Records before `start_offset` are checked but neither counted nor filled. Timestamps come out times `scale`.

    Who wants views says where the bytes stay: `source` is what holds them, and the section begins at `source_start`.
    """

    source: Buffer | None = None
    source_start: int = 0

    def __init__(
        self,
        data: Buffer,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        scale: int,
    ) -> None:
        if scale < 1:
            raise ValueError(f"a timestamp unit of 1/{scale} ms is none")
        # A copy, as a read-only view may still belong to a buffer that somebody else can write.
        self._data = bytes(data)
        self._base_offset = base_offset
        self._append_time = append_timestamp is not None
        if len(self._data) > _INT32_MAX:
            raise ValueError(f"a records section of {len(self._data)} bytes is longer than a batch can be")
        if not 0 <= count <= len(self._data) // MIN_RECORD:
            raise section_error(RECORD_COUNT, base_offset, count, 0, len(self._data))
        batch = Batch(count, base_offset, last_offset_delta, base_timestamp, append_timestamp, scale)
        try:
            layout = read_together(self._data, batch) if count else walk(self._data, batch)
        except IrregularError:
            layout = walk(self._data, batch)
        self._layout = layout = kept(layout, start_offset)
        self.records = len(layout.offsets)
        self.null_keys = int((layout.key_lengths < 0).sum())
        self.key_bytes = int(layout.key_lengths.sum()) + self.null_keys
        self.null_values = int((layout.value_lengths < 0).sum())
        self.value_bytes = int(layout.value_lengths.sum()) + self.null_values
        self.headers = len(layout.header_keys)
        self.header_key_bytes = int(layout.header_key_lengths.sum())
        self.null_header_values = int((layout.header_value_lengths < 0).sum())
        self.header_value_bytes = int(layout.header_value_lengths.sum()) + self.null_header_values

    def fill(self, sink: ColumnSink) -> None:
        """Appends the records to the columns of `sink`."""
        layout, data, row, end = self._layout, self._data, sink.rows, sink.rows + self.records
        room = end <= sink.max_rows
        if room and sink.offsets is not None:
            sink.offsets[row:end] = layout.offsets
        if room and sink.timestamps is not None:
            sink.timestamps[row:end] = layout.timestamps
        if room and sink.timestamp_types is not None:
            sink.timestamp_types[row:end] = int(self._append_time)
        if room and sink.keys is not None:
            room = sink.keys.append(data, layout.keys, layout.key_lengths)
        if room and sink.values is not None:
            room = sink.values.append(data, layout.values, layout.value_lengths)
        if room and sink.header_offsets is not None:
            assert sink.header_keys is not None
            assert sink.header_values is not None
            sink.header_offsets[row + 1 : end + 1] = sink.header_keys.rows + np.cumsum(layout.header_counts)
            room = sink.header_keys.append(data, layout.header_keys, layout.header_key_lengths)
            room = room and sink.header_values.append(data, layout.header_values, layout.header_value_lengths)
        if not room:
            raise section_error(CHANGED, self._base_offset, self.records, len(data), 0)
        sink.rows = end


# --- batches ----------------------------------------------------------------------------------------------------------


def plain_extent(
    data: memoryview,  # noqa: ARG001 - as the others: for the compiled one
    start_offset: int,  # noqa: ARG001
    may_be_transactional: bool,  # noqa: ARG001
) -> tuple[int, int, bool]:
    """How many records `plain_sections` will find at most before it comes back for the first time, how many bytes their
    keys and values can have together, and whether there is no other batch behind them; as the headers of the batches
    say, of which nothing is checked yet."""
    return 0, 0, False


def plain_sections(
    data: memoryview,  # noqa: ARG001 - as the others: for the compiled one
    at: int,
    start_offset: int,  # noqa: ARG001
    scale: int,  # noqa: ARG001
    check_crc: bool,  # noqa: ARG001
    may_be_transactional: bool,  # noqa: ARG001
    source: Buffer | None,  # noqa: ARG001
    has_views: bool,  # noqa: ARG001
    sink: ColumnSink | None,  # noqa: ARG001
    fd: int = -1,  # noqa: ARG001
    position: int = 0,  # noqa: ARG001
) -> tuple[list[Section], int, int | None, bool]:
    """The sections of those batches from `at` on that need no more than to be checked and read, up to one that does;
    where that one begins; the offset behind the last one before it, None if there was none; and whether there is
    nothing more for sure, but the beginning of a batch perhaps.

    What needs more is left to the caller: what is compressed, a marker, empty, before `start_offset`, perhaps of an
    aborted transaction, cut off, or not as it should be. Here that is everything. Compiled, it spares a batch some
    thirty calls, which take longer than its records do if it has just a few.

    The sink, if there is one, gets all but the headers of all sections that are found. If there was no room for keys or
    values, theirs is not `open` any more. If there was something wrong with the batch behind the last section, none of
    it is. Nothing of a section is missing without it: `Section.fill` can do the same.

    With the descriptor of an open file, there is nothing in `data` but the headers of the batches. The rest is read of
    the file, where `data` begins at this position, into the memory of the sink's column of values, which has to have
    room for `columns_format.READING_ROOM` bytes more. `Section.fill` then has to wait until the file has been read
    into `data`.
    """
    return [], at, None, False


def totals(sections: list[Section]) -> tuple[int, ...]:
    """Adds up the sizes of sections, in the order of `SIZES`."""
    return tuple(sum([getattr(section, name) for section in sections]) for name in SIZES)


def repeat_numbers(numbers: list[int], counts: list[int], into: Buffer) -> None:
    """Fills a buffer with 32-bit numbers: the first one as often as the first count says, and so on."""
    rows = np.frombuffer(into, np.int32)
    if len(numbers) != len(counts) or sum(counts) != len(rows) or min(counts, default=0) < 0:
        raise ValueError("as many counts as numbers, and room for as many numbers as they say")
    rows[:] = np.repeat(np.array(numbers, np.int32), counts)
