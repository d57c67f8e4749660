"""Validates the batches of produce requests before they are appended.

`LogValidator.validate` checks everything that does not depend on the state of the log: size, header, checksum, every
record, keys, timestamps. It does not need the log's lock. It recompresses if the topic has another codec. The fast path
is one kernel call that checks the whole batch, and suffices for a client's uncompressed batch that needs no change. For
the others, individual checks find out what is wrong or has to be changed.

With the lock held, the log writes offset, leader epoch and, with ``LogAppendTime``, the timestamp into the header. The
size of a header is fixed, and the checksum does not cover offset and epoch. So the batch is written to disk from the
buffer that it was received in.

Followers and the metadata quorum append batches unchanged, with their offsets: `analyze_replicated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas._kernels import checksum, record_batch
from barnabas.common.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.log_append_info import RecordError
from barnabas.log.segment.file_handle import Buffer
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    CompressionType,
    RecordBatch,
    TimestampType,
    iter_batches,
)
from barnabas.records.compressed_batch import decompressed_bound
from barnabas.records.compression import compress
from barnabas.records.reader import Record, read_records, uncompressed_records
from barnabas.records.validation import RecordsSummary, validate_header, validate_records

crc32c = checksum.crc32c
is_plain_batch = record_batch.is_plain_batch

_CLIENT: Final = AppendOrigin.CLIENT
"""Bound here because every append reads it: a member lookup in an enum class costs as much as a call."""
_CODECS: Final = {codec.value: codec for codec in CompressionType if codec is not CompressionType.NONE}

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""The limit for a client's decompressed batch: sixty times the default maximum batch size."""
UNCLAIMED_BYTES: Final = 1 << 20
"""The limit for a gzip stream of several members, which states only the size of the last one."""

_MAX_EXAMINED: Final = 10_000
"""The maximum number of records of a rejected batch that are examined for individual errors, to limit that work."""


