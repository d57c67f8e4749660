"""Appends, reads and offset lookups of a partition, limited by role, leader epoch and isolation."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.errors import (
    ApiError,
    Errors,
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import UNDEFINED_EPOCH, EpochEndOffset
from barnabas.log.log_append_info import LeaderHwChange, LogAppendInfo
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_watermarks import LogOffsetSnapshot
from barnabas.log.producers.log_producers import ActiveProducer
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.unified_log import DELETE_UP_TO_HIGH_WATERMARK, UnifiedLog
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.replica.partition.partition_context import PartitionContext
from barnabas.replica.partition.partition_isr import PartitionIsr, PartitionRole
from barnabas.replica.results import (
    NO_REPLICA,
    EpochEndOffsetResult,
    FetchParams,
    FetchPartitionData,
    IsolationLevel,
    OffsetResult,
)

ACKS_ALL = -1
_NO_ERROR: Final = Errors.NONE  # looking up an enum member costs as much as a call
_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


class DeletedRecords(NamedTuple):
    """The result of a deletion on the leader: the requested offset, and the low watermark of all replicas."""

    requested_offset: int
    low_watermark: int


class EmptyRead(NamedTuple):
    """A read without records, because the reader was at the last offset that it may see."""

    role: PartitionRole
    log: UnifiedLog
    offsets: LogOffsetSnapshot
    isolation: FetchIsolation
    result: FetchPartitionData


class PartitionLog(PartitionIsr):
    """Appends to a partition and reads from it, as far as this broker's role allows.

    A request may carry the leader epoch that its sender knows. If the epoch here is newer, the sender has missed an
    election (FENCED_LEADER_EPOCH); if it is older, this broker has (UNKNOWN_LEADER_EPOCH). In both cases one side must
    wait for metadata, and nothing is read from a log that may be on the wrong side of the election.
    """

    __slots__ = ("_empty_read",)

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid | None, context: PartitionContext) -> None:
        super().__init__(topic_partition, topic_id, context)
        self._empty_read: EmptyRead | None = None
        """The last read of a consumer at the end of the log. Set without a lock: any recent read will do."""

    # Appending

    def append_records_to_leader(
        self,
        records: Buffer,
        origin: AppendOrigin,
        required_acks: int,
        verification_guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> LogAppendInfo:
        """Appends a batch, and advances the high watermark if no follower holds it back.

        Raises `NotLeaderOrFollowerError`; `NotEnoughReplicasError`, before anything is written, for ``acks=all`` with
        too small an ISR; and the errors of an invalid batch.
        """
        with self._lock:
            role = self.role
            log = role.log
            if log is None or not role.is_leader:
                raise self._not_leader()
            if required_acks == ACKS_ALL and self.followers:
                self._check_enough_in_sync(log)
            info = log.append_as_leader(records, role.leader_epoch, origin, verification_guard, transaction_version)
            if self.followers:
                moved = self._maybe_increment_leader_hw(log)
            else:
                moved = log.watermarks.move_high_watermark_to_end()
            info.leader_hw_change = LeaderHwChange.INCREASED if moved else LeaderHwChange.SAME
            return info

    def _check_enough_in_sync(self, log: UnifiedLog) -> None:
        isr, min_isr = self.state.isr, self.effective_min_isr(log)
        if len(isr) < min_isr:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(isr)} replicas in sync, {sorted(isr)}; the topic wants {min_isr}"
            )

    # Leader epoch checks

    def local_log_with_epoch_or_raise(self, current_leader_epoch: int, require_leader: bool) -> UnifiedLog:
        """Returns the log for a reader with this leader epoch, -1 for none."""
        return self._log_of(self.role, current_leader_epoch, require_leader)

    def _log_of(self, role: PartitionRole, current_leader_epoch: int, require_leader: bool) -> UnifiedLog:
        if current_leader_epoch >= 0 and current_leader_epoch != role.leader_epoch:
            kind = FencedLeaderEpochError if current_leader_epoch < role.leader_epoch else UnknownLeaderEpochError
            raise kind(
                f"{self.topic_partition} is in leader epoch {role.leader_epoch} here, not in {current_leader_epoch}"
            )
        log = role.log
        if log is None or (require_leader and not role.is_leader):
            raise self._not_leader()
        return log

    def _log_in_epoch(self, role: PartitionRole, current_leader_epoch: int | None, require_leader: bool) -> UnifiedLog:
        """Like `_log_of`, for ListOffsets and OffsetForLeaderEpoch, where only -1 (here None) means no epoch.

        In a fetch any negative number means no epoch. The difference is Kafka's.
        """
        if current_leader_epoch is not None and current_leader_epoch < 0:
            raise FencedLeaderEpochError(
                f"{self.topic_partition} is in leader epoch {role.leader_epoch} here, not in {current_leader_epoch}"
            )
        return self._log_of(role, -1 if current_leader_epoch is None else current_leader_epoch, require_leader)

    # Reading

    def caught_up(self, params: FetchParams, request: FetchPartition) -> FetchPartitionData | None:
        """Returns the cached result for a consumer at the end of the log, if nothing has changed since.

        Nearly all partitions of nearly all fetches are at the end, and a delayed fetch checks them again and again.
        Nothing has changed as long as the role and the snapshot of the offsets are the same objects.
        """
        known = self._empty_read
        if known is None:
            return None
        role, log, offsets, isolation, result = known
        if (
            role is not self.role
            or log.watermarks.offsets is not offsets
            or isolation is not params.isolation
            or request.fetch_offset != result[9][0]
            or request.last_fetched_epoch >= 0
            or (request.current_leader_epoch >= 0 and request.current_leader_epoch != role[3])
            or (params.fetch_only_leader and not role[1])
            or log.watermarks.failures.any_offline
        ):
            return None
        return result

    def fetch_records(
        self,
        params: FetchParams,
        request: FetchPartition,
        now_ms: int,
        max_bytes: int,
        min_one_message: bool,
        update_fetch_state: bool,
    ) -> FetchPartitionData:
        """Reads the records for a fetch; the offsets in the result are taken before the read.

        (Before, so that concurrent appends do not keep a follower from catching up.)

        Raises `OffsetOutOfRangeError` and the leader epoch errors. The fetch offset of a follower is its log end
        offset, and updates the leader's state of that follower.
        """
        replica = None
        diverging = None
        while True:
            role = self.role
            log = self._log_of(role, request.current_leader_epoch, params.fetch_only_leader)
            if params.is_from_follower:
                replica = self.follower_replica_or_raise(params.replica_id, request.current_leader_epoch)
            offsets = log.fetch_offset_snapshot()
            if request.last_fetched_epoch >= 0:
                diverging = self._diverging_epoch(role, log, request, offsets.log_start_offset)
            if diverging is None:
                start, records, first_entry_incomplete, aborted = log.read(
                    request.fetch_offset, max_bytes, params.isolation, min_one_message, offsets
                )
                if first_entry_incomplete:
                    records = b""  # a partial batch is useless to the reader
            else:
                start, records, aborted = LogOffsetMetadata(request.fetch_offset), b"", None
            if self.role is role:
                break
            # The leader changed, or the log moved, during the read: read again.
        log_start_offset, log_end_offset, high_watermark, last_stable_offset = offsets
        is_reassignment = False
        if replica is not None:
            is_reassignment = self.is_adding_replica(params.replica_id)
            if update_fetch_state and diverging is None:
                self.update_follower_fetch_state(
                    replica, start, request.log_start_offset, now_ms, log_end_offset[0], params.replica_epoch
                )
        result = _new_tuple(
            FetchPartitionData,
            (
                _NO_ERROR,
                high_watermark[0],
                log_start_offset,
                records,
                diverging,
                last_stable_offset[0],
                aborted,
                NO_REPLICA,
                is_reassignment,
                start,
            ),
        )
        # A read at the limit has the limit itself as its start, the same object as in the snapshot.
        if replica is None and (start is high_watermark or start is last_stable_offset) and diverging is None:
            self._empty_read = _new_tuple(EmptyRead, (role, log, offsets, params.isolation, result))
        return result

    def _diverging_epoch(
        self, role: PartitionRole, log: UnifiedLog, request: FetchPartition, log_start_offset: int
    ) -> EpochEndOffset | None:
        """Returns where the reader's log diverges from this one: its last fetched epoch ends earlier here."""
        end = _end_offset_for_epoch(role, log, request.last_fetched_epoch)
        if end is None:
            raise OffsetOutOfRangeError(
                f"Nothing is known of leader epoch {request.last_fetched_epoch} of {self.topic_partition}"
            )
        if request.fetch_offset < log_start_offset:
            raise OffsetOutOfRangeError(
                f"Offset {request.fetch_offset} of {self.topic_partition} is not there any more: the log starts at "
                f"{log_start_offset}"
            )
        if end.leader_epoch < request.last_fetched_epoch or end.end_offset < request.fetch_offset:
            return end
        return None

    def diverges(self, request: FetchPartition) -> bool:
        """Whether a waiting reader has to truncate: its log diverges from this one, or the epoch is unknown."""
        role = self.role
        try:
            log = self._log_of(role, request.current_leader_epoch, require_leader=False)
        except ApiError:
            return True
        end = _end_offset_for_epoch(role, log, request.last_fetched_epoch)
        return end is None or end.leader_epoch < request.last_fetched_epoch or end.end_offset < request.fetch_offset

    def fetch_offset_snapshot(self, current_leader_epoch: int, fetch_only_from_leader: bool) -> LogOffsetSnapshot:
        """Returns all offsets of the log, with their file positions."""
        return self._log_of(self.role, current_leader_epoch, fetch_only_from_leader).fetch_offset_snapshot()

    # Offset lookups

    def fetch_offset_for_timestamp(
        self,
        timestamp: int,
        isolation: IsolationLevel | None,
        current_leader_epoch: int | None,
        fetch_only_from_leader: bool,
    ) -> OffsetResult:
        """Returns the offset for a timestamp or a `SpecialTimestamp`, as far as this reader may see.

        Without `isolation` the reader is a replica, and sees everything.

        A newly elected leader raises `OffsetNotAvailableError` until its high watermark reaches the start of its epoch:
        clients may have seen offsets beyond the high watermark, and offsets would seem to go backwards.
        """
        from barnabas.log.offset_lookup import SpecialTimestamp

        role = self.role
        log = self._log_in_epoch(role, current_leader_epoch, fetch_only_from_leader)
        if timestamp in {SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL}:
            return self._earliest(role, log, timestamp)
        if isolation is None:
            last_fetchable = log.log_end_offset
        elif isolation is IsolationLevel.READ_COMMITTED:
            last_fetchable = log.last_stable_offset
        else:
            last_fetchable = log.high_watermark
        start = role.leader_epoch_start_offset
        lags = isolation is not None and start is not None and start > log.high_watermark
        if timestamp == SpecialTimestamp.LATEST:
            if lags:
                raise self._offset_not_available(log, start)
            return OffsetResult(NO_TIMESTAMP, last_fetchable, role.leader_epoch)
        result = _offset_result(log, timestamp)
        if result is not _NO_OFFSET and result.offset < last_fetchable:
            return result
        if lags:
            raise self._offset_not_available(log, start)
        return _NO_OFFSET

    @staticmethod
    def _earliest(role: PartitionRole, log: UnifiedLog, timestamp: int) -> OffsetResult:
        result = _offset_result(log, timestamp)
        start = role.leader_epoch_start_offset
        # The first record is, or will be, of this leader's epoch: see `_end_offset_for_epoch`.
        return (
            result._replace(leader_epoch=role.leader_epoch) if start is not None and result.offset >= start else result
        )

    def _offset_not_available(self, log: UnifiedLog, start: int | None) -> OffsetNotAvailableError:
        return OffsetNotAvailableError(
            f"The high watermark of {self.topic_partition} is {log.high_watermark} and has not come to {start}, where "
            f"leader epoch {self.role.leader_epoch} began"
        )

    def last_offset_for_leader_epoch(
        self, current_leader_epoch: int | None, leader_epoch: int, fetch_only_from_leader: bool
    ) -> EpochEndOffsetResult:
        """Returns the last epoch in the log up to `leader_epoch`, and its end offset."""
        role = self.role
        try:
            log = self._log_in_epoch(role, current_leader_epoch, fetch_only_from_leader)
        except (FencedLeaderEpochError, UnknownLeaderEpochError, NotLeaderOrFollowerError) as error:
            return EpochEndOffsetResult(Errors.for_exception(error))
        end = _end_offset_for_epoch(role, log, leader_epoch)
        if end is None:
            return EpochEndOffsetResult(Errors.NONE)
        return EpochEndOffsetResult(Errors.NONE, end.leader_epoch, end.end_offset)

    # Deletion and producers

    def delete_records_on_leader(self, offset: int) -> DeletedRecords:
        """Moves the log start offset, -1 for the high watermark. Followers move theirs after their next fetch."""
        with self._lock:
            log = self.leader_log_if_local
            if log is None:
                raise self._not_leader()
            start = log.delete_records(offset)
            return DeletedRecords(
                start if offset == DELETE_UP_TO_HIGH_WATERMARK else offset, self.low_watermark_if_leader()
            )

    @property
    def log_start_offset(self) -> int:
        """The leader's log start offset; -1 if this broker is not the leader."""
        log = self.leader_log_if_local
        return -1 if log is None else log.log_start_offset

    def active_producers(self) -> list[ActiveProducer]:
        log = self.role.log
        if log is None:
            raise self._not_leader()
        return log.producers.active()

    def has_late_transaction(self, now_ms: int) -> bool:
        log = self.leader_log_if_local
        return log is not None and log.producers.has_late_transaction(now_ms)

    @property
    def producer_id_count(self) -> int:
        log = self.role.log
        return 0 if log is None else log.producers.count

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Returns the guard that a transactional append presents after the coordinator has verified it (KIP-890)."""
        log = self.leader_log_if_local
        if log is None:
            raise self._not_leader()
        return log.producers.maybe_start_transaction_verification(
            producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump
        )


_NO_OFFSET = OffsetResult()


def _offset_result(log: UnifiedLog, timestamp: int) -> OffsetResult:
    found = log.fetch_offset_by_timestamp(timestamp)
    if found is None:
        return _NO_OFFSET
    return OffsetResult(found.timestamp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch)


def _end_offset_for_epoch(role: PartitionRole, log: UnifiedLog, epoch: int) -> EpochEndOffset | None:
    """Returns the last epoch up to this one and its end offset; None if unknown.

    The epoch of a leader that has written nothing, and has no followers, is not in the epoch cache, but counts too.
    """
    start, latest = role.leader_epoch_start_offset, log.leader_epochs.latest_epoch
    if start is not None and epoch != UNDEFINED_EPOCH and (latest is None or epoch > latest):
        if epoch == role.leader_epoch:
            return EpochEndOffset(epoch, log.log_end_offset)
        if epoch < role.leader_epoch:
            return EpochEndOffset(epoch if latest is None else latest, start)
    return log.end_offset_for_epoch(epoch)
