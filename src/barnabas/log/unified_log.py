"""A partition's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from barnabas.common.errors import (
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    PolicyViolationError,
)
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import make_data_dir
from barnabas.log.dirs.leader_epoch_checkpoint import LeaderEpochCheckpointFile
from barnabas.log.dirs.log_dir_failure import LogDirGuard
from barnabas.log.dirs.log_dir_names import is_future_dir, parse_topic_partition_name
from barnabas.log.dirs.partition_metadata_file import PartitionMetadataFile
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.local_log import LocalLog
from barnabas.log.log_context import LogContext
from barnabas.log.log_loader import LogLoader, list_file_names
from barnabas.log.log_reader import LogReader
from barnabas.log.log_watermarks import no_listener
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.producer_state_rebuild import take_snapshot_at_end
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.segment.segment_damage import DamagePolicy
from barnabas.log.storage_errors import disk_access

if TYPE_CHECKING:
    from barnabas.log.retention import Condition

logger = logging.getLogger(__name__)

DELETE_UP_TO_HIGH_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""


class LogStartOffsetIncrementReason(Enum):
    """Why the log start offset moved forward."""

    LEADER_OFFSET_INCREMENTED = "the leader's log starts there"
    SEGMENT_DELETION = "segments were deleted"
    CLIENT_RECORD_DELETION = "a client asked for it"
    SNAPSHOT_GENERATED = "a snapshot has what was before"


class UnifiedLog(LogReader):
    """The log of one partition: records ordered by offset, in their own directory.

    >>> log = UnifiedLog.open(Path("data/orders-0"), config, context)  # doctest: +SKIP
    >>> log.append_as_leader(batch, leader_epoch=0).first_offset  # doctest: +SKIP
    0
    >>> log.update_high_watermark(log.log_end_offset)  # doctest: +SKIP
    >>> log.read(0, 1 << 20, FetchIsolation.HIGH_WATERMARK, min_one_message=True).records  # doctest: +SKIP
    FileRegion(fd=7, position=0, count=1042)

    The log owns its files (`LocalLog`), the offsets that limit reads (`LogWatermarks`), its producers (`LogProducers`)
    and its leader epochs (`LeaderEpochFileCache`), and keeps them consistent under one lock. `LogWriter` implements
    appends, `LogReader` reads. This class opens, truncates at either end, moves and deletes the log.
    """

    def __init__(
        self,
        log_start_offset: int,
        local_log: LocalLog,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochFileCache,
        context: LogContext,
        topic_id: Uuid | None = None,
    ) -> None:
        """Takes parts that belong to the same log: see `open`."""
        super().__init__(log_start_offset, local_log, producer_state, leader_epochs, context)
        self.topic_id: Uuid | None = None
        if self._partition_metadata.exists():
            self.topic_id = self._partition_metadata.read().topic_id
        if topic_id is not None:
            self.assign_topic_id(topic_id)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        context: LogContext,
        *,
        topic_id: Uuid | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = True,
        damage_policy: DamagePolicy = DamagePolicy.OFFLINE,
    ) -> Self:
        """Opens the log in a directory, which is created if it does not exist; see `LogLoader` for the steps.

        The directory is named after the partition. The two offsets come from the checkpoints in its parent directory.
        """
        partition = parse_topic_partition_name(directory)
        if not directory.exists():
            with disk_access("create", directory):
                make_data_dir(directory)
        file_names = list_file_names(directory)
        segments = LogSegments()
        guard = LogDirGuard(context.failure_channel, directory.parent)
        leader_epochs = LeaderEpochFileCache(
            partition,
            LeaderEpochCheckpointFile.in_directory(directory),
            lambda name, task: context.scheduler.schedule(name, guard.guarded(name, task)),
        )
        producer_state = ProducerStateManager(
            partition,
            directory,
            context.max_transaction_timeout_ms,
            context.producer_state_config,
            context.clock,
            file_names,
        )
        loaded = LogLoader(
            directory,
            partition,
            config,
            context,
            segments,
            leader_epochs,
            producer_state,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=had_clean_shutdown,
            damage_policy=damage_policy,
            file_names=file_names,
        ).load()
        local_log = LocalLog(
            directory, partition, config, context, segments, loaded.recovery_point, loaded.next_offset_metadata
        )
        try:
            return cls(loaded.log_start_offset, local_log, producer_state, leader_epochs, context, topic_id)
        except BaseException:
            local_log.close_handlers()
            raise

    # Properties

    @property
    def directory(self) -> Path:
        return self._local_log.directory

    @property
    def parent_dir(self) -> Path:
        """The broker's log directory that contains this log."""
        return self._local_log.parent_dir

    @property
    def is_future(self) -> bool:
        """Whether this is a copy that will replace a log in another log directory."""
        return is_future_dir(self._local_log.directory)

    @property
    def size(self) -> int:
        """The size of all records in bytes."""
        return self._local_log.segments.size_in_bytes

    @property
    def segments(self) -> LogSegments:
        return self._local_log.segments

    @property
    def active_segment(self) -> LogSegment:
        return self._local_log.segments.active

    @property
    def recovery_point(self) -> int:
        return self._local_log.recovery_point

    @property
    def last_flush_time(self) -> int:
        return self._local_log.last_flush_time

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Sets the topic id of this log; `InconsistentTopicIdError` if it already has a different one."""
        if self.topic_id is None:
            self.topic_id = topic_id
            self._partition_metadata.record(topic_id)
            self.pace.paces.attend()  # until the id is written, an append writes and syncs it: see `syncs_with`
            self._context.scheduler.schedule("flush-metadata-file", self._flush_partition_metadata)
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(
                f"The log of {self.topic_partition} in {self.directory} belongs to the topic with id "
                f"{uuid_to_string(self.topic_id)}, not to {uuid_to_string(topic_id)}"
            )

    def _flush_partition_metadata(self) -> None:
        try:
            with self._lock:
                if not self._local_log.is_closed:
                    with (
                        self._local_log.guard.watch(f"writing the topic id of {self.topic_partition}"),
                        self.pace.syncing(),
                    ):
                        self._partition_metadata.maybe_flush()
        finally:
            self.pace.paces.relax()

    # Deleting from the start

    def delete_records(self, offset: int) -> int:
        """Raises the log start offset to `offset` (-1: the high watermark) and returns it; never lowers it."""
        if self.config.compact and not self.config.delete:
            raise PolicyViolationError(f"Records of {self.topic_partition} cannot be deleted: the topic is compacted")
        if offset == DELETE_UP_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if offset < 0:
            raise OffsetOutOfRangeError(f"Records of {self.topic_partition} cannot be deleted up to offset {offset}")
        self.maybe_increment_log_start_offset(offset, LogStartOffsetIncrementReason.CLIENT_RECORD_DELETION)
        return self.log_start_offset

    def maybe_increment_log_start_offset(self, offset: int, reason: LogStartOffsetIncrementReason) -> bool:
        """Raises the log start offset; returns whether it changed. The records stay on disk for a while.

        `OffsetOutOfRangeError` if the offset is above the high watermark. The offset is checkpointed within a minute.
        If the broker is killed before that, the deleted records reappear.
        """
        with self._lock, self._local_log.guard.watch(f"moving the start of {self.topic_partition}"):
            self._local_log.check_open()
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"{self.topic_partition} cannot start at offset {offset}, behind the high watermark "
                    f"{self.high_watermark}"
                )
            if offset <= self.log_start_offset:
                return False
            self._watermarks.set_log_start_offset(offset)
            logger.info("%s: the log starts at offset %d now: %s", self.topic_partition, offset, reason.value)
            self.leader_epochs.truncate_from_start(offset)
            self._producer_state.on_log_start_offset_incremented(offset)
            self._watermarks.update_first_unstable_offset()
            return True

    def delete_old_segments(self) -> int:
        """Deletes segments according to the retention configs (see `barnabas.log.retention`); returns how many."""
        from barnabas.log.retention import before_offset, beyond_size, older_than

        config = self.config
        with self._lock, self._local_log.guard.watch(f"deleting old segments of {self.topic_partition}"):
            self._local_log.check_open()
            count = self._delete_segments_if(before_offset(self.log_start_offset), "they end before the log starts")
            if config.delete:
                count += self._delete_segments_if(
                    beyond_size(self.size, config.retention_bytes), f"retention.bytes is {config.retention_bytes}"
                )
                count += self._delete_segments_if(
                    older_than(config.retention_ms, self._clock.milliseconds()),
                    f"retention.ms is {config.retention_ms}",
                )
            return count

    def _delete_segments_if(self, condition: Condition, reason: str) -> int:
        from barnabas.log.retention import deletable_segments

        local_log = self._local_log
        doomed = deletable_segments(
            local_log.segments, condition, high_watermark=self.high_watermark, log_end_offset=self.log_end_offset
        )
        if not doomed:
            return 0
        if len(doomed) == len(local_log.segments):
            self.roll()
        following = local_log.segments.higher(doomed[-1].base_offset)
        assert following is not None
        self.maybe_increment_log_start_offset(following.base_offset, LogStartOffsetIncrementReason.SEGMENT_DELETION)
        local_log.remove_and_delete_segments(doomed, reason=reason)
        self.producers.delete_snapshots(doomed, local_log.config)
        return len(doomed)

    def replace_segments(self, new_segments: Iterable[LogSegment], old_segments: Iterable[LogSegment]) -> None:
        """Replaces segments with ones that compaction wrote under the ``.cleaned`` suffix."""
        with self._lock, self._local_log.guard.watch(f"replacing segments of {self.topic_partition}"):
            self._local_log.check_open()
            gone = self._local_log.replace_segments(new_segments, old_segments)
            self.producers.delete_snapshots(gone, self.config)

    def new_cleaned_segment(self, base_offset: int) -> LogSegment:
        """Creates a segment for compaction to write to."""
        return self._local_log.new_cleaned_segment(base_offset)

    def split_overflowed_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Splits a segment whose relative offsets exceed the range of its indexes into several segments."""
        with self._lock, self._local_log.guard.watch(f"splitting a segment of {self.topic_partition}"):
            self._local_log.check_open()
            return self._local_log.split_overflowed_segment(segment)

    # Truncation

    def truncate_to(self, offset: int) -> bool:
        """Removes all batches from `offset` on; returns whether there were any.

        A follower truncates the records that its leader does not have.
        """
        if offset < 0:
            raise ValueError(f"{self.topic_partition} cannot be truncated to offset {offset}")
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"truncating {self.topic_partition}"):
            local_log.check_open()
            if offset >= local_log.log_end_offset:
                # Drop an epoch that began without records: another leader's epoch may replace it.
                self.leader_epochs.truncate_from_end(local_log.log_end_offset)
                return False
            logger.info("%s: truncating to offset %d", self.topic_partition, offset)
            first = local_log.segments.first
            assert first is not None
            if first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            gone = local_log.truncate_to(offset)
            self.producers.delete_snapshots(gone, local_log.config)
            self.leader_epochs.truncate_from_end(offset)
            start = min(offset, self.log_start_offset)
            self.producers.rebuild(local_log.segments, start, offset)
            self._watermarks.truncated(start)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Removes all records; the next record gets this offset."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"emptying {self.topic_partition}"):
            logger.info("%s: removing everything, to go on at offset %d", self.topic_partition, offset)
            local_log.truncate_fully_and_start_at(offset)
            self.leader_epochs.clear_and_flush()
            self._producer_state.truncate_fully_and_start_at(offset)
            self._watermarks.truncated(offset if log_start_offset is None else log_start_offset, fully=True)

    # Renaming, closing and deleting

    def rename_dir(self, name: str) -> None:
        """Renames the directory. Readers are not affected."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"renaming the directory of {self.topic_partition}"):
            self._partition_metadata.maybe_flush()
            if local_log.rename_dir(name):
                directory = local_log.directory
                self.producers.update_parent_dir(directory)
                self.leader_epochs = self.leader_epochs.with_checkpoint(
                    LeaderEpochCheckpointFile.in_directory(directory)
                )
                self._partition_metadata = PartitionMetadataFile.in_directory(directory)

    def close(self) -> None:
        """Writes the state that the next start would otherwise have to rebuild, and closes all files."""
        with self._lock, self._local_log.guard.watch(f"closing {self.topic_partition}"):
            self._local_log.check_open()
            self._watermarks.listener = no_listener
            self._partition_metadata.maybe_flush()
            self.leader_epochs.flush()
            take_snapshot_at_end(self._producer_state, self._local_log.segments, sync=True)
            self._local_log.close()

    def close_handlers(self) -> None:
        """Closes all files without writing anything, for use after a disk failure."""
        with self._lock:
            self._watermarks.listener = no_listener
            self._local_log.close_handlers()

    def delete(self) -> None:
        """Deletes the log and its directory immediately."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"deleting the log of {self.topic_partition}"):
            self._watermarks.listener = no_listener
            self.leader_epochs.clear()
            local_log.delete_all_segments()
            local_log.delete_dir()

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.directory}, log_start_offset={self.log_start_offset}, "
            f"last_stable_offset={self.last_stable_offset}, high_watermark={self.high_watermark}, "
            f"log_end_offset={self.log_end_offset})"
        )
