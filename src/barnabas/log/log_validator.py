"""What a leader does with the bytes of a produce request before they go into the log.

Two steps, because the first is most of the work and the second needs the log's lock:

1. `LogValidator.validate` looks at everything that can be judged without knowing the log: size, header, checksum, every
   record (in compiled code), keys, timestamps; and compresses anew where the topic wants another codec. A batch that
   is in order and stays as it is, as nearly all do, is found to be that in one step: `plain_batch`, `compressed_batch`.
2. `ValidatedBatch.assign` writes offset, leader epoch and, where the broker's clock counts, the timestamp into the
   header. A header is fixed in size, and offset and epoch are outside the checksum: the batch goes to disk in the
   buffer that it was received in.

Followers, and the metadata quorum, take what they are given, offsets and all: `analyze_replicated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from barnabas._kernels import checksum, compressed_batch, record_batch
from barnabas.common.clock import Clock
from barnabas.common.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from barnabas.common.named_tuple import NamedTuple
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.file_handle import Buffer
from barnabas.log.log_append_info import NO_VALIDATION_STATS, RecordError, RecordValidationStats
from barnabas.log.log_config import LogConfig
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
from barnabas.records.compression import compress
from barnabas.records.reader import Record, read_records, uncompressed_records
from barnabas.records.validation import RecordsSummary, validate_header, validate_records

crc32c = checksum.crc32c
is_plain_batch = record_batch.is_plain_batch
decompressed_bound = compressed_batch.decompressed_bound
size_if_plain = compressed_batch.size_if_plain

_CODECS: Final = {codec.value: codec for codec in CompressionType if codec is not CompressionType.NONE}

MAX_DECOMPRESSED_BYTES: Final = 64 << 20
"""What a client's batch may decompress to: sixty times the largest batch that a default broker takes."""
UNCLAIMED_BYTES: Final = 1 << 20
"""What a gzip stream of several members, which claims only the size of the last one, may decompress to."""

_MAX_EXAMINED: Final = 10_000
"""Of how many records of a refused batch it is found out what is wrong with each: that is work, and for nothing."""


