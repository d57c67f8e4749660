"""The files of a log: its segments and the log end offset.

`LocalLog` does not deal with high watermarks, producers or leader epochs; `barnabas.log.unified_log` does. It also owns
the lock that must be held for every change here. `read` needs no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from barnabas.common.errors import BarnabasError, KafkaStorageError, OffsetOutOfRangeError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import sync_directory
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.index.offset_index import OffsetPosition
from barnabas.log.log_context import LogContext
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.segment.log_file_names import (
    DELETED_FILE_SUFFIX,
    log_file,
    offset_index_file,
    time_index_file,
    transaction_index_file,
)
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.segment.segment_files import SegmentFiles
from barnabas.log.storage_errors import FileClosedError, disk_access
from barnabas.protocol.internal.storage import AbortedTxn

logger = logging.getLogger(__name__)

_new_tuple = tuple.__new__
"""Creates a named tuple without a second call in Python, which its class would make."""


class LocalLog:
    """Manages the segments in a directory.

    The **log end offset** is the offset of the next record. It is kept with its active segment and the position there
    as one value, which readers get atomically.

    The **recovery point** is the first offset that may not be on the disk. After a crash, the log before it counts as
    intact, and the log after it is read and checked. Only a flush advances it.

    **Deleting a segment** renames its files and removes it from the table. The files are deleted `file.delete.delay.ms`
    later, so a reader that has found the segment before can finish.
    """

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        context: LogContext,
        segments: LogSegments,
        recovery_point: int,
        next_offset_metadata: LogOffsetMetadata,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.config = config
        self.segments = segments
        self.recovery_point = recovery_point
        self.log_end_offset_metadata = next_offset_metadata
        self.guard = LogDirGuard(context.failure_channel, directory.parent)
        self.pace = context.paces.of(directory.parent)
        self.last_flush_ms = context.clock.hi_res_milliseconds()
        self.is_closed = False
        self._clock = context.clock
        self._files = SegmentFiles(partition, context, self.guard)
        self.active_is_ready = False
        """Whether the indexes of the active segment have room. After loading they have none, because most of the logs
        that a broker opens will not be written to soon."""

    @property
    def parent_dir(self) -> Path:
        """The broker's log directory that contains this log."""
        return self.guard.log_dir

    @property
    def log_end_offset(self) -> int:
        return self.log_end_offset_metadata.message_offset

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def check_open(self) -> None:
        if self.is_closed:
            raise FileClosedError(f"the log of {self.partition} in {self.directory} is closed")

    # Writing

    def make_active_segment_ready(self) -> None:
        """Makes room in the indexes of the active segment, before the first append after loading."""
        self.segments.active.resize_indexes(self.config.segment_index_bytes)
        self.active_is_ready = True

    def append(
        self,
        segment: LogSegment,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        buffers: Buffer | Sequence[Buffer],
    ) -> None:
        """Appends batches to the active segment, which must be ready."""
        try:
            segment.append(last_offset, max_timestamp, offset_of_max_timestamp, buffers)
        except KafkaStorageError:
            raise  # the directory goes offline, and the next start recovers it
        except BaseException:
            # An interrupt may come after the bytes were written and before they were counted. Remove them, so that the
            # next append does not write the same offsets after them.
            segment.truncate_to(self.log_end_offset)
            raise
        records = segment.records
        size = records.size_in_bytes
        self.log_end_offset_metadata = _new_tuple(LogOffsetMetadata, (last_offset + 1, segment.base_offset, size))
        if size >= records.allocate_at:
            records.allocate_ahead(self.config.segment_bytes)

    def update_log_end_offset(self, offset: int) -> None:
        segment = self.segments.active
        self.log_end_offset_metadata = LogOffsetMetadata(offset, segment.base_offset, segment.size)
        self.recovery_point = min(self.recovery_point, offset)

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Closes the active segment and begins a new one, at the log end offset or at a later expected offset."""
        self.check_open()
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset < active.base_offset:
            raise BarnabasError(
                f"{self.partition}: a segment at offset {base_offset} cannot come after the active one, {active!r}"
            )
        if base_offset == active.base_offset:
            if active.size:
                raise BarnabasError(
                    f"{self.partition}: there is a segment at offset {base_offset} already, with records in it"
                )
            # An empty segment is rolled if its indexes have no room for a single entry.
            logger.warning("%s: replacing the empty segment at offset %d", self.partition, base_offset)
            segment = self._replace_segment(active, base_offset)
        else:
            self._remove_leftovers(base_offset)
            active.on_become_inactive_segment()
            segment = self._new_segment(base_offset)
            self.segments.add(segment)
        self.update_log_end_offset(self.log_end_offset)
        logger.info("%s: rolled a new segment at offset %d", self.partition, base_offset)
        return segment

    def _new_segment(self, base_offset: int) -> LogSegment:
        self.active_is_ready = True
        return self._files.new_segment(self.directory, base_offset, self.config)

    def _remove_leftovers(self, base_offset: int) -> None:
        for name in (log_file, offset_index_file, time_index_file, transaction_index_file):
            path = name(self.directory, base_offset)
            if path.exists():
                logger.warning(
                    "%s: deleting the leftover file %s, where a new segment is created", self.partition, path
                )
                with disk_access("delete", path):
                    path.unlink()

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        min_one_message: bool,
        max_offset_metadata: LogOffsetMetadata,
        include_aborted_txns: bool,
    ) -> FetchDataInfo:
        """Reads from an offset on, up to `max_offset_metadata` (exclusive).

        Raises `OffsetOutOfRangeError` if the offset is beyond the log end offset or before the first segment.
        """
        limit_offset, limit_base, limit_position = max_offset_metadata
        if start_offset == limit_offset:
            return _empty(max_offset_metadata, include_aborted_txns)
        end = self.log_end_offset_metadata
        segment = self.segments.floor(start_offset)
        if segment is None or start_offset > end.message_offset:
            raise OffsetOutOfRangeError(
                f"Offset {start_offset} of {self.partition} is not in the log, which ends at {end.message_offset}"
            )
        if start_offset > limit_offset:
            return _empty(self.convert_to_offset_metadata(start_offset), include_aborted_txns)
        while True:
            if segment.base_offset < limit_base:
                max_position = None  # the whole segment
            elif segment.base_offset == limit_base:
                max_position = limit_position
            else:
                max_position = 0  # the limit is before this segment, or its position is not known
            info = segment.read(start_offset, max_length, max_position, min_one_message)
            if info is not None:
                metadata = info.fetch_offset_metadata
                if metadata.message_offset != start_offset:
                    # The offset is inside the batch. A watermark must keep its own offset, not the batch's base offset.
                    info = info._replace(fetch_offset_metadata=metadata._replace(message_offset=start_offset))
                if not include_aborted_txns:
                    return info
                with_aborted = self._with_aborted_txns(start_offset, segment, info)
                if with_aborted is not None:
                    return with_aborted
                break
            # Compaction removed all records from the offset on in this segment.
            later = self.segments.following(segment)
            if later is None:
                break
            if not later:
                return _empty(end, include_aborted_txns)
            segment = later[0]
        # Compaction has replaced the segment during the read, perhaps together with those after it: read again.
        return self.read(start_offset, max_length, min_one_message, max_offset_metadata, include_aborted_txns)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Returns an offset with its file position; `OffsetOutOfRangeError` if it is not in the log."""
        return self.read(offset, 1, False, self.log_end_offset_metadata, False).fetch_offset_metadata

    def _with_aborted_txns(self, start_offset: int, segment: LogSegment, info: FetchDataInfo) -> FetchDataInfo | None:
        """Adds the aborted transactions to a read from a segment; None if the segment is no longer in the log.

        Then the transactions that end in the segments after it may be in the index of the segment that replaced it,
        and cannot be found from here.
        """
        later = self.segments.following(segment)
        if later is None:
            return None
        metadata = info.fetch_offset_metadata
        start = OffsetPosition(metadata.message_offset, metadata.relative_position_in_segment)
        upper_bound = segment.fetch_upper_bound_offset(start, len(info.records))
        if upper_bound is None:
            upper_bound = later[0].base_offset if later else self.log_end_offset
        return info._replace(aborted_transactions=_aborted_txns(start_offset, upper_bound, (segment, *later)))

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Returns the aborted transactions that overlap a range of offsets."""
        segment = self.segments.floor(start_offset)
        if segment is None:
            return []
        later = self.segments.following(segment)
        if later is None:
            return self.collect_aborted_transactions(start_offset, upper_bound_offset)
        return _aborted_txns(start_offset, upper_bound_offset, (segment, *later))

    # Flushing

    def flush(self, offset: int) -> None:
        """Forces all records before `offset` to disk. `mark_flushed` then advances the recovery point."""
        recovery_point = self.recovery_point
        if recovery_point > offset:
            return
        segments = self.segments.between(recovery_point, offset)
        for segment in segments:
            segment.flush()
        if any(segment.base_offset >= recovery_point for segment in segments):
            # Without this, a power cut could lose the directory entries of new files that were synced.
            directory = self.directory
            with disk_access("flush", directory):
                try:
                    sync_directory(directory)
                except FileNotFoundError:
                    logger.debug("%s was renamed while it was being flushed", directory)

    def mark_flushed(self, offset: int) -> None:
        self.check_open()
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flush_ms = self._clock.hi_res_milliseconds()

    # Deleting and truncating

    def remove_and_delete_segments(
        self, segments: Iterable[LogSegment], *, reason: str, newest_first: bool = False, asynchronous: bool = True
    ) -> None:
        """Removes segments from the log and deletes their files, after a delay if `asynchronous`.

        The files are renamed one after the other, and a crash may come in between. To leave no hole, segments at the
        beginning of the log are deleted from the oldest to the newest, and those at its end the other way round.
        """
        doomed = list(segments)
        if not doomed:
            return
        logger.info("%s: deleting segments %s: %s", self.partition, [one.base_offset for one in doomed], reason)
        self.segments.replace([segment.base_offset for segment in doomed], ())
        self._files.delete(reversed(doomed) if newest_first else doomed, self.config, asynchronous=asynchronous)

    def _replace_segment(self, old: LogSegment, base_offset: int) -> LogSegment:
        """Replaces a segment by a new, empty one atomically: the log always has a segment."""
        if old.base_offset == base_offset:
            old.change_file_suffixes("", DELETED_FILE_SUFFIX)
        segment = self._new_segment(base_offset)
        self.segments.replace((old.base_offset,), (segment,))
        self._files.delete((old,), self.config)
        return segment

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Removes this offset and all after it, in whole batches; returns the segments that were removed entirely."""
        doomed = [segment for segment in self.segments if segment.base_offset > offset]
        self.remove_and_delete_segments(doomed, reason=f"the log is truncated to {offset}", newest_first=True)
        active = self.segments.active
        active.truncate_to(offset)
        self.active_is_ready = True
        self.update_log_end_offset(offset)
        return doomed

    def truncate_fully_and_start_at(self, offset: int) -> list[LogSegment]:
        """Removes all segments and continues at an offset; returns the removed segments."""
        self.check_open()
        doomed = list(self.segments)
        *others, last = doomed
        self.remove_and_delete_segments(others, reason=f"the log restarts at offset {offset}", newest_first=True)
        self._replace_segment(last, offset)
        self.update_log_end_offset(offset)
        return doomed

    def replace_segments(
        self, new_segments: Iterable[LogSegment], old_segments: Iterable[LogSegment]
    ) -> list[LogSegment]:
        """Replaces segments by others with the suffix ``.cleaned``; see `SegmentFiles.replace`."""
        return self._files.replace(self.segments, new_segments, old_segments, self.directory, self.config)

    def new_cleaned_segment(self, base_offset: int) -> LogSegment:
        return self._files.new_cleaned_segment(self.directory, base_offset, self.config)

    def split_overflowed_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Splits a segment whose offsets are too large for its indexes."""
        return self._files.split_overflowed(segment, self.segments, self.directory, self.config)

    # The directory

    def rename_dir(self, name: str) -> bool:
        """Renames the directory; returns whether the name is new. Readers are not affected."""
        renamed = self.directory.with_name(name)
        with disk_access("rename", self.directory):
            self.directory.rename(renamed)
            sync_directory(renamed.parent)
        if renamed == self.directory:
            return False
        self.directory = renamed
        self.segments.update_parent_dir(renamed)
        self._files.update_parent_dir(renamed)
        return True

    def close(self) -> None:
        """Writes pending data and closes all files."""
        self.check_open()
        self.is_closed = True
        self.segments.close()

    def close_handlers(self) -> None:
        """Closes all files without writing anything, for example after a disk failure."""
        self.is_closed = True
        self.segments.close_handlers()

    def delete_all_segments(self) -> list[LogSegment]:
        """Deletes all segments without delay and closes the log; returns the segments."""
        doomed = list(self.segments)
        self.remove_and_delete_segments(doomed, reason="the log is deleted", asynchronous=False)
        self.is_closed = True
        return doomed

    def delete_dir(self) -> None:
        """Deletes the directory with the remaining files. The segments must have been deleted."""
        if len(self.segments):
            raise BarnabasError(f"{self.directory} cannot be deleted: it has {len(self.segments)} segments")
        import shutil

        with disk_access("delete", self.directory):
            shutil.rmtree(self.directory)


def _aborted_txns(start_offset: int, upper_bound_offset: int, segments: Iterable[LogSegment]) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    for segment in segments:
        aborted, is_complete = segment.collect_aborted_txns(start_offset, upper_bound_offset)
        found += aborted
        if is_complete:
            break
    return found


def _empty(metadata: LogOffsetMetadata, include_aborted_txns: bool) -> FetchDataInfo:
    return FetchDataInfo(metadata, b"", False, [] if include_aborted_txns else None)
