"""Compaction of one log."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import CorruptRecordError, KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.cleaner_errors import LogCleaningAbortedError
from barnabas.log.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner_stats import CleanerStats
from barnabas.log.file_records import FileRecords
from barnabas.log.log_segment import LogSegment
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
    from barnabas.log.cleaned_transaction_metadata import CleanedTransactionMetadata
    from barnabas.log.cleaner_batch_filter import CleanerBatchFilter, RetainedBatch
    from barnabas.log.log_to_clean import LogToClean

logger = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")

CheckDone = Callable[[TopicPartition], object]
"""Raises if the cleaning of a partition is to end now."""
Throttle = Callable[[int], object]
"""Told of bytes read or written; may wait."""


class Cleaner:
    """Removes from a log the records that a later one with the same key has made obsolete.

    It goes through the log twice.

    1. **The dirty part** is read to find the last offset of each key, which goes into an `OffsetMap`. If the map gets
       full, the dirty part ends there for this round, and the rest is for the next one.
    2. **The whole log** up to there is copied, segment by segment, without the records whose key has a later offset in
       the map; what else goes and stays is told in `CleanerBatchFilter`. The clean part has to be copied too, since it
       has records whose keys come again in the dirty part.

    Segments shrink, so neighbours are put together as long as their sizes before the cleaning fit into one
    (`group_segments_by_size`). Each group is written to a new segment in ``.cleaned`` files, forced to disk, and put in
    the place of the old ones before the next group is begun: a crash costs one group at most.

    **Damage.** Batches have their checksums verified before anything is believed of them. A damaged batch must not be
    rebuilt: it would get a new and correct checksum, and nobody would ever know.

    For one thread; it works without the log's lock but for the exchange of segments. It reads in chunks of the I/O
    buffer's size, or of one batch where that is larger.
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
        """Cleans a log; returns up to which offset it is clean now."""
        from barnabas.log.cleaned_transaction_metadata import CleanedTransactionMetadata

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
            offset_map.clear()  # a broker that has cleaned everything has other uses for the memory
        stats.all_done()
        return end_offset, stats

    # The keys

    def build_offset_map(self, log: UnifiedLog, start: int, end: int, stats: CleanerStats) -> None:
        """Finds the last offset of each key from `start` up to, without it, `end`, or as far as there is room."""
        from barnabas.log.cleaned_transaction_metadata import CleanedTransactionMetadata

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
            # There may be no records at the end of a segment. They need not be looked for again.
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
        """Whether all of it is in the map."""
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

    # The copy

    def clean_segments(
        self,
        log: UnifiedLog,
        segments: Sequence[LogSegment],
        transactions: CleanedTransactionMetadata,
        upper_bound_offset: int,
        now_ms: int,
        stats: CleanerStats,
    ) -> None:
        """Copies what stays of some segments into one, and puts it in their place."""
        from barnabas.log.cleaner_batch_filter import CleanerBatchFilter

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
                # All of the segment's, not just of the dirty part: the new transaction index has to have them.
                end = segments[index + 1].base_offset if index + 1 < len(segments) else segment.read_next_offset()
                transactions.add_aborted_transactions(log.collect_aborted_transactions(segment.base_offset, end))
                self._clean_into(log, segment, cleaned, batch_filter)
            cleaned.on_become_inactive_segment()
            cleaned.flush()
            # Retention goes by the time of the file where records have no timestamps.
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
            # A segment from a Kafka before 1.1. The log is looked at anew when it has been split.
            logger.info("%s: %s", log.topic_partition, error)
            log.split_overflowed_segment(source)
            raise LogCleaningAbortedError(f"segment {source.base_offset} of {log.topic_partition} was split") from error

    # Reading

    def _read(self, partition: TopicPartition, records: FileRecords, position: int = 0) -> Iterator[list[RecordBatch]]:
        """The batches of a file from a position on, as many at a time as fit into the buffer."""
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
    """Neighbours that fit into one segment, even if nothing of them goes.

    They must not take up more than `max_size`, their indexes not more than `max_index_size`, and their offsets must not
    be further from the first one than an index can say.
    """
    groups: list[list[LogSegment]] = []
    size = offset_index_size = time_index_size = 0
    for index, segment in enumerate(segments):
        size += segment.size
        offset_index_size += segment.offset_index.size_in_bytes
        time_index_size += segment.time_index.size_in_bytes
        # The last offset of a segment is not known without reading; that it lies before the next segment is.
        following = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= max_size
            and offset_index_size <= max_index_size
            and time_index_size <= max_index_size
            # One without records has no offsets: without this, a log could keep one for each 2**31 of them.
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
    """How much to read for the batch that is not all in the chunk; `CorruptRecordError` if the file ends before it."""
    size = _LENGTH.unpack_from(chunk, LENGTH_OFFSET)[0] + LOG_OVERHEAD if len(chunk) > MAGIC_OFFSET else 0
    if not len(chunk) < size <= end - position:
        raise CorruptRecordError(
            f"{records.path}: the record batch at position {position} is cut off: only {end - position} bytes are left"
        )
    return int(size)


def _max_decompressed_bytes(log: UnifiedLog) -> int:
    """The limit is for producers; what has got into the log under an earlier one must come out again."""
    return max(log.config.max_decompressed_message_bytes, DEFAULT_MAX_DECOMPRESSED_BYTES)


def _discard(cleaned: LogSegment) -> None:
    try:
        cleaned.delete_if_exists()
    except KafkaStorageError as error:
        logger.warning("%r cannot be removed, the next start will: %s", cleaned, error)
