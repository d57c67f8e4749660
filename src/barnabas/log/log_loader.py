"""Loads a log: reads the files of a directory into segments, offsets and producer state."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import UnsupportedForMessageFormatError
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import make_data_dir
from barnabas.log.dirs.leader_epoch_checkpoint import LeaderEpochCheckpointFile
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.dirs.log_dir_names import parse_topic_partition_name
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.local_log import LocalLog
from barnabas.log.log_context import LogContext
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.producer_state_rebuild import (
    rebuild_producer_state,
    take_in_recovered_batch,
    take_snapshot_at_end,
)
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_file_names import (
    CLEANED_FILE_SUFFIX,
    DELETED_FILE_SUFFIX,
    INDEX_FILE_SUFFIX,
    LOG_FILE_SUFFIX,
    SWAP_FILE_SUFFIX,
    TIME_INDEX_FILE_SUFFIX,
    TXN_INDEX_FILE_SUFFIX,
    offset_from_file_name,
)
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.segment.segment_damage import CorruptLogError, Damage, DamagePolicy, find_damage
from barnabas.log.segment.segment_files import SegmentFiles
from barnabas.log.storage_errors import CorruptIndexError, LogSegmentOffsetOverflowError, disk_access

logger = logging.getLogger(__name__)

T = TypeVar("T")

_INDEX_SUFFIXES: Final = (INDEX_FILE_SUFFIX, TIME_INDEX_FILE_SUFFIX, TXN_INDEX_FILE_SUFFIX)
_SEGMENT_SUFFIXES: Final = (LOG_FILE_SUFFIX, *_INDEX_SUFFIXES)
_DELETED_METADATA_SNAPSHOT: Final = ".checkpoint.deleted"
"""Deleted snapshots of the metadata log. The metadata log removes them itself."""
_END_OF_OFFSETS: Final = 2**63 - 1


class LoadedLog(NamedTuple):
    """The parts of a log, as its files had them."""

    log_start_offset: int
    local_log: LocalLog
    producer_state: ProducerStateManager
    leader_epochs: LeaderEpochFileCache


def _list_file_names(directory: Path) -> list[str]:
    """Returns the sorted names of the files in a directory."""
    with disk_access("list", directory), os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


class LogLoader:
    """Loads one log, once.

    1. **Leftovers.** Files of unfinished deletions and compactions are removed. Segments that compaction had finished
       replace their originals. See `SegmentFiles`.
    2. **Segments** are opened. An index without a log is removed. A missing or broken index is rebuilt from the log.
    3. **Recovery**, unless the last shutdown was clean: reads the segments from the recovery point on, checks every
       batch, and rebuilds indexes, because the last entries may not have been written. A torn end is cut off. Any other
       damage needs an operator's decision; see `barnabas.log.segment.segment_damage`.
    4. **Leader epochs** beyond either end of the log are dropped.
    5. **Producer state** is rebuilt from the last snapshot and the batches after it.

    After a clean shutdown, a directory listing, one stat for each file, and the end of the last segment suffice: a
    broker with ten thousand logs opens them all before it serves the first request.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        context: LogContext,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = True,
        damage_policy: DamagePolicy = DamagePolicy.OFFLINE,
    ) -> None:
        """Creates the directory if it does not exist. The two offsets come from the checkpoints."""
        partition = parse_topic_partition_name(directory)
        if not directory.exists():
            with disk_access("create", directory):
                make_data_dir(directory)
        self._file_names: list[str] | None = _list_file_names(directory)
        """The files in the directory; None if they have to be listed again."""
        guard = LogDirGuard(context.failure_channel, directory.parent)
        self._directory = directory
        self._partition = partition
        self._config = config
        self._context = context
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._had_clean_shutdown = had_clean_shutdown
        self._damage_policy = damage_policy
        self._files = SegmentFiles(partition, context, guard)
        self._segments = LogSegments()
        self._has_recovered = False
        """Whether a segment was recovered, which discards the producer snapshots after it."""
        self._leader_epochs = LeaderEpochFileCache(
            partition,
            LeaderEpochCheckpointFile.in_directory(directory),
            lambda name, task: context.scheduler.schedule(name, guard.guarded(name, task)),
        )
        self._producer_state = ProducerStateManager(
            partition,
            directory,
            context.max_transaction_timeout_ms,
            context.producer_state_config,
            context.clock,
            self._file_names,
        )

    def load(self) -> LoadedLog:
        """Loads the log. Closes the files of the segments again if that fails."""
        try:
            return self._load()
        except BaseException:
            self._segments.close_handlers()
            raise

    def _load(self) -> LoadedLog:
        self._remove_leftovers()
        self._retry_on_overflow(self._load_segments)
        recovery_point, next_offset = self._retry_on_overflow(self._recover_log)
        segments, state = self._segments, self._producer_state
        first = segments.first
        assert first is not None
        log_start_offset = max(self._log_start_offset, first.base_offset)
        self._leader_epochs.truncate_from_end(next_offset)
        self._leader_epochs.truncate_from_start(log_start_offset)
        state.remove_stray_snapshots(segments.base_offsets)
        rebuild_producer_state(
            state,
            segments,
            log_start_offset,
            next_offset,
            self._context.clock,
            from_clean_shutdown=self._had_clean_shutdown and not self._has_recovered,
        )
        end = LogOffsetMetadata(next_offset, segments.active.base_offset, segments.active.size)
        local_log = LocalLog(
            self._directory, self._partition, self._config, self._context, segments, recovery_point, end
        )
        return LoadedLog(log_start_offset, local_log, state, self._leader_epochs)

    def _list_files(self) -> list[str]:
        names = self._file_names
        if names is None:
            names = self._file_names = _list_file_names(self._directory)
        return names

    # 1. Leftovers

    def _remove_leftovers(self) -> None:
        """Completes or undoes deletions and compactions that were in progress when the process ended."""
        names = self._list_files()
        cleaned = [name for name in names if name.endswith(CLEANED_FILE_SUFFIX)]
        swap = [name for name in names if name.endswith(SWAP_FILE_SUFFIX)]
        for name in names:
            if name.endswith(DELETED_FILE_SUFFIX) and not name.endswith(_DELETED_METADATA_SNAPSHOT):
                self._delete(name, "its deletion was scheduled before the restart")
        # Compaction renames .cleaned files to .swap from the highest offset down. So .swap files at higher offsets than
        # a remaining .cleaned file belong to an exchange that was not complete, and are dropped.
        undecided_from = min(map(offset_from_file_name, cleaned), default=_END_OF_OFFSETS)
        decided = []
        for name in swap:
            if offset_from_file_name(name) < undecided_from:
                decided.append(name)
            else:
                self._delete(name, "it belongs to an incomplete replacement")
        for name in cleaned:
            self._delete(name, "its compaction did not finish")
        if decided:
            self._complete_exchange(decided)

    def _complete_exchange(self, swap_names: list[str]) -> None:
        """Replaces the original segments by the finished ``.swap`` segments."""
        first, end = _END_OF_OFFSETS, -1
        for name in swap_names:
            if name.endswith(LOG_FILE_SUFFIX + SWAP_FILE_SUFFIX):
                first = min(first, offset_from_file_name(name))
                for batch in FileRecords(self._directory / name, mutable=False).batches():
                    end = max(end, batch.next_offset)
                logger.info("%s: %s replaces the segments that it was compacted from", self._partition, name)
        for name in self._list_files():
            if name.endswith(_SEGMENT_SUFFIXES) and first <= offset_from_file_name(name) < end:
                self._delete(name, "it has been replaced")
        self._file_names = None
        for name in swap_names:
            path = self._directory / name
            with disk_access("rename", path):
                path.replace(path.with_name(name.removesuffix(SWAP_FILE_SUFFIX)))

    def _delete(self, name: str, reason: str) -> None:
        path = self._directory / name
        self._file_names = None
        logger.info("%s: deleting %s: %s", self._partition, name, reason)
        with disk_access("delete", path):
            path.unlink(missing_ok=True)

    # 2. Segments

    def _load_segments(self) -> None:
        """Opens the segments in ascending order, because recovery of one depends on those before it."""
        self._segments.close_handlers()
        self._segments.clear()
        names = self._list_files()
        logs = {name for name in names if name.endswith(LOG_FILE_SUFFIX)}
        for name in names:
            if name.endswith(_INDEX_SUFFIXES):
                if f"{name.partition('.')[0]}{LOG_FILE_SUFFIX}" not in logs:
                    self._delete(name, "it is the index of a missing segment")
            elif name in logs:
                self._load_segment(offset_from_file_name(name))

    def _load_segment(self, base_offset: int) -> None:
        segment = LogSegment(
            base_offset,
            self._directory,
            self._config,
            self._context.clock,
            roll_jitter_ms=self._config.random_segment_jitter(self._context.randomness),
        )
        self._segments.add(segment)
        if self._had_clean_shutdown:
            segment.records.note_flushed()
        try:
            segment.sanity_check()
        except CorruptIndexError as error:
            # Without a clean shutdown, segments from the recovery point on are recovered later anyway.
            if self._had_clean_shutdown or base_offset < self._recovery_point:
                logger.warning("%s: the indexes of segment %d are rebuilt: %s", self._partition, base_offset, error)
                self._recover_segment(segment)

    def _retry_on_overflow(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except LogSegmentOffsetOverflowError as error:
                segment = self._segments.get(error.base_offset)
                if segment is None:
                    raise
                self._files.split_overflowed(segment, self._segments, self._directory, self._config)
                self._file_names = None

    # 3. Recovery

    def _recover_log(self) -> tuple[int, int]:
        """Returns the recovery point and the log end offset. The log has at least one segment afterwards."""
        if not self._had_clean_shutdown:
            self._recover_unflushed_segments()
        end_offset = self._end_offset()
        if end_offset is None:
            self._segments.add(self._files.new_segment(self._directory, self._log_start_offset, self._config))
            end_offset = self._log_start_offset
        elif self._had_clean_shutdown:
            return end_offset, end_offset
        # Recovery does not advance the recovery point: intact batches may still be only in the page cache.
        return min(self._recovery_point, end_offset), end_offset

    def _recover_unflushed_segments(self) -> None:
        for segment in self._segments.between(self._recovery_point, _END_OF_OFFSETS):
            logger.debug("%s: recovering segment %d", self._partition, segment.base_offset)
            if self._recover_segment(segment):
                # Delete all segments after a cut, from the end, so that a crash leaves no hole.
                doomed = self._segments.higher_segments(segment.base_offset)
                self._segments.replace([one.base_offset for one in doomed], ())
                self._files.delete(reversed(doomed), self._config)
                self._file_names = None
                return

    def _recover_segment(self, segment: LogSegment) -> int:
        """Checks a segment and rebuilds its indexes; returns the number of bytes cut off."""
        damage = find_damage(segment.records, segment.base_offset)
        if damage is not None:
            self._judge(segment, damage)
        self._has_recovered = True
        # Usually loads nothing: the producer state after one segment is the state before the next.
        state = self._producer_state
        rebuild_producer_state(
            state,
            self._segments,
            self._log_start_offset,
            segment.base_offset,
            self._context.clock,
            from_clean_shutdown=False,
        )
        truncated = segment.recover(
            lambda batch: take_in_recovered_batch(state, batch), self._note_leader_epoch, is_intact=damage is None
        )
        take_snapshot_at_end(state, self._segments, sync=False)
        return truncated

    def _note_leader_epoch(self, epoch: int, offset: int) -> None:
        latest = self._leader_epochs.latest_epoch
        if latest is None or epoch > latest:
            # The file is written in the background. After a crash before that, the records are recovered again.
            self._leader_epochs.assign_later(epoch, offset)

    def _judge(self, segment: LogSegment, damage: Damage) -> None:
        """Logs a warning if the damage may be cut off, and raises if not."""
        path = segment.records.path
        if segment.records.holds_old_format(damage.position):
            raise UnsupportedForMessageFormatError(
                f"{path} has messages in a format from before Kafka 0.11, which cannot be read: {damage.reason}"
            )
        what = (
            f"{path}: the {damage.size} bytes from position {damage.position} on, where offset {damage.offset} should "
            f"be, are damaged: {damage.reason}"
        )
        if self._had_clean_shutdown or damage.offset < self._recovery_point:
            why = "They had been forced to disk"
        elif damage.intact_behind is not None:
            why = f"There are intact batches, from position {damage.intact_behind} on"
        elif any(later.size_in_bytes for later in self._later_logs(segment)):
            why = "There are more records in later segments"
        else:
            logger.warning("%s. This is an unfinished write, and is cut off", what)
            return
        if self._damage_policy is DamagePolicy.OFFLINE:
            raise CorruptLogError(f"{what}. {why}, so this is not just an unfinished write: nothing is cut off")
        logger.error("%s. %s, but as configured, the log is cut off here", what, why)

    def _later_logs(self, segment: LogSegment) -> Iterator[FileRecords]:
        for name in self._list_files():
            if name.endswith(LOG_FILE_SUFFIX) and offset_from_file_name(name) > segment.base_offset:
                yield FileRecords(self._directory / name, mutable=False)

    def _end_offset(self) -> int | None:
        """Returns the log end offset; None if the log has no segments.

        A log that ends before its log start offset has lost segments outside the broker's control. Its remaining
        segments are deleted, because otherwise their offsets would be assigned twice.
        """
        last = self._segments.last
        if last is None:
            return None
        end_offset = last.read_next_offset()
        if end_offset >= self._log_start_offset:
            return end_offset
        logger.warning(
            "%s: the log ends at offset %d, although it should begin at %d: deleting all segments",
            self._partition,
            end_offset,
            self._log_start_offset,
        )
        doomed = self._segments.values()
        self._segments.clear()
        self._files.delete(doomed, self._config)
        self._leader_epochs.clear_and_flush()
        self._producer_state.truncate_fully_and_start_at(self._log_start_offset)
        return None
