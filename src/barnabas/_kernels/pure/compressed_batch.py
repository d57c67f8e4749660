"""Checks a whole compressed batch in one call: `record_batch` for compressed batches.

A broker that keeps the producer's compression must still check the offsets, keys and timestamps of the records. If all
are valid, the batch goes into the log unchanged. So one question is enough here, too: how large are the decompressed
records, if the batch needs no error and no change?

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
    """Returns the decompressed size of the records if the batch is valid and needs no change; otherwise -1.

    A size above `max_decompressed` gives -1. The other limits are those of `is_plain_batch`.
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
    """Returns the maximum decompressed size of a batch's records: 0 if not compressed, -1 if unknown.

    For gzip it is the size that the data claims; the decompressor must enforce it.
    """
    if len(data) <= HEADER_SIZE:
        return 0
    try:
        return output_bound(CompressionType(data[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK), data[HEADER_SIZE:])
    except (ApiError, ValueError):
        return -1