class InvalidRecordsError(InvalidRecordError):
    """Some records of a batch are not acceptable, and so the batch is not."""

    def __init__(self, message: str, record_errors: Iterable[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestampsError(InvalidTimestampError):
    """Some records of a batch have timestamps that the topic does not accept."""

    def __init__(self, message: str, record_errors: Iterable[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class OffsetsOutOfOrderError(InvalidRecordError):
    """Batches from a leader whose offsets do not grow."""


class ValidatedBatch:
    """A batch that may go into the log, in a buffer that may be written to."""

    __slots__ = ("batch", "source_compression", "stats", "timestamp_type")

    def __init__(
        self,
        batch: RecordBatch,
        timestamp_type: TimestampType,
        source_compression: CompressionType,
        stats: RecordValidationStats,
    ) -> None:
        self.batch = batch
        self.timestamp_type = timestamp_type
        self.source_compression = source_compression
        self.stats = stats

    def assign(self, offset: int, leader_epoch: int, now_ms: int) -> RecordBatch:
        """Gives the batch its place in the log. With the log's lock held, so that append times grow as offsets do."""
        batch = self.batch
        batch.set_base_offset(offset)
        batch.set_partition_leader_epoch(leader_epoch)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, now_ms)
        return batch


class CompressedBatch(NamedTuple):
    """A client's compressed batch that may go into the log as it is, in a buffer that may be written to."""

    batch: memoryview
    compression: CompressionType
    stats: RecordValidationStats


class LogValidator:
    """Judges batches for one partition under one configuration."""

    __slots__ = (
        "_clock",
        "_compressed_limits",
        "_config",
        "_kept_codecs",
        "_max_decompressed_bytes",
        "_partition",
        "_plain_limits",
    )

    def __init__(self, partition: TopicPartition, config: LogConfig, clock: Clock) -> None:
        self._partition = partition
        self._config = config
        self._clock = clock
        # For a batch as a whole, where Kafka has a limit for each record alone, and by default none worth the name.
        self._max_decompressed_bytes = max(MAX_DECOMPRESSED_BYTES, config.max_message_bytes)
        # What `is_plain_batch` has to know; None where no batch is plain, because something is changed in all of them.
        self._plain_limits: tuple[int, int, int, bool] | None = None
        self._compressed_limits: tuple[int, int, int, int, bool] | None = None
        # Batches with these codecs stay as they are.
        self._kept_codecs = frozenset(CompressionType if config.compression is None else (config.compression,))
        if config.timestamp_type is TimestampType.CREATE_TIME:
            before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
            if CompressionType.NONE in self._kept_codecs:
                self._plain_limits = (config.max_message_bytes, before, after, config.compact)
            if self._kept_codecs != {CompressionType.NONE}:
                most = config.max_decompressed_message_bytes
                self._compressed_limits = (config.max_message_bytes, most, before, after, config.compact)

    def plain_batch(self, records: Buffer, now_ms: int) -> memoryview | None:
        """A client's batch that may go into the log as it is, once it has its offset; None if that is not sure.

        Everything that `validate` checks has been checked then, in one step: see `barnabas.records.plain_batch`.
        """
        limits = self._plain_limits
        if limits is None:
            return None
        max_size, before_max_ms, after_max_ms, keys_needed = limits
        view = memoryview(records)
        if is_plain_batch(view, max_size, now_ms, before_max_ms, after_max_ms, keys_needed):
            return memoryview(bytearray(view)) if view.readonly else view
        return None

    def compressed_batch(self, records: Buffer, now_ms: int) -> CompressedBatch | None:
        """The same for a batch that is compressed, and stays so: see `barnabas.records.compressed_batch`."""
        limits = self._compressed_limits
        if limits is None or len(records) <= HEADER_SIZE:
            return None
        compression = _CODECS.get(records[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK)
        if compression is None or compression not in self._kept_codecs:
            return None
        max_size, max_decompressed, before_max_ms, after_max_ms, keys_needed = limits
        view = memoryview(records)
        size = size_if_plain(view, max_size, max_decompressed, now_ms, before_max_ms, after_max_ms, keys_needed)
        if size < 0:
            return None
        return CompressedBatch(
            memoryview(bytearray(view)) if view.readonly else view, compression, RecordValidationStats(size)
        )

    def validate(self, records: Buffer, origin: AppendOrigin) -> ValidatedBatch:
        """The one batch that `records` must be. Raises what is wrong with it."""
        config = self._config
        view = memoryview(records)
        if view.readonly:
            view = memoryview(bytearray(view))
        if not view:
            raise InvalidRecordError(f"There is no record batch in an append to {self._partition}")
        batch = RecordBatch(view)
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
        self._check_records(batch, summary)
        compression = batch.compression_type
        stats = NO_VALIDATION_STATS
        if compression is not CompressionType.NONE:
            stats = RecordValidationStats(summary.records_size)
        if config.compression is not None and config.compression is not compression:
            batch, stats = self._recompress(batch, config.compression, summary)
            self._check_size(batch.size_in_bytes)
        if config.timestamp_type is TimestampType.CREATE_TIME:
            # Some clients get the largest timestamp wrong. Everything that goes by time goes by the header.
            batch.set_max_timestamp(TimestampType.CREATE_TIME, summary.max_timestamp)
        return ValidatedBatch(batch, config.timestamp_type, compression, stats)

    def _decompressed_limit(self, batch: RecordBatch) -> int:
        """The most that may come out of a batch. A gzip stream is held to the size that it claims, because who decides
        where a request is handled goes by that."""
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

    def _check_records(self, batch: RecordBatch, summary: RecordsSummary) -> None:
        config = self._config
        if config.compact and summary.first_record_without_key >= 0:
            raise self._missing_keys(batch, summary.first_record_without_key)
        if config.timestamp_type is TimestampType.CREATE_TIME and summary.max_timestamp != NO_TIMESTAMP:
            self._check_timestamps(batch, summary)
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

    def _check_timestamps(self, batch: RecordBatch, summary: RecordsSummary) -> None:
        """No record may be too old or too far in the future; records without a timestamp are neither."""
        now = self._clock.milliseconds()
        earliest = now - self._config.message_timestamp_before_max_ms
        latest = now + self._config.message_timestamp_after_max_ms
        lowest = summary.min_timestamp
        if summary.max_timestamp <= latest and (lowest >= earliest or earliest <= 0):
            return
        if lowest == NO_TIMESTAMP and summary.max_timestamp <= latest:
            # The lowest of those that have one is not known.
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

    # Another codec

    def _recompress(
        self, batch: RecordBatch, target: CompressionType, summary: RecordsSummary
    ) -> tuple[RecordBatch, RecordValidationStats]:
        """The same batch under another codec.

        Records are encoded the same way whatever they are compressed with, so they need not be taken apart.
        """
        started = self._clock.nanoseconds()
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
        stats = RecordValidationStats(
            summary.records_size + len(compressed), batch.record_count, self._clock.nanoseconds() - started
        )
        return RecordBatch(view), stats


class ReplicatedRecords(NamedTuple):
    """Batches that keep the offsets they came with."""

    batches: list[RecordBatch]
    records: memoryview
    """The bytes of the batches that are whole."""


def analyze_replicated(
    records: Buffer, partition: TopicPartition, origin: AppendOrigin, leader_epoch: int
) -> ReplicatedRecords:
    """The batches of a fetch from the leader, or of the leader of the metadata quorum.

    A fetch is cut at a number of bytes, so what is left of a batch at its end is dropped. A batch with a later leader
    epoch than that of the leader who was asked ends it too: by then that broker was a follower itself, and what it had
    of the new leader's records may not be what got committed.
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
