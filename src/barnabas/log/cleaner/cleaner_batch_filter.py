"""Decides which records and batches compaction retains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas._kernels import append_state, checksum, record_codec
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.cleaner_stats import CleanerStats
from barnabas.log.producers.log_producers import LastRecord
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
)
from barnabas.records.compression import compress
from barnabas.records.reader import uncompressed_records

if TYPE_CHECKING:
    from barnabas.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata

Record = record_codec.Record
AppendState = append_state.AppendState
iterate_records = record_codec.iterate_records
crc32c = checksum.crc32c

_CRC_END: Final = ATTRIBUTES_OFFSET
_LARGEST_BATCH: Final = 2**31 - 1


class RetainedBatch(NamedTuple):
    """A batch for the cleaned segment."""

    data: bytes | bytearray | memoryview
    last_offset: int
    max_timestamp: int
    record_count: int


class CleanerBatchFilter:
    """Filters the batches of a log in the order of their offsets.

    **Records** are retained if they are the last of their key, or lie beyond the range of the offset map. Records
    without a key cannot be compacted and are removed.

    **Tombstones**, records without a value, are also retained if they are the last of their key, but not for ever. The
    first round that finds one (all older records of its key are removed then) writes the time of its removal into the
    batch: the *delete horizon*, ``delete.retention.ms`` from now. Until then a consumer that has seen an older record
    can still learn that the key is deleted. The horizon replaces the base timestamp in the header, and bit 6 of the
    attributes marks it; the timestamps of the records, which are relative to it, are rewritten. **Transaction markers**
    whose transaction has no batches left are removed in the same way.

    **Offsets** never change: neither those of records nor the range of the batch, which matches the producer's sequence
    numbers. A batch without remaining records is removed, with two exceptions that are retained as a header: the last
    batch of an active producer, because a restart restores its last sequence number from it, and the last batch of this
    round, so that the log does not end earlier than before.

    **Output.** A batch that loses nothing is copied unchanged. Otherwise the bytes of the retained records are joined
    (their offset and timestamp deltas stay valid), and compressed if they were. They are decoded only if there is a new
    delete horizon.

    In one respect this is more careful than Kafka: a batch that extends beyond the offset map (because the map got
    full) gets no delete horizon. The older records of its keys have not been removed yet.
    """

    __slots__ = (
        "_last_records",
        "_max_decompressed_bytes",
        "_new_delete_horizon_ms",
        "_now_ms",
        "_offset_map",
        "_stats",
        "_transactions",
        "_upper_bound_offset",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactionMetadata,
        last_records: Mapping[int, LastRecord],
        stats: CleanerStats,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound_offset: int,
        max_decompressed_bytes: int,
    ) -> None:
        """`last_records` are those of the active producers; `upper_bound_offset` is the end of this round."""
        self._offset_map = offset_map
        self._transactions = transactions
        self._last_records = last_records
        self._stats = stats
        self._now_ms = now_ms
        self._new_delete_horizon_ms = now_ms + delete_retention_ms
        self._upper_bound_offset = upper_bound_offset
        self._max_decompressed_bytes = max_decompressed_bytes

    def retain(self, batch: RecordBatch) -> RetainedBatch | None:
        """Returns the retained part of a batch; None if it is removed."""
        self._stats.messages_read += batch.record_count
        self._stats.bytes_read += batch.size_in_bytes
        retained = self._retain_control(batch) if batch.is_control_batch else self._retain_data(batch)
        if retained is None and self._is_retained_empty(batch):
            retained = RetainedBatch(_emptied(batch), batch.last_offset, batch.max_timestamp, 0)
        if retained is not None:
            self._stats.messages_written += retained.record_count
            self._stats.bytes_written += len(retained.data)
        return retained

    def _is_retained_empty(self, batch: RecordBatch) -> bool:
        if batch.next_offset == self._upper_bound_offset:
            return True
        last = self._last_records.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        # Only a marker is left of the producer. Its epoch fences older instances of the producer.
        return batch.is_control_batch and batch.producer_epoch == last.producer_epoch

    def _retain_control(self, batch: RecordBatch) -> RetainedBatch | None:
        can_go = self._transactions.on_control_batch_read(batch)
        if batch.record_count == 0:
            return None
        horizon = batch.delete_horizon_ms
        if can_go and horizon is None:
            return self._with_delete_horizon(batch, list(self._records(batch, self._uncompressed(batch))))
        if can_go and horizon is not None and horizon <= self._now_ms:
            return None
        return _unchanged(batch)

    def _retain_data(self, batch: RecordBatch) -> RetainedBatch | None:
        is_aborted = self._transactions.on_batch_read(batch)
        if is_aborted or batch.record_count == 0:
            return None
        latest_offset = self._offset_map.latest_offset
        if batch.base_offset > latest_offset:
            return _unchanged(batch)
        last_offset_of = self._offset_map.get
        horizon = batch.delete_horizon_ms
        keep_tombstones = horizon is None or self._now_ms < horizon
        tombstones = False
        data = self._uncompressed(batch)
        survivors: list[Record] = []
        pieces: list[memoryview] = []
        """The parts of `data` with retained records; adjacent records are one part."""
        view = memoryview(data)
        position = piece_start = 0
        for record in self._records(batch, data):
            end = position + record.size_in_bytes
            if record.offset > latest_offset:
                survives = True
            elif record.key is None:
                self._stats.invalid_messages_read += 1
                survives = False
            elif record.value is None:
                survives = keep_tombstones and record.offset >= last_offset_of(record.key)
                tombstones |= survives
            else:
                survives = record.offset >= last_offset_of(record.key)
            if survives:
                survivors.append(record)
            else:
                if piece_start < position:
                    pieces.append(view[piece_start:position])
                piece_start = end
            position = end
        if not survivors:
            return None
        if tombstones and horizon is None and batch.last_offset <= latest_offset:
            return self._with_delete_horizon(batch, survivors)
        if len(survivors) == batch.record_count:
            return _unchanged(batch)
        if piece_start < position:
            pieces.append(view[piece_start:position])
        return _rebuilt(batch, survivors, b"".join(pieces))

    def _uncompressed(self, batch: RecordBatch) -> bytes | bytearray | memoryview:
        return uncompressed_records(batch, self._max_decompressed_bytes)

    def _records(self, batch: RecordBatch, data: bytes | bytearray | memoryview) -> Iterator[Record]:
        """Yields views of `data`, which must not outlive the batch."""
        append_time = batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        return iterate_records(data, batch.record_count, batch.base_offset, batch.base_timestamp, append_time, False)

    def _with_delete_horizon(self, batch: RecordBatch, survivors: list[Record]) -> RetainedBatch:
        horizon = self._new_delete_horizon_ms
        appender = AppendState(horizon, _LARGEST_BATCH, 1.0)
        base_offset = batch.base_offset
        for record in survivors:
            appender.append_with_delta(
                record.offset - base_offset, record.timestamp, record.key, record.value, record.headers
            )
        return _rebuilt(batch, survivors, appender.take(0), horizon)


def _unchanged(batch: RecordBatch) -> RetainedBatch:
    return RetainedBatch(batch.view, batch.last_offset, batch.max_timestamp, batch.record_count)


def _rebuilt(
    batch: RecordBatch,
    survivors: list[Record],
    records: bytes | bytearray,
    delete_horizon_ms: int | None = None,
) -> RetainedBatch:
    """Returns the batch with another records section; producer, epochs and offsets in the header are kept."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        max_timestamp = batch.max_timestamp
    else:
        max_timestamp = max(record.timestamp for record in survivors)
    attributes, base_timestamp = batch.attributes, batch.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = delete_horizon_ms
    section = compress(batch.compression_type, records)
    data = _with_header(batch, attributes, base_timestamp, max_timestamp, len(survivors), section)
    return RetainedBatch(data, batch.last_offset, max_timestamp, len(survivors))


def _emptied(batch: RecordBatch) -> bytearray:
    """Returns the header alone, which keeps the producer, the leader epoch and the offsets."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    return _with_header(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _with_header(
    batch: RecordBatch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    section: bytes | bytearray | memoryview,
) -> bytearray:
    data = bytearray(HEADER_SIZE)
    data += section
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        len(data) - LOG_OVERHEAD,
        batch.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    with memoryview(data) as view:
        data[CRC_OFFSET:_CRC_END] = crc32c(view[ATTRIBUTES_OFFSET:]).to_bytes(4)
    return data
