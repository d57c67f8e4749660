"""The write side of a log: append, roll and flush."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.common.errors import KafkaStorageError, OffsetOutOfRangeError, RecordBatchTooLargeError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import sync_file
from barnabas.log.dirs.log_dir_pace import SLOW_WRITE_NS
from barnabas.log.dirs.partition_metadata_file import PartitionMetadataFile
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.local_log import LocalLog
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_context import LogContext
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_validator import LogValidator, analyze_replicated
from barnabas.log.log_watermarks import LogWatermarks
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.producer_state_rebuild import aborted_txn
from barnabas.log.producers.producer_states import ProducerAnalysis
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.storage_errors import FileClosedError, disk_access
from barnabas.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
)

logger = logging.getLogger(__name__)

LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
NEVER_BY_COUNT: Final = 2**63 - 1
"""The default of ``flush.messages``."""
LAST_OFFSET_DELTA: Final = struct.Struct(">23xi")
"""The last offset delta in the header of a batch: one less than the number of records."""


class UnexpectedAppendOffsetError(OffsetOutOfRangeError):
    """Batches from the leader begin before the log end offset."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogWriter:
    """Appends, rolls and flushes.

    **An append** takes these steps, the same for every batch. The most expensive step runs before the lock is taken::

        validate        header, checksum, every record              no lock
        assign          offset, leader epoch, append time           lock
        deduplicate     a batch that is in the log already keeps its
                        offsets
        leader epoch    a new one is recorded before its records
        roll            if the batch needs a new segment
        check           sequence numbers, epochs, transactions
        write           one write: now the batch is in the log
        update          producers, aborted transactions, the last stable offset

    Nothing is forced to disk: a written batch survives a crash of the process. Whether it survives a crash of the
    machine depends on ``flush.messages`` and ``flush.ms``, or better, on replication.

    **Rolling** takes a snapshot of the producer state at the base offset of the new segment. The old segment and the
    snapshot are forced to disk in the background, while producers continue.
    """

    def __init__(
        self,
        log_start_offset: int,
        local_log: LocalLog,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochFileCache,
        context: LogContext,
    ) -> None:
        self._lock = threading.RLock()
        """Guards all mutable state of a log: segments, offsets, producers, files. Readers of records or offsets do not
        take it. The locks of leader epochs, small files and indexes are taken inside it; those of other logs never."""
        self._context = context
        self._clock = context.clock
        self._local_log = local_log
        self._producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.producers = LogProducers(producer_state, self._lock, context, local_log.guard)
        with self._lock:
            self._watermarks = LogWatermarks(log_start_offset, local_log, producer_state, self._lock)
            self._watermarks.set_log_start_offset(log_start_offset)
        self.watermarks = self._watermarks
        """For readers, which must not change it."""
        self._partition_metadata = PartitionMetadataFile.in_directory(local_log.directory)
        self._validator = LogValidator(local_log.partition, local_log.config)
        self.pace = local_log.pace
        """Tracks whether the log directory is slow."""
        self._now_ns = context.clock.nanoseconds
        self._note_flush_messages(local_log.config)

    @property
    def topic_partition(self) -> TopicPartition:
        return self._local_log.partition

    @property
    def config(self) -> LogConfig:
        return self._local_log.config

    def update_config(self, config: LogConfig) -> LogConfig:
        """Replaces the configuration; returns the previous one."""
        with self._lock:
            old = self._local_log.config
            self._local_log.config = config
            self._validator = LogValidator(self.topic_partition, config)
            self._note_flush_messages(config)
            return old

    def _note_flush_messages(self, config: LogConfig) -> None:
        if config.flush_messages < NEVER_BY_COUNT:
            self.pace.paces.attend_syncs_by_count()

    @property
    def syncs_by_count(self) -> bool:
        """Whether any append may reach ``flush.messages``."""
        return self._local_log.config.flush_messages < NEVER_BY_COUNT

    def syncs_with(self, records: Buffer) -> bool:
        """Estimates, without the lock, whether the append of a batch has to wait for a sync.

        It does if the append reaches ``flush.messages``, or is among the first to a new log.
        """
        if self._partition_metadata.dirty_topic_id is not None:
            return True
        local_log = self._local_log
        flush_messages = local_log.config.flush_messages
        if flush_messages >= NEVER_BY_COUNT or len(records) < HEADER_SIZE:
            return False
        count: int = LAST_OFFSET_DELTA.unpack_from(records)[0] + 1
        return local_log.unflushed_messages + count >= flush_messages

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> LogAppendInfo:
        """Appends one batch at the end of the log under this leader epoch.

        The header is patched in the buffer itself, unless that is read-only. Raises the validation error of an invalid
        batch, or `KafkaStorageError`. Records from the leader of the metadata quorum have their offsets already, and
        may be several batches.
        """
        if origin is AppendOrigin.RAFT_LEADER:
            return self._append_as_it_is(records, origin, leader_epoch)
        local_log = self._local_log
        try:
            if local_log.guard.channel.any_offline:
                local_log.guard.check()
            if self._partition_metadata.dirty_topic_id is not None:
                # Without the topic id, records could be mistaken for those of a later topic with the same name.
                self._partition_metadata.maybe_flush()
            now_ms = self._clock.milliseconds()
            validator = self._validator
            batch = validator.validate(records, origin, now_ms)
            began_ns = self._now_ns()
            with self._lock:
                if local_log.is_closed:
                    local_log.check_open()
                batch.place(local_log.log_end_offset_metadata[0], leader_epoch)
                log_append_time = NO_TIMESTAMP
                if validator.timestamp_type is LOG_APPEND_TIME:
                    # Read again with the lock held, so that append times grow with offsets.
                    log_append_time = now_ms = self._clock.milliseconds()
                    batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
                last_offset = batch.base_offset + batch.last_offset_delta
                info = LogAppendInfo(
                    batch.base_offset,
                    last_offset,
                    leader_epoch,
                    batch.max_timestamp,
                    last_offset,
                    log_append_time,
                    self._watermarks.offsets.log_start_offset,
                    len(batch.view),
                )
                self._append(info, (batch,), batch.view, origin, now_ms, verification_guard, transaction_version)
            took_ns = self._now_ns() - began_ns
            if took_ns > SLOW_WRITE_NS or self.pace.is_slow:
                self.pace.wrote(took_ns)
            return info
        except (KafkaStorageError, OSError) as error:
            local_log.guard.reraise(f"appending to {self.topic_partition}", error)

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> LogAppendInfo:
        """Appends batches with the leader's offsets; `leader_epoch` is the epoch of the leader they were fetched from.

        Raises `UnexpectedAppendOffsetError` if they begin before the log end offset. Without a complete batch, nothing
        is appended.
        """
        return self._append_as_it_is(records, AppendOrigin.REPLICATION, leader_epoch)

    def _append_as_it_is(self, records: Buffer, origin: AppendOrigin, leader_epoch: int) -> LogAppendInfo:
        local_log = self._local_log
        try:
            local_log.guard.check()
            self._partition_metadata.maybe_flush()
            batches, valid_records = analyze_replicated(records, self.topic_partition, origin, leader_epoch)
            if not batches:
                return LogAppendInfo(log_start_offset=self._watermarks.offsets.log_start_offset)
            largest = max(batches, key=lambda batch: batch.max_timestamp)
            info = LogAppendInfo(
                batches[0].base_offset,
                batches[-1].last_offset,
                batches[-1].partition_leader_epoch,
                largest.max_timestamp,
                largest.last_offset,
                log_start_offset=self._watermarks.offsets.log_start_offset,
                valid_bytes=len(valid_records),
            )
            with self._lock:
                local_log.check_open()
                if info.first_offset < local_log.log_end_offset:
                    raise UnexpectedAppendOffsetError(
                        f"An append to {self.topic_partition} has the offsets {info.first_offset} to "
                        f"{info.last_offset}, and begins before {local_log.log_end_offset}, where the log ends",
                        info.first_offset,
                        info.last_offset,
                    )
                self._append(info, batches, valid_records, origin, self._clock.milliseconds())
            return info
        except (KafkaStorageError, OSError) as error:
            local_log.guard.reraise(f"appending to {self.topic_partition}", error)

    def _append(
        self,
        info: LogAppendInfo,
        batches: Sequence[RecordBatch],
        records: memoryview,
        origin: AppendOrigin,
        now_ms: int,
        verification_guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> None:
        """Runs the steps of an append from "deduplicate" on. The lock must be held."""
        local_log, state = self._local_log, self._producer_state
        config = local_log.config
        if origin is AppendOrigin.CLIENT and batches[0].producer_id >= 0:
            duplicate = state.find_duplicate_batch(batches[0])
            if duplicate is not None:
                info.is_duplicate = True
                info.first_offset, info.last_offset = duplicate.first_offset, duplicate.last_offset
                if config.timestamp_type is LOG_APPEND_TIME:
                    info.log_append_time = duplicate.timestamp
                return
        size = len(records)
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"An append of {size} bytes to {self.topic_partition} is larger than a segment may be, "
                f"{config.segment_bytes} bytes"
            )
        latest_epoch = self.leader_epochs.latest_epoch
        has_producers = False
        for batch in batches:
            epoch = batch.partition_leader_epoch
            if epoch != latest_epoch and epoch >= 0:
                # The file is written in the background, because all clients of the broker may wait for this thread.
                self.leader_epochs.assign_later(epoch, batch.base_offset)
                latest_epoch = epoch
            if batch.producer_id >= 0:
                has_producers = True
        next_offset = info.last_offset + 1
        segment = local_log.active_segment_for_append()
        if segment.should_roll(size, info.max_timestamp, info.last_offset, config, now_ms):
            segment = self.roll(info.first_offset)
        analysis = None
        if has_producers:
            place = LogOffsetMetadata(info.first_offset, segment.base_offset, segment.records.size_in_bytes)
            analysis = state.analyze(
                batches,
                origin,
                append_offset=place,
                guard=verification_guard,
                transaction_version=transaction_version,
            )
        local_log.append(segment, info.last_offset, info.max_timestamp, info.offset_of_max_timestamp, records)
        self._watermarks.log_end_moved()
        if analysis is not None:
            self._update_producers(analysis, segment)
        state.map_end_offset = next_offset
        if next_offset - local_log.recovery_point >= config.flush_messages:
            self.flush()

    def _update_producers(self, analysis: ProducerAnalysis, segment: LogSegment) -> None:
        """Updates producers and transactions for batches that were written.

        All of this is in memory except the transaction index. If the index cannot be written, the directory goes
        offline, and recovery restores the index from the log.
        """
        state = self._producer_state
        for appended in analysis.updated.values():
            state.update(appended)
        for transaction in analysis.completed:
            if transaction.is_aborted:
                segment.append_aborted_txn(aborted_txn(transaction, state.last_stable_offset(transaction)))
            state.complete_txn(transaction)
        if state.may_have_transactions:
            self._watermarks.update_first_unstable_offset()

    # Leader epochs

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Records the start offset of a leader epoch, and returns when it is on disk."""
        with self._lock, self._local_log.guard.watch(f"writing the leader epochs of {self.topic_partition}"):
            self.leader_epochs.assign(leader_epoch, start_offset)

    # Rolling

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Rolls a new segment at the log end offset, or at a later expected offset of the next record."""
        with self._lock, self._local_log.guard.watch(f"rolling a segment of {self.topic_partition}"):
            segment = self._local_log.roll(expected_next_offset)
            state = self._producer_state
            # Recovery of the new segment starts with this producer state.
            state.update_map_end_offset(segment.base_offset)
            snapshot = state.take_snapshot(sync=False)
            self._watermarks.follow_log_end()
            self._context.scheduler.schedule("flush-log", lambda: self._flush_rolled(snapshot, segment.base_offset))
            return segment

    def _flush_rolled(self, snapshot: Path | None, offset: int) -> None:
        try:
            if snapshot is not None:
                with self._local_log.guard.watch(f"flushing {snapshot}"), disk_access("flush", snapshot):
                    try:
                        sync_file(snapshot)
                    except FileNotFoundError:
                        logger.debug("%s was deleted before it was flushed", snapshot)
            self.flush_up_to(offset)
        except FileClosedError as error:
            logger.debug("%s was closed before it was flushed: %s", self.topic_partition, error)

    # Flushing

    def flush(self, *, force_flush_active_segment: bool = False) -> None:
        """Forces everything that was appended before to disk.

        An empty active segment is not flushed by default. A shutdown forces its flush, so that the file exists after a
        power cut.
        """
        offset = self._local_log.log_end_offset
        self._flush(offset + 1 if force_flush_active_segment else offset, offset)

    def flush_up_to(self, offset: int) -> None:
        """Forces all records before an offset to disk."""
        self._flush(offset, offset)

    def _flush(self, offset: int, recovery_point: int) -> None:
        """Flushes without holding the lock, unless called by an append."""
        local_log = self._local_log
        if offset <= local_log.recovery_point:
            return
        directory = local_log.directory
        try:
            local_log.guard.check()
            # Flush the epochs first: after a crash, recovery finds epochs only in records beyond the recovery point.
            with self.pace.syncing():
                self.leader_epochs.flush()
                local_log.flush(offset)
        except (KafkaStorageError, OSError) as error:
            if self._has_moved(directory, error):
                self._flush(offset, recovery_point)
                return
            local_log.guard.reraise(f"flushing {self.topic_partition}", error)
        with self._lock:
            local_log.mark_flushed(recovery_point)

    def _has_moved(self, directory: Path, error: BaseException) -> bool:
        """Returns whether a file was not found because the directory was renamed, and not because the disk failed."""
        if not isinstance(error.__cause__ or error, FileNotFoundError):
            return False
        with self._lock:  # waits until a rename is complete
            return self._local_log.directory != directory
