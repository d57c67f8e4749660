"""Compacts one log."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import CorruptRecordError, KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_errors import LogCleaningAbortedError
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.cleaner_stats import CleanerStats
from barnabas.log.index.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import LogSegmentOffsetOverflowError
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import (
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    RecordBatch,
    iter_batches,
)
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import read_records

if TYPE_CHECKING:
    from barnabas.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
    from barnabas.log.cleaner.cleaner_batch_filter import CleanerBatchFilter, RetainedBatch
    from barnabas.log.cleaner.log_to_clean import LogToClean

logger = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")

CheckDone = Callable[[TopicPartition], object]
"""Raises if the cleaning of a partition must stop."""
Throttle = Callable[[int], object]
"""Receives the number of bytes read or written; may wait."""


class Cleaner:
    """Removes records that are superseded by a later record with the same key.

    It reads the log twice.

    1. **The dirty part** is read to collect the last offset of each key in an `OffsetMap`. If the map gets full, the
       dirty part ends there for this round, and the next round continues.
    2. **The whole log** up to there is copied, segment by segment, without the records whose key has a later offset in
       the map. `CleanerBatchFilter` describes the other rules. The clean part has to be copied too, because the keys of
       its records may recur in the dirty part.

    Segments shrink, so adjacent segments are merged as long as their sizes before the cleaning fit into one
    (`group_segments_by_size`). Each group is written to a new segment in ``.cleaned`` files, forced to disk, and
    replaces the old segments before the next group starts: a crash loses the work on one group at most.

    **Damage.** The checksum of each batch is verified first. A damaged batch must not be rebuilt: it would get a new
    and correct checksum, which would hide the damage.

    For one thread. Only the replacement of segments needs the log's lock. The log is read in chunks of the I/O buffer's
    size, or of one batch if that is larger.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        clock: Clock,
        *,
        io_buffer_size: int,
        load_factor: float,
        check_done: CheckDone = lambda _: None,
        throttle: Throttle = lambda _: None,
    ) -> None:
        if offset_map.slots * load_factor <= 1:
            raise ValueError(
                f"an offset map for {offset_map.slots} keys is too small to get on with: "
                "log.cleaner.dedupe.buffer.size is too small, or log.cleaner.threads too large"
            )
        self._offset_map = offset_map
        self._clock = clock
        self._io_buffer_size = max(io_buffer_size, HEADER_SIZE)
        self._max_keys = int(offset_map.slots * load_factor)
        self._check_done = check_done
        self._throttle = throttle

    def clean(self, cleanable: LogToClean) -> tuple[int, CleanerStats]:
        """Cleans a log; returns the offset up to which it is clean now, and statistics."""
        from barnabas.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata

        log, offset_map = cleanable.log, self._offset_map
        now_ms = self._clock.milliseconds()
        stats = CleanerStats(self._clock)
        upper_bound_offset = cleanable.first_uncleanable_offset
        logger.info(
            "%s: cleaning from offset %d up to %d",
            log.topic_partition,
            cleanable.first_dirty_offset,
            upper_bound_offset,
        )
        try:
            self.build_offset_map(log, cleanable.first_dirty_offset, upper_bound_offset, stats)
            end_offset = max(offset_map.latest_offset + 1, cleanable.first_dirty_offset)
            stats.map_done()
            transactions = CleanedTransactionMetadata()
            config = log.config
            for group in group_segments_by_size(
                log.segments.between(0, end_offset),
                config.segment_bytes,
                config.segment_index_bytes,
                upper_bound_offset,
            ):
                self.clean_segments(log, group, transactions, upper_bound_offset, now_ms, stats)
            stats.buffer_utilization = offset_map.utilization
        finally:
            offset_map.clear()  # frees the memory while there is nothing to clean
        stats.all_done()
        return end_offset, stats

    # First pass: the offset map

    def build_offset_map(self, log: UnifiedLog, start: int, end: int, stats: CleanerStats) -> None:
        """Finds the last offset of each key from `start` to `end` (exclusive), or until the map is full."""
        from barnabas.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata

        offset_map = self._offset_map
        offset_map.clear()
        transactions = CleanedTransactionMetadata()
        transactions.add_aborted_transactions(log.collect_aborted_transactions(start, end))
        dirty = log.segments.between(start, end)
        for index, segment in enumerate(dirty):
            if not self._map_segment(log, segment, start, transactions, stats):
                logger.info(
                    "%s: the offset map is full: %d of %d dirty segments are in it, and part of another one",
                    log.topic_partition,
                    index,
                    len(dirty),
                )
                return
            # The last offsets of a segment may have no records. The next round need not search them again.
            following = dirty[index + 1].base_offset if index + 1 < len(dirty) else end
            offset_map.update_latest_offset(following - 1)

    def _map_segment(
        self,
        log: UnifiedLog,
        segment: LogSegment,
        start_offset: int,
        transactions: CleanedTransactionMetadata,
        stats: CleanerStats,
    ) -> bool:
        """Adds the keys of a segment to the map; returns whether all of them fitted."""
        offset_map, max_keys = self._offset_map, self._max_keys
        max_decompressed_bytes = _max_decompressed_bytes(log)
        position = segment.offset_index.lookup(start_offset).position
        for batches in self._read(log.topic_partition, segment.records, position):
            for batch in batches:
                stats.map_bytes_read += batch.size_in_bytes
                stats.map_messages_read += batch.record_count
                if batch.is_control_batch:
                    transactions.on_control_batch_read(batch)
                elif not transactions.on_batch_read(batch):
                    for record in read_records(batch, max_decompressed_bytes=max_decompressed_bytes, copy=False):
                        if record.key is not None and record.offset >= start_offset:
                            if len(offset_map) >= max_keys:
                                return False
                            offset_map.put(record.key, record.offset)
                if batch.last_offset >= start_offset:
                    offset_map.update_latest_offset(batch.last_offset)
        return True

    # Second pass: the copy

    def clean_segments(
        self,
        log: UnifiedLog,
        segments: Sequence[LogSegment],
        transactions: CleanedTransactionMetadata,
        upper_bound_offset: int,
        now_ms: int,
        stats: CleanerStats,
    ) -> None:
        """Copies the retained records of some segments into one, which replaces them."""
        from barnabas.log.cleaner.cleaner_batch_filter import CleanerBatchFilter

        cleaned = log.new_cleaned_segment(segments[0].base_offset)
        try:
            transactions.cleaned_index = cleaned.txn_index
            batch_filter = CleanerBatchFilter(
                self._offset_map,
                transactions,
                log.producers.last_records(),
                stats,
                now_ms=now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
                upper_bound_offset=upper_bound_offset,
                max_decompressed_bytes=_max_decompressed_bytes(log),
            )
            for index, segment in enumerate(segments):
                # The new transaction index needs all aborted transactions of the segment, not just of the dirty part.
                end = segments[index + 1].base_offset if index + 1 < len(segments) else segment.read_next_offset()
                transactions.add_aborted_transactions(log.collect_aborted_transactions(segment.base_offset, end))
                self._clean_into(log, segment, cleaned, batch_filter)
            cleaned.on_become_inactive_segment()
            cleaned.flush()
            # Retention uses the modification time if records have no timestamps.
            cleaned.set_last_modified(segments[-1].last_modified)
        except BaseException:
            _discard(cleaned)
            raise
        logger.info(
            "%s: %d bytes at offset %d take the place of the %d bytes of segments %s",
            log.topic_partition,
            cleaned.size,
            cleaned.base_offset,
            sum(segment.size for segment in segments),
            [segment.base_offset for segment in segments],
        )
        log.replace_segments((cleaned,), segments)

    def _clean_into(
        self, log: UnifiedLog, source: LogSegment, cleaned: LogSegment, batch_filter: CleanerBatchFilter
    ) -> None:
        try:
            for batches in self._read(log.topic_partition, source.records):
                retained = [kept for batch in batches if (kept := batch_filter.retain(batch)) is not None]
                if retained:
                    self._throttle(_append(cleaned, retained))
        except LogSegmentOffsetOverflowError as error:
            # A segment from a Kafka before 1.1. After the split, the log is selected again.
            logger.info("%s: %s", log.topic_partition, error)
            log.split_overflowed_segment(source)
            raise LogCleaningAbortedError(f"segment {source.base_offset} of {log.topic_partition} was split") from error

    # Reading

    def _read(self, partition: TopicPartition, records: FileRecords, position: int = 0) -> Iterator[list[RecordBatch]]:
        """Yields the batches of a file from a position on, as many at a time as fit into the buffer."""
        end = records.size_in_bytes
        size = self._io_buffer_size
        while position < end:
            self._check_done(partition)
            chunk = records.read_bytes(position, size)
            self._throttle(len(chunk))
            batches = list(iter_batches(chunk, allow_partial=True))
            if not batches:
                size = _size_of_first_batch(chunk, records, position, end)
                continue
            for batch in batches:
                batch.ensure_valid()
            yield batches
            position += sum(batch.size_in_bytes for batch in batches)
            size = self._io_buffer_size


