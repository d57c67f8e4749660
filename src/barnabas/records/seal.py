"""Finishes the header of a batch whose records are already encoded."""

from __future__ import annotations

import struct
from typing import Final

from barnabas._kernels import checksum as kernel
from barnabas.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER_SIZE, NO_PRODUCER_ID, TRANSACTIONAL_MASK

_PRODUCER_STATE: Final = struct.Struct(">qhi")
_PRODUCER_STATE_OFFSET: Final = 43
_UINT32: Final = struct.Struct(">I")


def records_checksum(batch: bytearray | memoryview) -> int:
    """Returns the checksum of the records section of a batch."""
    _check_size(batch)
    with memoryview(batch) as view, view[HEADER_SIZE:] as records:
        return kernel.crc32c(records)


def seal(
    batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, transactional: bool, checksum: int
) -> None:
    """Writes the producer's fields, if there is a producer, and the checksum of the batch.

    ``checksum`` is that of the records section: a second pass over the records would take longer than the rest.
    """
    _check_size(batch)
    if producer_id != NO_PRODUCER_ID:
        _PRODUCER_STATE.pack_into(batch, _PRODUCER_STATE_OFFSET, producer_id, epoch, sequence)
        if transactional:
            batch[ATTRIBUTES_OFFSET + 1] |= TRANSACTIONAL_MASK
    header = kernel.crc32c(bytes(batch[ATTRIBUTES_OFFSET:HEADER_SIZE]))
    _UINT32.pack_into(batch, CRC_OFFSET, kernel.combined_crc32c(header, checksum, len(batch) - HEADER_SIZE))


def _check_size(batch: bytearray | memoryview) -> None:
    if len(batch) < HEADER_SIZE:
        raise ValueError(f"a batch has at least {HEADER_SIZE} bytes, not {len(batch)}")
