"""The look at a whole batch in one call: does it need any attention at all?

What a broker has to check of a batch is a long list: size, magic, checksum, flags, counts, timestamps, producer, and
then every record. `validation` and `LogValidator` go through it step by step, and can say of each step what is wrong.
Nearly every batch is in order, though, and of the plainest kind: new records of a client, not compressed, with
timestamps of their own. For those one question with the answer yes does for the whole list. The answer no does not mean
that there is anything wrong: it means that somebody has to look.

This is the twin of `_plain_batch`, made of the checks themselves. That one answers in one go, without an object for
anything that it looks at.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import ApiError
from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    PARTITION_LEADER_EPOCH_OFFSET,
    TRANSACTIONAL_MASK,
    RecordBatch,
)
from barnabas.records.validation import validate_header, validate_records

_SPECIAL: Final = 0xFFFF & ~TRANSACTIONAL_MASK
"""All attributes but one: a transaction makes no difference here."""
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")


def is_plain_batch(
    data: memoryview, max_size: int, now_ms: int, before_max_ms: int, after_max_ms: int, keys_needed: bool
) -> bool:
    """Whether there is nothing to say about a batch, and nothing in it to change.

    It has to be all of `data` and no more than `max_size`, and its timestamps between `before_max_ms` before now and
    `after_max_ms` after it. With `keys_needed` all records have keys, as in a topic that is compacted.
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


def place_batch(data: memoryview, offset: int, leader_epoch: int) -> tuple[int, ...]:
    """Writes offset and leader epoch into the header of a batch; returns all fields of it, in their order."""
    if len(data) < HEADER_SIZE:
        raise ValueError(f"{len(data)} bytes are too few for the header of a batch")
    _INT64.pack_into(data, 0, offset)
    _INT32.pack_into(data, PARTITION_LEADER_EPOCH_OFFSET, leader_epoch)
    return HEADER.unpack_from(data)
