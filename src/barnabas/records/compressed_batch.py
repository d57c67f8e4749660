"""Bounds the decompressed size of a batch without decompressing it."""

from __future__ import annotations

from barnabas.common.errors import ApiError
from barnabas.records.batch import ATTRIBUTES_OFFSET, COMPRESSION_MASK, HEADER_SIZE, CompressionType
from barnabas.records.compression import output_bound


def decompressed_bound(batch: memoryview) -> int:
    """Returns an upper bound for the decompressed size of a batch's records: 0 if not compressed, -1 if unknown.

    For gzip it is the size that the data claims; the decompressor must enforce it.
    """
    if len(batch) <= HEADER_SIZE:
        return 0
    codec = batch[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK
    if codec == 0:
        return 0
    try:
        return output_bound(CompressionType(codec), batch[HEADER_SIZE:])
    except (ApiError, ValueError):
        return -1
