"""The look at a whole batch that is compressed: `record_batch` for those.

A broker that keeps batches as producers compressed them has to look into them all the same, for the offsets, keys and
timestamps of the records. Where all is in order, nothing of that shows in what it writes: the batch goes into the log
as it came. So one question does here, too: how large are the records when they are decompressed, if there is nothing to
say about them and nothing to change?

This is the twin of `compiled.compressed_batch`, made of the checks themselves. The compiled kernel reads fewer kinds of
frames, so it may return -1 where this one returns a size; never the other way round.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ApiError
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    CompressionType,
    RecordBatch,
)
from barnabas.records.compression import output_bound
from barnabas.records.validation import validate_header, validate_records

_SPECIAL: Final = 0xFFFF & ~(TRANSACTIONAL_MASK | COMPRESSION_MASK)


def size_if_plain(
    data: memoryview,
    max_size: int,
    max_decompressed: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    keys_needed: bool,
) -> int:
    """The size of the records of a compressed batch, decompressed, if there is nothing to say about it; -1 if not.

    More than `max_decompressed` would have to be said something about. The other limits are those of `is_plain_batch`.
    """
    if not HEADER_SIZE < len(data) <= max_size:
        return -1
    try:
        batch = RecordBatch(data)
        if batch.size_in_bytes != len(data) or batch.attributes & _SPECIAL or not batch.is_compressed:
            return -1
        validate_header(batch)
        summary = validate_records(batch)
    except ApiError:
        return -1
    if summary.records_size > max_decompressed or (keys_needed and summary.first_record_without_key >= 0):
        return -1
    highest, earliest = summary.max_timestamp, now_ms - before_max_ms
    if highest >= 0 and (highest - now_ms > after_max_ms or (summary.min_timestamp < earliest and earliest > 0)):
        return -1
    return summary.records_size


def decompressed_bound(data: memoryview) -> int:
    """The most that the records of a batch can decompress to: 0 if they are not compressed, -1 if that is not known.

    Of gzip it is what the data claims; who decompresses it must not let it become more.
    """
    if len(data) <= HEADER_SIZE:
        return 0
    try:
        return output_bound(CompressionType(data[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK), data[HEADER_SIZE:])
    except (ApiError, ValueError):
        return -1