def group_segments_by_size(
    segments: Sequence[LogSegment], max_size: int, max_index_size: int, first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Groups adjacent segments that fit into one segment, even if no record is removed.

    A group must not exceed `max_size`, its indexes must not exceed `max_index_size`, and its offsets must be
    representable in an index, relative to the first one.
    """
    groups: list[list[LogSegment]] = []
    size = offset_index_size = time_index_size = 0
    for index, segment in enumerate(segments):
        size += segment.size
        offset_index_size += segment.offset_index.size_in_bytes
        time_index_size += segment.time_index.size_in_bytes
        # The last offset of a segment is not known without reading; the next base offset is an upper bound.
        following = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= max_size
            and offset_index_size <= max_index_size
            and time_index_size <= max_index_size
            # An empty segment has no offsets. Otherwise a log could keep one empty segment per 2**31 offsets.
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            offset_index_size = segment.offset_index.size_in_bytes
            time_index_size = segment.time_index.size_in_bytes
    return groups


def _append(cleaned: LogSegment, retained: list[RetainedBatch]) -> int:
    max_timestamp, offset_of_max_timestamp = NO_TIMESTAMP, retained[0].last_offset
    for batch in retained:
        if batch.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max_timestamp = batch.max_timestamp, batch.last_offset
    buffers = [batch.data for batch in retained]
    last_offset = retained[-1].last_offset
    return cleaned.append(
        last_offset, max_timestamp, offset_of_max_timestamp, buffers[0] if len(buffers) == 1 else buffers
    )


def _size_of_first_batch(chunk: bytes, records: FileRecords, position: int, end: int) -> int:
    """Returns the size of a batch larger than the chunk; `CorruptRecordError` if the file ends before its end."""
    size = _LENGTH.unpack_from(chunk, LENGTH_OFFSET)[0] + LOG_OVERHEAD if len(chunk) > MAGIC_OFFSET else 0
    if not len(chunk) < size <= end - position:
        raise CorruptRecordError(
            f"{records.path}: the record batch at position {position} is cut off: only {end - position} bytes are left"
        )
    return int(size)


def _max_decompressed_bytes(log: UnifiedLog) -> int:
    """Returns the decompression limit: at least the default, because records may be older than the current limit."""
    return max(log.config.max_decompressed_message_bytes, DEFAULT_MAX_DECOMPRESSED_BYTES)


def _discard(cleaned: LogSegment) -> None:
    try:
        cleaned.delete_if_exists()
    except KafkaStorageError as error:
        logger.warning("%r cannot be removed, the next start will: %s", cleaned, error)