class InvalidRecordsError(InvalidRecordError):
    """A batch is rejected because some of its records are invalid."""

    def __init__(self, message: str, record_errors: Iterable[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestampsError(InvalidTimestampError):
    """Some records of a batch have timestamps that the topic does not accept."""

    def __init__(self, message: str, record_errors: Iterable[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class OffsetsOutOfOrderError(InvalidRecordError):
    """Offsets of batches from a leader do not grow."""


class LogValidator:
    """Validates batches for one partition under one configuration."""

    __slots__ = (
        "_config",
        "_keeps_uncompressed",
        "_max_decompressed_bytes",
        "_partition",
        "timestamp_type",
    )

    def __init__(self, partition: TopicPartition, config: LogConfig) -> None:
        self._partition = partition
        self._config = config
        # Applies to the whole batch. Kafka limits only each record, and by default practically not.
        self._max_decompressed_bytes = max(MAX_DECOMPRESSED_BYTES, config.max_message_bytes)
        self.timestamp_type = config.timestamp_type
        creates = config.timestamp_type is TimestampType.CREATE_TIME
        self._keeps_uncompressed = creates and config.compression in {None, CompressionType.NONE}
        """Whether an uncompressed batch can be appended unchanged. With ``LogAppendTime`` every batch is changed."""

    def validate(self, records: Buffer, origin: AppendOrigin, now_ms: int) -> RecordBatch:
        """Validates `records`, which must be one batch, and returns it in a writable buffer; raises if invalid."""
        config = self._config
        view = records if type(records) is memoryview else memoryview(records)
        if view.readonly:
            view = memoryview(bytearray(view))
        if not view:
            raise InvalidRecordError(f"There is no record batch in an append to {self._partition}")
        batch = RecordBatch(view)
        if origin is _CLIENT and self._needs_no_change(batch, view, now_ms):
            return batch
        size = batch.size_in_bytes
        if size != len(view):
            raise InvalidRecordError(
                f"An append to {self._partition} has {len(view) - size} bytes after its record batch; "
                "only one batch is allowed"
            )
        self._check_size(size)
        validate_header(batch, origin=origin)
        if origin is not AppendOrigin.CLIENT and not 0 < batch.record_count == batch.last_offset_delta + 1:
            raise InvalidRecordError(
                f"A batch for {self._partition} claims {batch.record_count} records in an offset range of "
                f"{batch.last_offset_delta + 1}"
            )
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            raise InvalidTimestampsError(
                f"A batch for {self._partition} claims to have append time, which only a broker can give"
            )
        summary = validate_records(
            batch, max_decompressed_bytes=self._decompressed_limit(batch), check_max_timestamp=False
        )
        self._check_records(batch, summary, now_ms)
        if config.compression is not None and config.compression is not batch.compression_type:
            batch = self._recompress(batch, config.compression)
            self._check_size(batch.size_in_bytes)
        if config.timestamp_type is TimestampType.CREATE_TIME:
            # Some clients send a wrong largest timestamp, and everything that depends on time uses the header.
            batch.set_max_timestamp(TimestampType.CREATE_TIME, summary.max_timestamp)
        return batch

    def _needs_no_change(self, batch: RecordBatch, view: memoryview, now_ms: int) -> bool:
        """Checks with one kernel call whether a client's batch is valid and can be appended unchanged.

        False does not mean that the batch is invalid: the individual checks decide that. They also check every
        compressed batch, because it takes longer to decompress it than to check it step by step.
        """
        config = self._config
        return (
            self._keeps_uncompressed
            and not batch.attributes & COMPRESSION_MASK
            and is_plain_batch(
                view,
                config.max_message_bytes,
                now_ms,
                config.message_timestamp_before_max_ms,
                config.message_timestamp_after_max_ms,
                config.compact,
            )
        )

    def _decompressed_limit(self, batch: RecordBatch) -> int:
        """Returns the limit for the decompressed size of a batch.

        A gzip stream must not exceed its stated size, because the broker chooses the thread of a request by that size.
        """
        if batch.compression_type is not CompressionType.GZIP:
            return self._max_decompressed_bytes
        claimed = decompressed_bound(batch.view)
        return min(max(claimed, UNCLAIMED_BYTES), self._max_decompressed_bytes)

    def _check_size(self, size: int) -> None:
        limit = self._config.max_message_bytes
        if size > limit:
            raise RecordTooLargeError(
                f"A record batch for {self._partition} has {size} bytes; the largest accepted has {limit}",
                record_too_large_partitions={self._partition: size},
            )

    # The records

    def _check_records(self, batch: RecordBatch, summary: RecordsSummary, now_ms: int) -> None:
        config = self._config
        if config.compact and summary.first_record_without_key >= 0:
            raise self._missing_keys(batch, summary.first_record_without_key)
        if config.timestamp_type is TimestampType.CREATE_TIME and summary.max_timestamp != NO_TIMESTAMP:
            self._check_timestamps(batch, summary, now_ms)
        if batch.is_compressed and summary.records_size > config.max_decompressed_message_bytes:
            self._check_decompressed_sizes(batch)

    def _missing_keys(self, batch: RecordBatch, first: int) -> InvalidRecordsError:
        message = f"{self._partition} is compacted: a record needs a key"
        errors = [
            RecordError(index, message)
            for index, record in enumerate(islice(self._records(batch), _MAX_EXAMINED))
            if record.key is None
        ] or [RecordError(first, message)]
        shown = ", ".join(str(error.batch_index) for error in errors[:3])
        return InvalidRecordsError(f"{message}. Without one: record {shown}", errors)

    def _check_timestamps(self, batch: RecordBatch, summary: RecordsSummary, now_ms: int) -> None:
        """Rejects records that are too old or too far in the future. Records without a timestamp are neither."""
        earliest = now_ms - self._config.message_timestamp_before_max_ms
        latest = now_ms + self._config.message_timestamp_after_max_ms
        lowest = summary.min_timestamp
        if summary.max_timestamp <= latest and (lowest >= earliest or earliest <= 0):
            return
        if lowest == NO_TIMESTAMP and summary.max_timestamp <= latest:
            # The summary does not have the lowest timestamp among the records with one.
            stamped = [record.timestamp for record in self._records(batch) if record.timestamp >= 0]
            if min(stamped) >= earliest:
                return
        allowed = f"between {max(earliest, 0)} and {latest}"
        errors = [
            RecordError(index, f"timestamp {record.timestamp} is not {allowed}")
            for index, record in enumerate(islice(self._records(batch), _MAX_EXAMINED))
            if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
        ]
        raise InvalidTimestampsError(
            f"A batch for {self._partition} has timestamps that are not {allowed}, as the topic demands; the largest "
            f"is {summary.max_timestamp}",
            errors,
        )

    def _check_decompressed_sizes(self, batch: RecordBatch) -> None:
        limit = self._config.max_decompressed_message_bytes
        for record in self._records(batch):
            if record.size_in_bytes > limit:
                raise RecordTooLargeError(
                    f"A record for {self._partition} has {record.size_in_bytes} bytes when decompressed; the largest "
                    f"accepted has {limit}",
                    record_too_large_partitions={self._partition: record.size_in_bytes},
                )

    def _records(self, batch: RecordBatch) -> Iterator[Record]:
        return read_records(batch, max_decompressed_bytes=self._max_decompressed_bytes, copy=False)

    # Recompression

    def _recompress(self, batch: RecordBatch, target: CompressionType) -> RecordBatch:
        """Returns the batch recompressed with another codec.

        The encoding of records does not depend on the codec, so they are not decoded.
        """
        data = uncompressed_records(batch, self._max_decompressed_bytes)
        compressed = compress(target, data, self._config.compression_level)
        buffer = bytearray(HEADER_SIZE)
        HEADER.pack_into(
            buffer,
            0,
            batch.base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(compressed),
            batch.partition_leader_epoch,
            batch.magic,
            0,
            batch.attributes & ~COMPRESSION_MASK | target,
            batch.last_offset_delta,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
        )
        buffer += compressed
        view = memoryview(buffer)
        view[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc32c(view[ATTRIBUTES_OFFSET:]).to_bytes(4)
        return RecordBatch(view)


class ReplicatedRecords(NamedTuple):
    """Batches that keep their offsets."""

    batches: list[RecordBatch]
    records: memoryview
    """The bytes of the complete batches."""


def analyze_replicated(
    records: Buffer, partition: TopicPartition, origin: AppendOrigin, leader_epoch: int
) -> ReplicatedRecords:
    """Validates the batches of a fetch from the leader, or of an append by the leader of the metadata quorum.

    A fetch response is cut at a number of bytes, so an incomplete batch at its end is dropped. A batch with a later
    epoch than the fetched leader's also ends the result: that broker was a follower itself by then, and its copy of
    the new leader's records may not have been committed.
    """
    view = memoryview(records)
    batches: list[RecordBatch] = []
    last_offset = -1
    end = 0
    for batch in iter_batches(view, allow_partial=True):
        if origin is AppendOrigin.RAFT_LEADER:
            if batch.partition_leader_epoch != leader_epoch:
                raise InvalidRecordError(
                    f"A batch from the leader of the metadata quorum has epoch {batch.partition_leader_epoch} instead "
                    f"of {leader_epoch}"
                )
        elif batch.partition_leader_epoch > leader_epoch:
            break
        batch.ensure_valid()
        if batch.last_offset <= last_offset or batch.last_offset_delta < 0:
            raise OffsetsOutOfOrderError(
                f"Offsets of an append to {partition} do not grow: {batch.base_offset} to {batch.last_offset} come "
                f"after {last_offset}"
            )
        last_offset = batch.last_offset
        end += batch.size_in_bytes
        batches.append(batch)
    return ReplicatedRecords(batches, view[:end])
