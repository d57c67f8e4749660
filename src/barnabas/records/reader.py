"""Reads the records of a batch lazily, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas._kernels import record_codec
from barnabas.common.errors import CorruptRecordError
from barnabas.records.batch import COMPRESSION_MASK, RecordBatch, TimestampType
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress

Record = record_codec.Record
iterate_records = record_codec.iterate_records

__all__ = ["Record", "read_records", "uncompressed_records"]

# The largest base offset to which any offset delta can be added.
_MAX_BASE_OFFSET: Final = 2**63 - 2**31


def read_records(
    batch: RecordBatch, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, copy: bool = True
) -> Iterator[Record]:
    """Iterates over the records of `batch`.

    The call decompresses the whole batch at once (within `max_decompressed_bytes`); the iterator then creates records
    one by one. Damage raises `CorruptRecordError` when the iterator reaches it; bytes left over after the last record
    raise before that record is returned. The checksum is not verified: see `RecordBatch.ensure_valid`.

    Without `copy`, keys, values and header values are memoryviews, of the batch's own buffer if it is not compressed.
    They suit short-lived use: a kept view keeps the whole buffer.

    Records of a batch with append time all have the batch's timestamp.
    """
    data = uncompressed_records(batch, max_decompressed_bytes)
    if not 0 <= batch.base_offset <= _MAX_BASE_OFFSET:
        raise CorruptRecordError(f"base offset {batch.base_offset} does not leave room for the offsets of records")
    log_append_time = batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    return iterate_records(data, batch.record_count, batch.base_offset, batch.base_timestamp, log_append_time, copy)


def uncompressed_records(batch: RecordBatch, max_decompressed_bytes: int) -> bytes | bytearray | memoryview:
    """Returns the records section, decompressed if necessary; raises if the record count is impossible."""
    count = batch.record_count
    data: bytes | bytearray | memoryview = batch.records_view
    if count < 0:
        raise CorruptRecordError(f"the record batch at offset {batch.base_offset} claims {count} records")
    if count == 0:
        # Compaction leaves only the header of a batch without records. There is nothing to decompress.
        if data:
            raise CorruptRecordError(
                f"the record batch at offset {batch.base_offset} claims no records, but has {len(data)} bytes of them"
            )
        return data
    if not batch.attributes & COMPRESSION_MASK:
        return data
    return decompress(batch.compression_type, data, max_decompressed_bytes)
