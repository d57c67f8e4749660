"""A partition's log."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from barnabas.common.errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RecordBatchTooLargeError,
)
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.durable_file import sync_file
from barnabas.log.dirs.leader_epoch_checkpoint import LeaderEpochCheckpointFile
from barnabas.log.dirs.log_dir_names import is_future_dir
from barnabas.log.dirs.log_dir_pace import SLOW_WRITE_NS
from barnabas.log.dirs.partition_metadata_file import PartitionMetadataFile
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from barnabas.log.log_append_info import LeaderHwChange, LogAppendInfo
from barnabas.log.log_context import LogContext
from barnabas.log.log_loader import LoadedLog, LogLoader
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_validator import LogValidator, analyze_replicated
from barnabas.log.log_watermarks import LogOffsetSnapshot, LogWatermarks, no_listener
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.producer_state_rebuild import aborted_txn, take_snapshot_at_end
from barnabas.log.producers.producer_states import ProducerAnalysis
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.segment.file_records import TimestampAndOffset
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.log.segment.segment_damage import DamagePolicy
from barnabas.log.storage_errors import FileClosedError, disk_access
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import HEADER_SIZE, NO_TIMESTAMP, RecordBatch, TimestampType

if TYPE_CHECKING:
    from barnabas.log.retention import Condition

logger = logging.getLogger(__name__)

T = TypeVar("T")

DELETE_UP_TO_HIGH_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that stands for the high watermark."""
NEVER_BY_COUNT: Final = 2**63 - 1
"""The default of ``flush.messages``."""
LAST_OFFSET_DELTA: Final = struct.Struct(">23xi")
"""The last offset delta in the header of a batch: one less than the number of records."""

# Looked up once, because access to an enum member costs as much as a call.
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
CLIENT: Final = AppendOrigin.CLIENT
INCREASED: Final = LeaderHwChange.INCREASED
NO_CHANGE: Final = LeaderHwChange.NONE
RAFT_LEADER: Final = AppendOrigin.RAFT_LEADER
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED

_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


