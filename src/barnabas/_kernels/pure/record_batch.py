"""Checks a whole batch in one call: does it need any attention at all?

A broker must check many properties of a batch: size, magic, checksum, flags, counts, timestamps, producer, and then
every record. `validation` and `LogValidator` check them step by step, and report what is wrong. But nearly every batch
is valid and of the plainest kind: new records of a client, not compressed, with timestamps of their own. For those, one
positive result replaces all steps. A negative result is no error: it means that the steps are needed.

This is the twin of `compiled.record_batch`, which does it in one pass and creates no objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from barnabas._kernels.pure.checksum import crc32c
from barnabas._kernels.pure.record_codec import walk_records
from barnabas.common.errors import ApiError

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_STARTS: Final = 21
_LOG_OVERHEAD: Final = 12
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_EPOCH: Final = struct.Struct(">qii")
"""Base offset, length and leader epoch of a batch."""
_OFFSETS: Final = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
_SEARCHED: Final = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta of a batch."""


def is_plain_batch(
    data: memoryview, max_size: int, now_ms: int, before_max_ms: int, after_max_ms: int, keys_needed: bool
) -> bool:
    """Whether a batch is valid and needs no change.

    It must be all of `data` and no more than `max_size`, with timestamps between `before_max_ms` before now and
    `after_max_ms` after it. With `keys_needed` all records must have keys, as in a compacted topic.
    """
    if not _HEADER.size < len(data) <= max_size:
        return False
    base_offset, length, _, magic, crc, attributes, last_delta, base, highest, *producer, count = _HEADER.unpack_from(
        data
    )
    producer_id, epoch, sequence = producer
    if base_offset != 0 or length + _LOG_OVERHEAD != len(data) or magic != _MAGIC or attributes & ~_TRANSACTIONAL:
        return False
    if last_delta < 0 or count != last_delta + 1 or base < -1 or highest < -1:
        return False
    if (epoch < 0 or sequence < 0) if producer_id >= 0 else attributes:
        return False
    if crc32c(data[_CRC_STARTS:]) != crc:
        return False
    try:
        lowest, found, _, without_key = walk_records(data[_HEADER.size :], count, base, last_delta, True)
    except ApiError:
        return False
    if lowest < -1 or found != highest or (keys_needed and without_key >= 0):
        return False
    earliest = now_ms - before_max_ms
    return highest < 0 or (highest - now_ms <= after_max_ms and (lowest >= earliest or earliest <= 0))


def offset_after(data: memoryview) -> int | None:
    """Returns the offset after the last whole batch; None if there is no whole batch."""
    found = None
    for base_offset, _, last_offset_delta in _whole_batches(data, _OFFSETS):
        found = base_offset + last_offset_delta + 1
    return found


def leader_epoch_before(data: memoryview, offset: int) -> int | None:
    """Returns the leader epoch of the last whole batch that starts before `offset`; None if it is not known."""
    epoch = -1
    for base_offset, _, batch_epoch in _whole_batches(data, _EPOCH):
        if base_offset >= offset:
            break
        epoch = batch_epoch
    return epoch if epoch >= 0 else None


def _whole_batches(data: memoryview, layout: struct.Struct) -> Iterator[tuple[int, int, int]]:
    """Yields three fields of each whole batch, the second of which is the length."""
    at = 0
    while at + layout.size <= len(data):
        fields = layout.unpack_from(data, at)
        at += _LOG_OVERHEAD + fields[1]
        if at > len(data) or fields[1] <= 0:
            break
        yield fields


def find_batch(data: bytes, target: int) -> int:
    """Returns where the first batch begins whose last offset is at least `target`, or where the search had to stop.

    It stops at a header that is invalid, or not complete: the result can be beyond the end of the data.
    """
    at, size = 0, len(data)
    while at + 61 <= size:
        base_offset, length, magic, last_offset_delta = _SEARCHED.unpack_from(data, at)
        if length < 61 - 12 or magic != 2 or base_offset + last_offset_delta >= target:
            break
        at += 12 + length
    return at
