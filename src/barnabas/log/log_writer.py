"""The end of a log, where it grows."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas._kernels import record_batch
from barnabas.common.errors import KafkaStorageError, OffsetOutOfRangeError, RecordBatchTooLargeError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.durable_file import sync_file
from barnabas.log.file_handle import Buffer
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.local_log import LocalLog
from barnabas.log.log_append_info import NO_VALIDATION_STATS, LogAppendInfo, RecordValidationStats
from barnabas.log.log_config import LogConfig
from barnabas.log.log_context import LogContext
from barnabas.log.log_dir_pace import SLOW_WRITE_NS
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_producers import LogProducers
from barnabas.log.log_segment import LogSegment
from barnabas.log.log_validator import LogValidator, analyze_replicated
from barnabas.log.log_watermarks import LogWatermarks
from barnabas.log.partition_metadata_file import PartitionMetadataFile
from barnabas.log.plain_append import append_plain
from barnabas.log.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producer_state_entry import BatchMetadata
from barnabas.log.producer_state_manager import ProducerStateManager
from barnabas.log.producer_state_rebuild import aborted_txn
from barnabas.log.producer_states import ProducerAnalysis
from barnabas.log.storage_errors import FileClosedError, disk_access
from barnabas.log.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    CompressionType,
    RecordBatch,
    TimestampType,
)

place_batch = record_batch.place_batch

logger = logging.getLogger(__name__)

_new_tuple = tuple.__new__
"""A named tuple in one call; its class would make another one in Python."""

NEVER_BY_COUNT: Final = 2**63 - 1
"""The default of ``flush.messages``."""
LAST_OFFSET_DELTA: Final = struct.Struct(">23xi")
"""One less than the number of records, as the header of a batch has it."""


class UnexpectedAppendOffsetError(OffsetOutOfRangeError):
    """Batches from the leader that begin before the end of the log."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogWriter:
    """Appends, rolls and flushes.

    **An append** goes through these steps; what costs most comes before the lock is taken::

        validate        header, checksum, every record              no lock
        assign          offset, leader epoch, append time           lock
        deduplicate     a batch that is there already is answered
                        with the offsets it has
        leader epoch    a new one is on disk before its records
        roll            if the batch belongs into a new segment
        check           sequence numbers, epochs, transactions
        write           one write: now the batch is in the log
        take note       producers, aborted transactions, the last stable offset

    Nothing is forced to disk: a batch that was written survives the end of the process, and what survives the end of
    the machine is a matter of ``flush.messages`` and ``flush.ms``, or better, of replication.

    **Rolling** leaves a snapshot of the producers at the offset where the new segment begins. The old segment and the
    snapshot are forced to disk in the background, while producers go on.
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
        """Guards everything in a log that changes: segments, offsets, producers, files. Who reads records, or offsets,
        does not take it. The locks of leader epochs, of small files and of indexes are taken inside it, those of other
        logs never are."""
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
        """For readers, who look and do not touch."""
        self._partition_metadata = PartitionMetadataFile.in_directory(local_log.directory)
        self._validator = LogValidator(local_log.partition, local_log.config, context.clock)
        self.pace = local_log.pace
        """How quick the log directory is."""
        self._now_ns = context.clock.nanoseconds
        self._note_flush_messages(local_log.config)

    @property
    def topic_partition(self) -> TopicPartition:
        return self._local_log.partition

    @property
    def config(self) -> LogConfig:
        return self._local_log.config

    def update_config(self, config: LogConfig) -> LogConfig:
        """From now on, this one counts; returns the one before."""
        with self._lock:
            old = self._local_log.config
            self._local_log.config = config
            self._validator = LogValidator(self.topic_partition, config, self._clock)
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
        """Whether the append of a batch has to wait for a sync, as far as can be told without the lock.

        Because it reaches ``flush.messages``, or because it is among the first of a new log.
        """
        if self._partition_metadata.is_dirty:
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
        """Appends one batch, at the end of the log and under this leader epoch.

        The header is patched in the buffer itself, unless that is read-only. Raises what is wrong with the batch, or
        `KafkaStorageError`. The records from the leader of the metadata quorum have their offsets already, and may be
        several batches.
        """
        if origin is AppendOrigin.RAFT_LEADER:
            return self._append_as_it_is(records, origin, leader_epoch)
        local_log = self._local_log
        try:
            guard = local_log.guard
            if guard.channel.any_offline:
                guard.check()
            # Records whose topic is not known could not be told from those of another one with the same name.
            self._partition_metadata.maybe_flush()
            if origin is AppendOrigin.CLIENT:
                now = self._clock.milliseconds()
                plain = self._validator.plain_batch(records, now)
                compression, stats = CompressionType.NONE, NO_VALIDATION_STATS
                if plain is None:
                    compressed = self._validator.compressed_batch(records, now)
                    if compressed is not None:
                        plain, compression, stats = compressed
                if plain is not None:
                    began_ns = self._now_ns()
                    info = self._append_plain(
                        plain, leader_epoch, now, verification_guard, transaction_version, compression, stats
                    )
                    took_ns = self._now_ns() - began_ns
                    if took_ns > SLOW_WRITE_NS or self.pace.is_slow:
                        self.pace.wrote(took_ns)
                    return info
            validated = self._validator.validate(records, origin)
            began_ns = self._now_ns()
            with self._lock:
                local_log.check_open()
                now = self._clock.milliseconds()
                batch = validated.assign(local_log.log_end_offset, leader_epoch, now)
                info = LogAppendInfo(
                    batch.base_offset,
                    batch.last_offset,
                    leader_epoch,
                    batch.max_timestamp,
                    batch.last_offset,
                    log_start_offset=self._watermarks.offsets.log_start_offset,
                    valid_bytes=batch.size_in_bytes,
                    source_compression=validated.source_compression,
                    stats=validated.stats,
                )
                if validated.timestamp_type is TimestampType.LOG_APPEND_TIME:
                    info.log_append_time = now
                self._append(info, (batch,), batch.view, origin, now, verification_guard, transaction_version)
            took_ns = self._now_ns() - began_ns
            if took_ns > SLOW_WRITE_NS or self.pace.is_slow:
                self.pace.wrote(took_ns)
            return info
        except (KafkaStorageError, OSError) as error:
            local_log.guard.reraise(f"appending to {self.topic_partition}", error)

    def _append_plain(
        self,
        batch: memoryview,
        leader_epoch: int,
        now_ms: int,
        verification_guard: VerificationGuard,
        transaction_version: int,
        compression: CompressionType,
        stats: RecordValidationStats,
    ) -> LogAppendInfo:
        """Appends a batch that is in order, and as plain as can be: nearly every batch of nearly every producer.

        The steps are those of `_append`, for the one case that needs none of them to do anything but look: the leader
        epoch is known, the segment has room, and the batch is the next one of its producer, if it has one. It is for
        `_append` as soon as anything is not so.
        """
        local_log, state = self._local_log, self._producer_state
        with self._lock:
            if local_log.is_closed:
                local_log.check_open()
            appended = append_plain(local_log, state, self.leader_epochs, batch, leader_epoch)
            if appended is not None:
                self._watermarks.log_end_moved()
                first_offset, last_offset, timestamp = appended
                if last_offset + 1 - local_log.recovery_point >= local_log.config.flush_messages:
                    self.flush()
                return LogAppendInfo(
                    first_offset,
                    last_offset,
                    leader_epoch,
                    timestamp,
                    last_offset,
                    NO_TIMESTAMP,
                    self._watermarks.offsets.log_start_offset,
                    len(batch),
                    compression,
                    stats,
                )
            first_offset = local_log.log_end_offset_metadata[0]
            header = place_batch(batch, first_offset, leader_epoch)
            _, _, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, base_sequence, _ = header
            last_offset = first_offset + delta
            size = len(batch)
            info = LogAppendInfo(
                first_offset,
                last_offset,
                leader_epoch,
                timestamp,
                last_offset,
                NO_TIMESTAMP,
                self._watermarks.offsets.log_start_offset,
                size,
                compression,
                stats,
            )
            entry = None
            if producer_id >= 0 and not attributes & TRANSACTIONAL_MASK:
                entry = state.entry_followed_by(producer_id, producer_epoch, base_sequence)
            if (
                (entry is None and producer_id >= 0)
                or self.leader_epochs.latest_epoch != leader_epoch
                or not local_log.append_if_room(last_offset, timestamp, batch, size, now_ms)
            ):
                batches = (RecordBatch.with_header(batch, header),)
                self._append(info, batches, batch, AppendOrigin.CLIENT, now_ms, verification_guard, transaction_version)
                return info
            self._watermarks.log_end_moved()
            if entry is not None:
                last_sequence = (base_sequence + delta) & MAX_SEQUENCE
                entry.add_next(_new_tuple(BatchMetadata, (last_sequence, last_offset, delta, timestamp)))
            state.map_end_offset = last_offset + 1
            if last_offset + 1 - local_log.recovery_point >= local_log.config.flush_messages:
                self.flush()
            return info

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> LogAppendInfo:
        """Appends batches as the leader has them; `leader_epoch` is that of the leader they were fetched from.

        `UnexpectedAppendOffsetError` if they begin before the end of the log. If there is no whole batch, nothing is
        appended.
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
                source_compression=batches[-1].compression_type,
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
        """The steps from the second on. The lock must be held."""
        local_log, state = self._local_log, self._producer_state
        config = local_log.config
        if origin is AppendOrigin.CLIENT and batches[0].has_producer_id:
            duplicate = state.find_duplicate_batch(batches[0])
            if duplicate is not None:
                info.is_duplicate = True
                info.first_offset, info.last_offset = duplicate.first_offset, duplicate.last_offset
                if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
                    info.log_append_time = duplicate.timestamp
                return
        size = len(records)
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"An append of {size} bytes to {self.topic_partition} is larger than a segment may be, "
                f"{config.segment_bytes} bytes"
            )
        latest_epoch = self.leader_epochs.latest_epoch
        for batch in batches:
            epoch = batch.partition_leader_epoch
            if epoch != latest_epoch and epoch >= 0:
                # Not waited for: on the thread that does this, all clients of the broker may be waiting.
                self.leader_epochs.assign_later(epoch, batch.base_offset)
                latest_epoch = epoch
        segment = self._maybe_roll(size, info, now_ms)
        if not any(batch.has_producer_id for batch in batches):
            local_log.append(info.last_offset, info.max_timestamp, info.offset_of_max_timestamp, records)
            self._watermarks.log_end_moved()
            state.update_map_end_offset(info.last_offset + 1)
        else:
            place = LogOffsetMetadata(info.first_offset, segment.base_offset, segment.size)
            analysis = state.analyze(
                batches,
                origin,
                append_offset=place,
                guard=verification_guard,
                transaction_version=transaction_version,
            )
            local_log.append(info.last_offset, info.max_timestamp, info.offset_of_max_timestamp, records)
            self._take_note(analysis, segment, info.last_offset + 1)
        if local_log.unflushed_messages >= config.flush_messages:
            self.flush()

    def _take_note(self, analysis: ProducerAnalysis, segment: LogSegment, next_offset: int) -> None:
        """What batches that are in the log now mean for producers and transactions.

        All of it is in memory, save for the transaction index: if that cannot be written, the directory goes offline,
        and recovery finds out from the log.
        """
        state = self._producer_state
        for appended in analysis.updated.values():
            state.update(appended)
        for transaction in analysis.completed:
            if transaction.is_aborted:
                segment.append_aborted_txn(aborted_txn(transaction, state.last_stable_offset(transaction)))
            state.complete_txn(transaction)
        state.update_map_end_offset(next_offset)
        self._watermarks.update_first_unstable_offset()

    # Leader epochs

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """A leader begins its epoch here; on disk when this returns."""
        with self._lock, self._local_log.guard.watch(f"writing the leader epochs of {self.topic_partition}"):
            self.leader_epochs.assign(leader_epoch, start_offset)

    # Rolling

    def _maybe_roll(self, size: int, info: LogAppendInfo, now_ms: int) -> LogSegment:
        local_log = self._local_log
        config = local_log.config
        segment = local_log.active_segment_for_append()
        if segment.should_roll(
            messages_size=size,
            max_timestamp_in_messages=info.max_timestamp,
            max_offset_in_messages=info.last_offset,
            max_segment_bytes=config.segment_bytes,
            max_segment_ms=config.max_segment_ms,
            now_ms=now_ms,
        ):
            segment = self.roll(info.first_offset)
        return segment

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begins a new segment, at the end of the log or at a later offset that the next record is going to have."""
        with self._lock, self._local_log.guard.watch(f"rolling a segment of {self.topic_partition}"):
            segment = self._local_log.roll(expected_next_offset)
            state = self._producer_state
            # The state that the new segment begins with: recovery of it starts there.
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
        """Returns when everything that was appended before is on the disk.

        An active segment without records has nothing to flush; at a shutdown it is forced to be, so that the file is
        there after a power cut.
        """
        offset = self._local_log.log_end_offset
        self._flush(offset + 1 if force_flush_active_segment else offset, offset)

    def flush_up_to(self, offset: int) -> None:
        """Returns when everything before an offset is on the disk."""
        self._flush(offset, offset)

    def _flush(self, offset: int, recovery_point: int) -> None:
        """The disk is waited for without the lock, unless it is an append that has to wait."""
        local_log = self._local_log
        if offset <= local_log.recovery_point:
            return
        directory = local_log.directory
        try:
            local_log.guard.check()
            # Records beyond the recovery point are looked at again after a crash, and their epochs found. Those before
            # it are not.
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
        """Whether a file was not found because the log's directory was being renamed: then, the disk is all right."""
        if not isinstance(error.__cause__ or error, FileNotFoundError):
            return False
        with self._lock:  # for a rename to come to its end
            return self._local_log.directory != directory