class UnexpectedAppendOffsetError(OffsetOutOfRangeError):
    """Batches from the leader begin before the log end offset."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogStartOffsetIncrementReason(Enum):
    """Why the log start offset moved forward."""

    LEADER_OFFSET_INCREMENTED = "the leader's log starts there"
    SEGMENT_DELETION = "segments were deleted"
    CLIENT_RECORD_DELETION = "a client asked for it"
    SNAPSHOT_GENERATED = "a snapshot has what was before"


class UnifiedLog:
    """The log of one partition: records ordered by offset, in their own directory.

    >>> log = UnifiedLog.open(Path("data/orders-0"), config, context)  # doctest: +SKIP
    >>> log.append_as_leader(batch, leader_epoch=0).first_offset  # doctest: +SKIP
    0
    >>> log.watermarks.update_high_watermark(log.log_end_offset)  # doctest: +SKIP
    >>> log.read(0, 1 << 20, FetchIsolation.HIGH_WATERMARK, min_one_message=True).records  # doctest: +SKIP
    FileRegion(fd=7, position=0, count=1042)

    The log owns its files (`LocalLog`), the offsets that limit reads (`LogWatermarks`), its producers (`LogProducers`)
    and its leader epochs (`LeaderEpochFileCache`), and keeps them consistent under one lock.

    **An append** takes these steps, the same for every batch. The most expensive step runs before the lock is taken::

        validate        header, checksum, every record              no lock
        assign          offset, leader epoch, append time           lock
        deduplicate     a batch that is in the log already keeps its
                        offsets
        leader epoch    a new one is recorded before its records
        roll            if the batch needs a new segment
        check           sequence numbers, epochs, transactions
        write           one write: now the batch is in the log
        update          producers, aborted transactions
        publish         the log end offset, with the other offsets

    Nothing is forced to disk: a written batch survives a crash of the process. Whether it survives a crash of the
    machine depends on ``flush.messages`` and ``flush.ms``, or better, on replication.

    **Rolling** takes a snapshot of the producer state at the base offset of the new segment. The old segment and the
    snapshot are forced to disk in the background, while producers continue.

    **A read** takes no lock. It takes the offsets, then the table of segments, then an index. Each of them is immutable
    or returns immutable values. The result is a region of a file, which stays open as long as the region is referenced,
    or a few bytes.
    """

    def __init__(self, loaded: LoadedLog, context: LogContext, topic_id: Uuid | None = None) -> None:
        """Takes the parts of a log that was loaded: see `open`."""
        log_start_offset, local_log, producer_state, leader_epochs = loaded
        self._lock = threading.RLock()
        """Guards all mutable state of a log: segments, offsets, producers, files. Readers of records or offsets do not
        take it. The locks of leader epochs, small files and indexes are taken inside it; those of other logs never."""
        self._context = context
        self._clock = context.clock
        self._now_ns = context.clock.nanoseconds
        self._local_log = local_log
        self._producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.producers = LogProducers(producer_state, self._lock, context, local_log.guard)
        with self._lock:
            self.watermarks = LogWatermarks(log_start_offset, local_log, producer_state, self._lock)
            self.watermarks.set_log_start_offset(log_start_offset)
        self._validator = LogValidator(local_log.partition, local_log.config)
        self.pace = local_log.pace
        """Tracks whether the log directory is slow."""
        self._note_flush_messages(local_log.config)
        self._partition_metadata = PartitionMetadataFile.in_directory(local_log.directory)
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
        loaded = LogLoader(
            directory,
            config,
            context,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=had_clean_shutdown,
            damage_policy=damage_policy,
        ).load()
        try:
            return cls(loaded, context, topic_id)
        except BaseException:
            loaded.local_log.close_handlers()
            raise

    # Properties

    @property
    def topic_partition(self) -> TopicPartition:
        return self._local_log.partition

    @property
    def config(self) -> LogConfig:
        return self._local_log.config

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
    def last_flush_ms(self) -> int:
        """The time of the last flush on the monotonic clock."""
        return self._local_log.last_flush_ms

    # Offsets. A caller that needs several takes them from one snapshot.

    @property
    def log_start_offset(self) -> int:
        return self.watermarks.offsets.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.watermarks.offsets.log_end_offset.message_offset

    @property
    def high_watermark(self) -> int:
        return self.watermarks.offsets.high_watermark.message_offset

    @property
    def last_stable_offset(self) -> int:
        return self.watermarks.offsets.last_stable_offset.message_offset

    def fetch_offset_snapshot(self) -> LogOffsetSnapshot:
        """Returns all current offsets with their file positions."""
        local_log, marks = self._local_log, self.watermarks
        offsets = marks.offsets
        if offsets[2][1] >= 0 and offsets[3][1] >= 0 and not local_log.guard.channel.any_offline:
            return offsets
        return self._look_up("looking up offsets", marks.snapshot)

    # Configuration and topic id

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
        commits: bool = False,
    ) -> LogAppendInfo:
        """Appends one batch at the end of the log under this leader epoch.

        With `commits` the high watermark moves along, because there is no other replica that has to get the records.

        The header is patched in the buffer itself, unless that is read-only. Raises the validation error of an invalid
        batch, or `KafkaStorageError`. Records from the leader of the metadata quorum have their offsets already, and
        may be several batches.
        """
        if origin is RAFT_LEADER:
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
            now_ns = self._now_ns
            began_ns = now_ns()
            with self._lock:
                if local_log.is_closed:
                    local_log.check_open()
                batch.place(local_log.log_end_offset_metadata[0], leader_epoch)
                log_append_time = NO_TIMESTAMP
                if validator.timestamp_type is LOG_APPEND_TIME:
                    # Read again with the lock held, so that append times grow with offsets.
                    log_append_time = now_ms = self._clock.milliseconds()
                    batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
                info = self._append(
                    (batch,),
                    batch.view,
                    origin,
                    now_ms,
                    log_append_time,
                    commits,
                    verification_guard,
                    transaction_version,
                )
            took_ns = now_ns() - began_ns
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
                return LogAppendInfo(log_start_offset=self.watermarks.offsets.log_start_offset)
            first_offset, last_offset = batches[0].base_offset, batches[-1].last_offset
            with self._lock:
                local_log.check_open()
                if first_offset < local_log.log_end_offset:
                    raise UnexpectedAppendOffsetError(
                        f"An append to {self.topic_partition} has the offsets {first_offset} to "
                        f"{last_offset}, and begins before the log end offset {local_log.log_end_offset}",
                        first_offset,
                        last_offset,
                    )
                return self._append(batches, valid_records, origin, self._clock.milliseconds())
        except (KafkaStorageError, OSError) as error:
            local_log.guard.reraise(f"appending to {self.topic_partition}", error)

    def _append(
        self,
        batches: Sequence[RecordBatch],
        records: memoryview,
        origin: AppendOrigin,
        now_ms: int,
        log_append_time: int = NO_TIMESTAMP,
        commits: bool = False,
        verification_guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> LogAppendInfo:
        """Runs the steps of an append from "deduplicate" on. The lock must be held.

        With the batch of a `CLIENT`, which is the only one, it may turn out that the log has it already.
        """
        local_log, state = self._local_log, self._producer_state
        config = local_log.config
        size = len(records)
        first, last = batches[0], batches[-1]
        if origin is CLIENT and first.producer_id >= 0:
            duplicate = state.find_duplicate_batch(first)
            if duplicate is not None:
                return LogAppendInfo(
                    duplicate.first_offset,
                    duplicate.last_offset,
                    first.partition_leader_epoch,
                    first.max_timestamp,
                    first.last_offset,
                    duplicate.timestamp if config.timestamp_type is LOG_APPEND_TIME else NO_TIMESTAMP,
                    self.watermarks.offsets.log_start_offset,
                    size,
                    is_duplicate=True,
                    leader_hw_change=LeaderHwChange.SAME,
                )
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"An append of {size} bytes to {self.topic_partition} exceeds segment.bytes: {config.segment_bytes}"
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
        first_offset = first.base_offset
        last_offset = last.base_offset + last.last_offset_delta
        max_timestamp, offset_of_max_timestamp = first.max_timestamp, last_offset
        if first is not last:
            largest = max(batches, key=lambda batch: batch.max_timestamp)
            max_timestamp, offset_of_max_timestamp = largest.max_timestamp, largest.last_offset
        if not local_log.active_is_ready:
            local_log.make_active_segment_ready()
        segment = local_log.segments.last
        assert segment is not None
        if segment.should_roll(size, max_timestamp, last_offset, config, now_ms):
            segment = self.roll(first_offset)
        analysis = None
        if has_producers:
            place = LogOffsetMetadata(first_offset, segment.base_offset, segment.records.size_in_bytes)
            analysis = state.analyze(
                batches,
                origin,
                append_offset=place,
                guard=verification_guard,
                transaction_version=transaction_version,
            )
            for transaction in analysis.completed:
                if transaction.is_aborted:
                    # Before the write: with the marker in the log and not in the index, the transaction would not end.
                    segment.txn_index.prepare_append()
        local_log.append(segment, last_offset, max_timestamp, offset_of_max_timestamp, records)
        if analysis is not None:
            self._update_producers(analysis, segment)
        state.map_end_offset = last_offset + 1
        if last_offset + 1 - local_log.recovery_point >= config.flush_messages:
            self.flush()
        log_start_offset = self.watermarks.appended(commits)
        info: LogAppendInfo = _new_tuple(
            LogAppendInfo,
            (
                first_offset,
                last_offset,
                last.partition_leader_epoch,
                max_timestamp,
                offset_of_max_timestamp,
                log_append_time,
                log_start_offset,
                size,
                False,
                INCREASED if commits else NO_CHANGE,
            ),
        )
        return info

    def _update_producers(self, analysis: ProducerAnalysis, segment: LogSegment) -> None:
        """Updates producers and transactions for batches that were written.

        All of this is in memory except the transaction index, whose file is open. If the index cannot be written, the
        directory goes offline, and recovery restores the index from the log.
        """
        state = self._producer_state
        for appended in analysis.updated.values():
            state.update(appended)
        for transaction in analysis.completed:
            if transaction.is_aborted:
                segment.append_aborted_txn(aborted_txn(transaction, state.last_stable_offset(transaction)))
            state.complete_txn(transaction)

    # Leader epochs

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Records the start offset of a leader epoch, and returns when it is on disk."""
        with self._lock, self._local_log.guard.watch(f"writing the leader epochs of {self.topic_partition}"):
            self.leader_epochs.assign(leader_epoch, start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset | None:
        """Returns the last epoch up to this one and its end offset; None if unknown."""
        found = self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found.end_offset == UNDEFINED_EPOCH_OFFSET else found

    # Rolling

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Rolls a new segment at the log end offset, or at a later expected offset of the next record."""
        with self._lock, self._local_log.guard.watch(f"rolling a segment of {self.topic_partition}"):
            segment = self._local_log.roll(expected_next_offset)
            state = self._producer_state
            # Recovery of the new segment starts with this producer state.
            state.update_map_end_offset(segment.base_offset)
            snapshot = state.take_snapshot(sync=False)
            self.watermarks.follow_log_end()
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

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: FetchIsolation,
        min_one_message: bool,
        offsets: LogOffsetSnapshot | None = None,
    ) -> FetchDataInfo:
        """Reads at most `max_length` bytes of batches from an offset on; with `min_one_message` at least one batch.

        `offsets` bounds the read, if the caller has a snapshot already. Raises `OffsetOutOfRangeError` for an offset
        before the log start offset or after the log end offset. Only indexes and the headers of a few batches are read
        from disk.
        """
        local_log = self._local_log
        directory = local_log.directory
        try:
            if local_log.guard.channel.any_offline:
                local_log.guard.check()
            if offsets is None:
                offsets = self.watermarks.snapshot()
            log_start_offset, limit, high_watermark, last_stable_offset = offsets
            if start_offset < log_start_offset:
                raise OffsetOutOfRangeError(
                    f"Offset {start_offset} of {self.topic_partition} is out of range: the log starts at offset "
                    f"{log_start_offset}"
                )
            committed = isolation is TXN_COMMITTED
            if committed:
                limit = last_stable_offset
            elif isolation is HIGH_WATERMARK:
                limit = high_watermark
            return local_log.read(start_offset, max_length, min_one_message, limit, committed)
        except (KafkaStorageError, OSError) as error:
            if self._has_moved(directory, error):
                return self.read(start_offset, max_length, isolation, min_one_message)
            local_log.guard.reraise(f"reading {self.topic_partition}", error)

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTxn]:
        """Returns the aborted transactions that overlap a range of offsets."""
        return self._look_up(
            "reading the transaction index",
            lambda: self._local_log.collect_aborted_transactions(start_offset, upper_bound_offset),
        )

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Looks up an offset by timestamp; see `barnabas.log.offset_lookup`."""
        from barnabas.log.offset_lookup import find_offset

        return self._look_up(
            "looking up a timestamp",
            lambda: find_offset(
                timestamp,
                self._local_log.segments,
                self.leader_epochs,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
            ),
        )

    def _look_up(self, action: str, operation: Callable[[], T]) -> T:
        local_log = self._local_log
        directory = local_log.directory
        try:
            local_log.guard.check()
            return operation()
        except (KafkaStorageError, OSError) as error:
            if self._has_moved(directory, error):
                return self._look_up(action, operation)
            local_log.guard.reraise(f"{action} in {self.topic_partition}", error)

    def _has_moved(self, directory: Path, error: BaseException) -> bool:
        """Returns whether a file was not found because the directory was renamed, and not because the disk failed."""
        if not isinstance(error.__cause__ or error, FileNotFoundError):
            return False
        with self._lock:  # waits until a rename is complete
            return self._local_log.directory != directory

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
                    f"The log start offset of {self.topic_partition} cannot be {offset}, above the high watermark "
                    f"{self.high_watermark}"
                )
            if offset <= self.log_start_offset:
                return False
            self._producer_state.on_log_start_offset_incremented(offset)
            self.watermarks.set_log_start_offset(offset)
            logger.info("%s: the log starts at offset %d now: %s", self.topic_partition, offset, reason.value)
            self.leader_epochs.truncate_from_start(offset)
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
            self.watermarks.truncated(start)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Removes all records; the next record gets this offset."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"emptying {self.topic_partition}"):
            logger.info("%s: deleting all records; the next offset is %d", self.topic_partition, offset)
            local_log.truncate_fully_and_start_at(offset)
            self.leader_epochs.clear_and_flush()
            self._producer_state.truncate_fully_and_start_at(offset)
            self.watermarks.truncated(offset if log_start_offset is None else log_start_offset, fully=True)

    # Renaming, closing and deleting

    def rename_dir(self, name: str) -> None:
        """Renames the directory. Readers are not affected."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"renaming the directory of {self.topic_partition}"):
            self._partition_metadata.maybe_flush()
            if local_log.rename_dir(name):
                directory = local_log.directory
                self.producers.update_parent_dir(directory)
                self.leader_epochs.move_to(LeaderEpochCheckpointFile.in_directory(directory))
                self._partition_metadata = PartitionMetadataFile.in_directory(directory)

    def close(self) -> None:
        """Writes the state that the next start would otherwise have to rebuild, and closes all files."""
        with self._lock, self._local_log.guard.watch(f"closing {self.topic_partition}"):
            self._local_log.check_open()
            self.watermarks.listener = no_listener
            self._partition_metadata.maybe_flush()
            self.leader_epochs.flush()
            take_snapshot_at_end(self._producer_state, self._local_log.segments, sync=True)
            self._local_log.close()

    def close_handlers(self) -> None:
        """Closes all files without writing anything, for use after a disk failure."""
        with self._lock:
            self.watermarks.listener = no_listener
            self._local_log.close_handlers()

    def delete(self) -> None:
        """Deletes the log and its directory immediately."""
        local_log = self._local_log
        with self._lock, local_log.guard.watch(f"deleting the log of {self.topic_partition}"):
            self.watermarks.listener = no_listener
            self.leader_epochs.clear()
            local_log.delete_all_segments()
            local_log.delete_dir()

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.directory}, log_start_offset={self.log_start_offset}, "
            f"last_stable_offset={self.last_stable_offset}, high_watermark={self.high_watermark}, "
            f"log_end_offset={self.log_end_offset})"
        )
