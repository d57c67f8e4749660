"""What the headers of fetched batches say, without looking at records, and without a compiler."""

from __future__ import annotations

import struct
from typing import Final

_EPOCH: Final = struct.Struct(">qii")
"""Of a batch's header: base offset, length, leader epoch."""
_OFFSETS: Final = struct.Struct(">qi11xi")
"""Base offset, length and, after what is of no interest here, last offset delta."""


def offset_after(data: memoryview) -> int | None:
    """The offset behind the last whole batch."""
    at, size, found = 0, len(data), None
    while at + _OFFSETS.size <= size:
        base_offset, length, last_offset_delta = _OFFSETS.unpack_from(data, at)
        if at + 12 + length > size or length <= 0:
            break
        found = base_offset + last_offset_delta + 1
        at += 12 + length
    return found


def leader_epoch_before(data: memoryview, offset: int) -> int | None:
    """The leader epoch of the last whole batch that begins before an offset."""
    at, size, epoch = 0, len(data), -1
    while at + _EPOCH.size <= size:
        base_offset, length, batch_epoch = _EPOCH.unpack_from(data, at)
        if at + 12 + length > size or base_offset >= offset or length <= 0:
            break
        epoch = batch_epoch
        at += 12 + length
    return epoch if epoch >= 0 else None
