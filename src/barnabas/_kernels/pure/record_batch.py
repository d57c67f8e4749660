"""Checks a whole batch in one call: does it need any attention at all?

A broker must check many properties of a batch: size, magic, checksum, flags, counts, timestamps, producer, and then
every record. `validation` and `LogValidator` check them step by step, and report what is wrong. But nearly every batch
is valid and of the plainest kind: new records of a client, not compressed, with timestamps of their own. For those, one
positive result replaces all steps. A negative result is no error: it means that the steps are needed.

This is the twin of `compiled.record_batch`, made of the checks themselves. The compiled kernel does it in one pass and
creates no objects.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import ApiError
from barnabas.records.batch import (
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    RecordBatch,
)
from barnabas.records.validation import validate_header, validate_records

_SPECIAL: Final = 0xFFFF & ~TRANSACTIONAL_MASK
"""All attributes but the transactional one, which makes no difference here."""
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
    if not HEADER_SIZE < len(data) <= max_size:
        return False
    try:
        batch = RecordBatch(data)
        if batch.size_in_bytes != len(data) or batch.attributes & _SPECIAL:
            return False
        validate_header(batch)
        summary = validate_records(batch)
    except ApiError:
        return False
    if keys_needed and summary.first_record_without_key >= 0:
        return False
    highest, earliest = summary.max_timestamp, now_ms - before_max_ms
    return highest < 0 or (highest - now_ms <= after_max_ms and (summary.min_timestamp >= earliest or earliest <= 0))


def offset_after(data: memoryview) -> int | None:
    """Returns the offset after the last whole batch; None if there is no whole batch."""
    at, size, found = 0, len(data), None
    while at + _OFFSETS.size <= size:
        base_offset, length, last_offset_delta = _OFFSETS.unpack_from(data, at)
        if at + 12 + length > size or length <= 0:
            break
        found = base_offset + last_offset_delta + 1
        at += 12 + length
    return found


def leader_epoch_before(data: memoryview, offset: int) -> int | None:
    """Returns the leader epoch of the last whole batch that starts before `offset`; None if it is not known."""
    at, size, epoch = 0, len(data), -1
    while at + _EPOCH.size <= size:
        base_offset, length, batch_epoch = _EPOCH.unpack_from(data, at)
        if at + 12 + length > size or base_offset >= offset or length <= 0:
            break
        epoch = batch_epoch
        at += 12 + length
    return epoch if epoch >= 0 else None


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
