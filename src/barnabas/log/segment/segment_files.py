"""Creates, deletes and replaces the files of segments in a crash-safe way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import sync_directory
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.index.abstract_index import MAX_RELATIVE_OFFSET
from barnabas.log.log_context import LogContext
from barnabas.log.segment.log_file_names import CLEANED_FILE_SUFFIX, DELETED_FILE_SUFFIX, SWAP_FILE_SUFFIX
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.storage_errors import disk_access

logger = logging.getLogger(__name__)


class SegmentFiles:
    """The files of one log's segments.

    **Replacing segments.** Compaction replaces old segments with new ones. Several files cannot be renamed atomically,
    so the renames follow an order from which a start after a crash can tell how far they got::

        .cleaned   the new segments are being written                  crash: they are removed
        .swap      the new ones are renamed, highest offset first      crash with a .cleaned left: both are removed
        .deleted   the old ones are renamed                            crash: the .swap files replace what they cover
                   the .swap files lose the suffix                     crash: as before

    The new segments count from the moment when no ``.cleaned`` file is left.
    """

    def __init__(self, partition: TopicPartition, context: LogContext, guard: LogDirGuard) -> None:
        self._partition = partition
        self._context = context
        self._guard = guard
        self._lock = threading.Lock()
        """Guards `_doomed`. No other lock is taken inside it."""
        self._doomed: set[LogSegment] = set()
        """Segments whose files are waiting to be deleted; until then they move with the directory."""

    def new_segment(self, directory: Path, base_offset: int, config: LogConfig, suffix: str = "") -> LogSegment:
        """Opens or creates the files of a segment for writing."""
        return LogSegment(
            base_offset,
            directory,
            config,
            self._context.clock,
            suffix=suffix,
            preallocate=config.init_file_size,
            roll_jitter_ms=config.random_segment_jitter(self._context.randomness),
        )

    def new_cleaned_segment(self, directory: Path, base_offset: int, config: LogConfig) -> LogSegment:
        """Creates a segment that will replace others. Its ``.cleaned`` files are not yet part of the log."""
        LogSegment.delete_files(directory, base_offset, CLEANED_FILE_SUFFIX)
        return self.new_segment(directory, base_offset, config, CLEANED_FILE_SUFFIX)

    # Deleting

    def delete(self, segments: Iterable[LogSegment], config: LogConfig, *, asynchronous: bool = True) -> None:
        """Renames the files of segments to ``.deleted`` and deletes them, now or after ``file.delete.delay.ms``."""
        doomed = list(segments)
        for segment in doomed:
            if not segment.has_suffix(DELETED_FILE_SUFFIX):
                segment.change_file_suffixes("", DELETED_FILE_SUFFIX)
        if not doomed:
            return
        with self._lock:
            self._doomed.update(doomed)
        if asynchronous:
            self._context.scheduler.schedule("delete-file", lambda: self._delete(doomed), config.file_delete_delay_ms)
        else:
            self._delete(doomed)

    def _delete(self, segments: Sequence[LogSegment]) -> None:
        with self._guard.watch(f"deleting segments of {self._partition}"):
            for segment in segments:
                segment.delete_if_exists()
                logger.info("%s: deleted %r", self._partition, segment)
                with self._lock:
                    self._doomed.discard(segment)

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the paths of segments that wait for deletion after the log's directory was renamed."""
        with self._lock:
            for segment in self._doomed:
                segment.update_parent_dir(directory)

    # Replacing

    def replace(
        self,
        existing: LogSegments,
        new_segments: Iterable[LogSegment],
        old_segments: Iterable[LogSegment],
        directory: Path,
        config: LogConfig,
    ) -> list[LogSegment]:
        """Replaces segments with ones that have the suffix ``.cleaned``; see the class.

        Returns the old segments without a successor at the same base offset.
        """
        new = sorted(new_segments, key=lambda segment: segment.base_offset)
        # Retention may have deleted some of them in the meantime.
        old = sorted(
            (segment for segment in old_segments if existing.get(segment.base_offset) is segment),
            key=lambda segment: segment.base_offset,
        )
        for segment in reversed(new):
            segment.change_file_suffixes(CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX)
        existing.replace([segment.base_offset for segment in old], new)
        self.delete(old, config)
        for segment in new:
            segment.change_file_suffixes(SWAP_FILE_SUFFIX, "")
        with disk_access("flush", directory):
            sync_directory(directory)
        kept = {segment.base_offset for segment in new}
        return [segment for segment in old if segment.base_offset not in kept]

    def split_overflowed(
        self, segment: LogSegment, existing: LogSegments, directory: Path, config: LogConfig
    ) -> list[LogSegment]:
        """Splits a segment whose relative offsets exceed the range of its indexes; returns the new segments.

        Compaction in Kafka before 1.1 could create such segments.
        """
        logger.info("%s: splitting %r, whose offsets reach too far", self._partition, segment)
        parts: list[LogSegment] = []
        try:
            part: LogSegment | None = None
            for batch in segment.records.batches():
                if part is None or batch.last_offset - part.base_offset > MAX_RELATIVE_OFFSET:
                    part = self.new_cleaned_segment(directory, batch.base_offset, config)
                    parts.append(part)
                part.append(batch.last_offset, batch.max_timestamp, batch.last_offset, batch.view)
            for part in parts:
                part.on_become_inactive_segment()
                part.flush()
                part.set_last_modified(segment.last_modified)
        except BaseException:
            for part in parts:
                part.delete_if_exists()
            raise
        self.replace(existing, parts, (segment,), directory, config)
        return parts
