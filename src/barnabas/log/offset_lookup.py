"""Finds the offset for a timestamp or for an end of the log, for ListOffsets.

A timestamp of 0 or more is a time. Negative ones are special, see `SpecialTimestamp`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.segment.file_records import TimestampAndOffset
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.records.batch import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, RecordBatch, TimestampType
from barnabas.records.reader import read_records


class SpecialTimestamp(IntEnum):
    """Negative timestamps that name a position in the log."""

    LATEST = -1
    """The log end offset. The ListOffsets handler replaces it for consumers by the high watermark or the LSO."""
    EARLIEST = -2
    """The start of the log."""
    MAX_TIMESTAMP = -3
    """The record with the largest timestamp, not necessarily the last one."""
    EARLIEST_LOCAL = -4
    """The first offset on this broker's disks; with tiered storage, earlier ones may exist."""
    LATEST_TIERED = -5
    """The last offset in tiered storage."""
    EARLIEST_PENDING_UPLOAD = -6
    """The first offset that is not in tiered storage yet."""


_NOTHING_TIERED: Final = TimestampAndOffset(NO_TIMESTAMP, -1, NO_PARTITION_LEADER_EPOCH)


def find_offset(
    timestamp: int,
    segments: LogSegments,
    leader_epochs: LeaderEpochFileCache,
    *,
    log_start_offset: int,
    log_end_offset: int,
) -> TimestampAndOffset | None:
    """Finds the first record with this or a later timestamp, or a special position; None if there is no such record.

    Among the special positions, only MAX_TIMESTAMP returns a timestamp.
    """
    match timestamp:
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            earliest = leader_epochs.earliest_entry
            known = earliest is not None and earliest.start_offset <= log_start_offset
            return TimestampAndOffset(NO_TIMESTAMP, log_start_offset, earliest.epoch if known and earliest else None)
        case SpecialTimestamp.LATEST:
            return TimestampAndOffset(NO_TIMESTAMP, log_end_offset, leader_epochs.latest_epoch)
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return _NOTHING_TIERED  # there is no tiered storage
        case SpecialTimestamp.MAX_TIMESTAMP:
            return _find_max_timestamp(segments, log_start_offset)
        case _:
            return _find_by_time(timestamp, segments, log_start_offset)


def _find_by_time(timestamp: int, segments: LogSegments, log_start_offset: int) -> TimestampAndOffset | None:
    for segment in segments:
        if segment.largest_timestamp >= timestamp:
            found = segment.find_offset_by_timestamp(timestamp, log_start_offset)
            if found is not None:
                return found
            # The record with that timestamp was deleted, or the segment has no timestamps and uses its file's time.
    return None


def _find_max_timestamp(segments: LogSegments, log_start_offset: int) -> TimestampAndOffset | None:
    best: RecordBatch | None = None
    for segment in segments:
        if best is not None and segment.max_timestamp_so_far <= best.max_timestamp:
            continue
        candidate = _batch_with_max_timestamp(segment, log_start_offset)
        if candidate is not None and (best is None or candidate.max_timestamp > best.max_timestamp):
            best = candidate
    if best is None:
        return None
    epoch = best.partition_leader_epoch
    return TimestampAndOffset(
        best.max_timestamp, _offset_of_max_timestamp(best), None if epoch == NO_PARTITION_LEADER_EPOCH else epoch
    )


def _batch_with_max_timestamp(segment: LogSegment, log_start_offset: int) -> RecordBatch | None:
    """Finds the first batch with the segment's largest timestamp, from the log start offset on."""
    largest = segment.max_timestamp_and_offset
    if largest.timestamp == NO_TIMESTAMP:
        return None
    if largest.offset >= log_start_offset:
        position = segment.offset_index.lookup(largest.offset).position
        batches = segment.records.batches(position)
        return next((batch for batch in batches if batch.max_timestamp == largest.timestamp), None)
    # That batch is before the log start offset, so the index does not help.
    start = segment.translate_offset(log_start_offset)
    if start is None:
        return None
    stamped = (batch for batch in segment.records.batches(start.position) if batch.max_timestamp != NO_TIMESTAMP)
    return max(stamped, key=lambda batch: batch.max_timestamp, default=None)


def _offset_of_max_timestamp(batch: RecordBatch) -> int:
    """Returns the offset of the first record with the batch's largest timestamp."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.base_offset
    for record in read_records(batch, copy=False):
        if record.timestamp == batch.max_timestamp:
            return record.offset
    return batch.last_offset  # compaction has removed that record
