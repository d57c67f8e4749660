"""A partition of which this broker has a replica."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.dataclass import replace
from barnabas.common.errors import (
    ApiError,
    Errors,
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.log.log_append_info import LeaderHwChange, LogAppendInfo
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.log_watermarks import LogOffsetSnapshot, no_listener
from barnabas.log.producers.log_producers import ActiveProducer
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.unified_log import DELETE_UP_TO_HIGH_WATERMARK, UnexpectedAppendOffsetError, UnifiedLog
from barnabas.metadata.directory_id import UNASSIGNED
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.partition.partition_context import PartitionContext, PartitionListener
from barnabas.replica.partition.partition_isr import PartitionIsr
from barnabas.replica.partition.partition_role import NO_ROLE, PartitionRole
from barnabas.replica.partition.partition_state import NO_ASSIGNMENT, NO_STATE, Assignment, CommittedPartitionState
from barnabas.replica.partition.remote_replica import Replica
from barnabas.replica.results import (
    ACKS_ALL,
    NO_REPLICA,
    EpochEndOffsetResult,
    FetchParams,
    FetchPartitionData,
    IsolationLevel,
    OffsetResult,
)

logger = logging.getLogger(__name__)

_RECOVERED: Final = LeaderRecoveryState.RECOVERED
# Looked up once, because access to an enum member costs as much as a call.
_NO_ERROR: Final = Errors.NONE
INCREASED: Final = LeaderHwChange.INCREASED
SAME: Final = LeaderHwChange.SAME
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


class Partition:
    """One partition, of which this broker is the leader or a follower.

    ::

                     make_leader                        make_leader (next epoch, other replicas)
        no role ----------------------> leader <---------+
           |                             |  ^
           | make_follower               |  | make_leader
           +----------> follower <-------+  |
                              |  make_follower
                              +-------------+

    The metadata log decides the role. `make_leader` opens the log if necessary, begins the new leader epoch in it, and
    starts to track the followers. `make_follower` stops tracking them; the fetchers copy the records. A registration
    with an older partition epoch is ignored: a response of the controller may arrive before the metadata does.

    A request may carry the leader epoch that its sender knows. If the epoch here is newer, the sender has missed an
    election (FENCED_LEADER_EPOCH); if it is older, this broker has (UNKNOWN_LEADER_EPOCH). In both cases one side must
    wait for metadata, and nothing is read from a log that may be on the wrong side of the election.

    The partition owns its `role` with the log, and the followers with the ISR (`isr`).

    **Locks.** Kafka guards this state with a readers/writer lock. Appends and fetches take it for reading: they run
    concurrently, but not during a change of leader. In Python such a lock costs several operations on plain locks.
    Therefore

    * *reads* take no lock: `role`, the ISR's state and the table of followers are immutable values, each replaced as a
      whole. A reader takes the role once, works with it, and checks at the end that it is still the same.
    * *appends* take a plain lock. An append must not come after a change of leader, or the log would have records that
      the new leader does not have. Appends to one partition queue for the log's lock anyway; appends to different
      partitions are independent.
    * *changes* of this state take the same lock.

    The lock is never held while a waiting request is completed or the controller is called.
    """

    __slots__ = (
        "_context",
        "_empty_read",
        "_listeners",
        "_lock",
        "assignment",
        "future_log",
        "isr",
        "role",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid | None, context: PartitionContext) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._context = context
        self._lock = threading.Lock()
        """Guards changes of all fields, and separates appends from changes of leader. Lock order: the replica manager's
        state change lock, this lock, the locks of the log manager and of the log."""
        self.role = NO_ROLE
        self.isr = PartitionIsr(topic_partition, topic_id, context, self._lock, self._on_isr_committed)
        self._listeners: tuple[PartitionListener, ...] = ()
        self.assignment: Assignment = NO_ASSIGNMENT
        self.future_log: UnifiedLog | None = None
        """The copy in another log directory that is going to replace the log."""
        self._empty_read: EmptyRead | None = None
        """The last read of a consumer at the end of the log. Set without a lock: any recent read will do."""

    # Roles

    @property
    def is_leader(self) -> bool:
        return self.role.is_leader

    @property
    def leader_id(self) -> int:
        """The broker id of the leader, -1 without a leader."""
        return self.role.leader_id

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    @property
    def log(self) -> UnifiedLog | None:
        return self.role.log

    @property
    def leader_log_if_local(self) -> UnifiedLog | None:
        role = self.role
        return role.log if role.is_leader else None

    def make_leader(self, registration: PartitionRegistration, *, is_new: bool) -> bool:
        """Makes this broker the leader; True if it was not the leader before.

        `is_new`: the partition was just created on this broker. Raises `KafkaStorageError` if the log cannot be opened.
        """
        with self._lock:
            if registration.partition_epoch < self.isr.partition_epoch:
                self._log_skipped("leader", registration)
                return False
            before = self.role
            is_new_leader = not before.is_leader
            is_new_epoch = registration.leader_epoch > before.leader_epoch
            now_ms = self._context.clock.milliseconds()
            isr = frozenset(registration.isr)
            self.isr.follow(one for one in registration.replicas if one != self._context.broker_id)
            self._update_assignment(registration)
            # Recovery after an unclean election takes no further work: the log is used as it is.
            self.isr.state = CommittedPartitionState(isr, _RECOVERED)
            log = self._open_log(registration, is_new)
            role = before
            if is_new_epoch:
                start = log.log_end_offset
                for replica in self.isr.followers.values():
                    replica.reset(now_ms, start, is_new_leader=is_new_leader, is_in_sync=replica.broker_id in isr)
                role = PartitionRole(log, True, self._context.broker_id, registration.leader_epoch, start)
                logger.debug(
                    "%s: leads from offset %d on, in leader epoch %d and partition epoch %d; the high watermark is %d, "
                    "the ISR %s; broker %d led before, in epoch %d",
                    self.topic_partition,
                    start,
                    registration.leader_epoch,
                    registration.partition_epoch,
                    log.high_watermark,
                    sorted(isr),
                    before.leader_id,
                    before.leader_epoch,
                )
            self.isr.partition_epoch = registration.partition_epoch
            self.role = replace(role, log=log, is_leader=True, leader_id=self._context.broker_id)
            if self.isr.followers:
                self._begin_epoch_in_log(log)
            # A smaller ISR can move the high watermark.
            hw_moved = self.isr.maybe_increment_high_watermark(log, now_ms)
        if hw_moved:
            self._context.waiting.check_and_complete_all(self.topic_partition)
        return is_new_leader

    def _begin_epoch_in_log(self, log: UnifiedLog) -> None:
        """Adds the leader epoch to the epoch cache before its first record. The lock must be held.

        A follower may have records of later epochs than any in this log, and asks where those epochs end. Without
        followers the first record adds the epoch. That saves a broker that starts with thousands of mostly idle
        partitions thousands of synchronous writes to disk.
        """
        role = self.role
        if log.leader_epochs.latest_epoch != role.leader_epoch and role.leader_epoch_start_offset is not None:
            log.maybe_assign_epoch_start_offset(role.leader_epoch, role.leader_epoch_start_offset)

    def make_follower(self, registration: PartitionRegistration, *, is_new: bool) -> bool:
        """Makes this broker a follower; True if the leader epoch is new, so that the fetchers must restart.

        The partition may have no leader. Raises `KafkaStorageError` if the log cannot be opened.
        """
        with self._lock:
            if registration.partition_epoch < self.isr.partition_epoch:
                self._log_skipped("follower", registration)
                return False
            before = self.role
            is_new_epoch = registration.leader_epoch > before.leader_epoch
            # Stop appends first: opening the log may fail.
            self.role = PartitionRole(before.log, False, registration.leader, registration.leader_epoch)
            self.isr.partition_epoch = registration.partition_epoch
            self.isr.followers = {}
            self._update_assignment(registration)
            self.isr.state = CommittedPartitionState(frozenset(), registration.leader_recovery_state)
            log = self._open_log(registration, is_new)
            self.role = replace(self.role, log=log)
            if is_new_epoch:
                logger.debug(
                    "%s: follows broker %d from offset %d on, in leader epoch %d and partition epoch %d; the high "
                    "watermark is %d; broker %d led before, in epoch %d",
                    self.topic_partition,
                    registration.leader,
                    log.log_end_offset,
                    registration.leader_epoch,
                    registration.partition_epoch,
                    log.high_watermark,
                    before.leader_id,
                    before.leader_epoch,
                )
            return is_new_epoch

    def _update_assignment(self, registration: PartitionRegistration) -> None:
        self.assignment = Assignment(
            registration.replicas, registration.adding_replicas, registration.removing_replicas
        )

    def _log_skipped(self, role: str, registration: PartitionRegistration) -> None:
        logger.info(
            "%s: ignoring a registration as %s with partition epoch %d: the current one is %d",
            self.topic_partition,
            role,
            registration.partition_epoch,
            self.isr.partition_epoch,
        )

    # The ISR

    @property
    def is_reassigning(self) -> bool:
        return self.role.is_leader and self.assignment.is_reassigning

    @property
    def is_under_replicated(self) -> bool:
        return self.role.is_leader and self.assignment.replication_factor > len(self.isr.state.isr)

    @property
    def is_under_min_isr(self) -> bool:
        log = self.leader_log_if_local
        return log is not None and len(self.isr.state.isr) < self.isr.effective_min_isr(log)

    @property
    def is_at_min_isr(self) -> bool:
        log = self.leader_log_if_local
        return log is not None and len(self.isr.state.isr) == self.isr.effective_min_isr(log)

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, Errors]:
        """Returns whether an append that ends at this offset is committed, and the error if there is one."""
        role = self.role
        log = role.log
        if not role.is_leader or log is None:
            return False, Errors.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, Errors.NONE
        if self.isr.followers and len(self.isr.state.maximal_isr) < self.isr.effective_min_isr(log):
            # The records are committed, but on fewer replicas than the topic requires: report it to the client.
            return True, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, Errors.NONE

    def low_watermark_if_leader(self) -> int:
        """Returns the smallest log start offset of the live replicas.

        Raises `NotLeaderOrFollowerError` if this broker is not the leader.
        """
        log = self.leader_log_if_local
        if log is None:
            raise self._not_leader()
        low = self.isr.low_watermark(log)
        future = self.future_log
        return low if future is None else min(low, future.log_start_offset)

    def update_follower_fetch_state(
        self,
        replica: Replica,
        fetch_offset: LogOffsetMetadata,
        log_start_offset: int,
        now_ms: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Records a follower's fetch: the follower has all records before the fetch offset.

        That can expand the ISR, and move the high watermark or the low watermark.
        """
        waiting, isr = self._context.waiting, self.isr
        any_deletes = waiting.any_delayed_deletes
        hw_moved = low_moved = False
        with self._lock:
            role = self.role
            log = role.log if role.is_leader else None
            isr.check_broker_epoch(replica.broker_id, broker_epoch)
            low_before = self.low_watermark_if_leader() if any_deletes and log is not None else -1
            end_before = replica.state.log_end_offset
            replica.update_fetch_state(fetch_offset, log_start_offset, now_ms, leader_end_offset, broker_epoch)
            if log is None:
                return
            low_moved = any_deletes and self.low_watermark_if_leader() > low_before
            proposal = isr.propose_expansion(replica, role, log)
            if end_before != fetch_offset.message_offset:
                hw_moved = isr.maybe_increment_high_watermark(log, now_ms)
        if proposal is not None:
            isr.submit(proposal)
        if low_moved or hw_moved:
            waiting.check_and_complete_all(self.topic_partition)

    def maybe_shrink_isr(self) -> None:
        """Proposes to remove followers from the ISR that have not been caught up for too long."""
        isr = self.isr
        if not self.role.is_leader or not isr.followers or isr.state.is_in_flight:
            return
        with self._lock:
            role = self.role
            log = role.log
            proposal = None if log is None or not role.is_leader else isr.propose_shrink(role, log)
        if proposal is not None:
            isr.submit(proposal)

    def _on_isr_committed(self) -> None:
        """Advances the high watermark after a change of the ISR."""
        with self._lock:
            log = self.leader_log_if_local
            hw_moved = log is not None and self.isr.maybe_increment_high_watermark(log)
        if hw_moved:
            self._context.waiting.check_and_complete_all(self.topic_partition)

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
        isr = self.isr
        with self._lock:
            role = self.role
            log = role.log
            if log is None or not role.is_leader:
                raise self._not_leader()
            if required_acks == ACKS_ALL and isr.followers:
                self._check_enough_in_sync(log)
            commits = not isr.followers
            info = log.append_as_leader(
                records, role.leader_epoch, origin, verification_guard, transaction_version, commits
            )
            if commits:
                return info
            moved = isr.maybe_increment_high_watermark(log)
            return info._replace(leader_hw_change=INCREASED if moved else SAME)

    def _check_enough_in_sync(self, log: UnifiedLog) -> None:
        isr, min_isr = self.isr.state.isr, self.isr.effective_min_isr(log)
        if len(isr) < min_isr:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(isr)} in-sync replicas, {sorted(isr)}; the minimum is {min_isr}"
            )

    def append_records_to_follower_or_future_replica(self, records: Buffer, *, is_future: bool) -> LogAppendInfo | None:
        """Appends batches with the offsets of the leader; None if the future log no longer exists."""
        try:
            return self._append_as_follower(records, is_future)
        except UnexpectedAppendOffsetError as error:
            log = self.future_log if is_future else self.role.log
            # After DeleteRecords the leader's log may start in the middle of a batch. The first batch fetched from it
            # then begins before the start of an empty log here, which must restart at the beginning of that batch.
            if log is None or not (
                log.log_end_offset == log.log_start_offset
                and error.first_offset < log.log_end_offset <= error.last_offset
            ):
                raise
            logger.info(
                "%s: the log now starts at offset %d, the base offset of a batch",
                self.topic_partition,
                error.first_offset,
            )
            self.truncate_fully_and_start_at(error.first_offset, is_future=is_future)
            return self._append_as_follower(records, is_future)

    def _append_as_follower(self, records: Buffer, is_future: bool) -> LogAppendInfo | None:
        if is_future:
            # No lock, or producers would wait for the copying. Only one thread writes to a future log, and that
            # thread is stopped before the log is removed.
            future = self.future_log
            return None if future is None else future.append_as_follower(records, self.role.leader_epoch)
        with self._lock:  # prevents that the future log replaces the log during the append
            return self.local_log_or_raise().append_as_follower(records, self.role.leader_epoch)

    def truncate_to(self, offset: int, *, is_future: bool = False) -> None:
        """Removes all records from an offset on, and checkpoints the recovery point."""
        with nullcontext() if is_future else self._lock:
            self._context.log_manager.truncate_to({self.topic_partition: offset}, is_future=is_future)

    def truncate_fully_and_start_at(self, offset: int, *, is_future: bool = False) -> None:
        """Deletes all records of a log; its next record gets this offset."""
        with nullcontext() if is_future else self._lock:
            self._context.log_manager.truncate_fully_and_start_at(self.topic_partition, offset, is_future=is_future)

    # Leader epoch checks

    def _log_of(self, role: PartitionRole, current_leader_epoch: int, require_leader: bool) -> UnifiedLog:
        if current_leader_epoch >= 0 and current_leader_epoch != role.leader_epoch:
            kind = FencedLeaderEpochError if current_leader_epoch < role.leader_epoch else UnknownLeaderEpochError
            raise kind(
                f"The leader epoch of {self.topic_partition} is {role.leader_epoch} here, not {current_leader_epoch}"
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
                f"The leader epoch of {self.topic_partition} is {role.leader_epoch} here, not {current_leader_epoch}"
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
            or (request.current_leader_epoch >= 0 and request.current_leader_epoch != role.leader_epoch)
            or (params.fetch_only_leader and not role.is_leader)
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
                replica = self.isr.follower_or_raise(params.replica_id, request.current_leader_epoch)
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
            is_reassignment = params.replica_id in self.assignment.adding_replicas
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
        end = role.end_offset_for_epoch(log, request.last_fetched_epoch)
        if end is None:
            raise OffsetOutOfRangeError(
                f"Leader epoch {request.last_fetched_epoch} of {self.topic_partition} is unknown"
            )
        if request.fetch_offset < log_start_offset:
            raise OffsetOutOfRangeError(
                f"Offset {request.fetch_offset} of {self.topic_partition} is out of range: the log starts at offset "
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
        end = role.end_offset_for_epoch(log, request.last_fetched_epoch)
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
        """Returns the offset for a timestamp or a `SpecialTimestamp`; see `PartitionRole.offset_for_timestamp`."""
        role = self.role
        log = self._log_in_epoch(role, current_leader_epoch, fetch_only_from_leader)
        return role.offset_for_timestamp(log, timestamp, isolation)

    def last_offset_for_leader_epoch(
        self, current_leader_epoch: int | None, leader_epoch: int, fetch_only_from_leader: bool
    ) -> EpochEndOffsetResult:
        """Returns the last epoch in the log up to `leader_epoch`, and its end offset."""
        role = self.role
        try:
            log = self._log_in_epoch(role, current_leader_epoch, fetch_only_from_leader)
        except (FencedLeaderEpochError, UnknownLeaderEpochError, NotLeaderOrFollowerError) as error:
            return EpochEndOffsetResult(Errors.for_exception(error))
        end = role.end_offset_for_epoch(log, leader_epoch)
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

    # Logs

    def _not_leader(self) -> NotLeaderOrFollowerError:
        return NotLeaderOrFollowerError(
            f"Broker {self._context.broker_id} does not lead {self.topic_partition}; broker {self.role.leader_id} does"
        )

    def local_log_or_raise(self) -> UnifiedLog:
        log = self.role.log
        if log is None:
            raise NotLeaderOrFollowerError(
                f"There is no log of {self.topic_partition} on broker {self._context.broker_id}"
            )
        return log

    def _open_log(self, registration: PartitionRegistration, is_new: bool) -> UnifiedLog:
        """Returns the log, and creates it if it does not exist. The lock must be held.

        The log may exist in a log directory that is offline. Creating it again elsewhere would turn this broker into
        an empty replica, so nothing is created if the replica's directory may be the offline one.
        """
        log = self.role.log
        if log is not None:
            return log
        manager = self._context.log_manager
        log = manager.get_log(self.topic_partition)
        directory_id = registration.directory(self._context.broker_id)
        if (
            log is None
            and directory_id is not None
            and directory_id != UNASSIGNED
            and manager.offline_log_dirs
            and manager.log_dirs.path_of(directory_id) is None
        ):
            raise KafkaStorageError(
                f"The log of {self.topic_partition} is not created: it may be in a log directory that is offline. Its "
                f"directory id is {uuid_to_string(directory_id)}"
            )
        log = manager.get_or_create_log(
            self.topic_partition, is_new=is_new, topic_id=self.topic_id, target_directory_id=directory_id
        )
        self._listen_to(log)
        return log

    # Moving to another log directory

    def future_replica_dir_changed(self, new_destination: Path) -> bool:
        """Whether the log is moving to a directory other than this one."""
        future = self.future_log
        return future is not None and future.parent_dir != new_destination

    def maybe_create_future_replica(self, destination: Path) -> bool:
        """Creates the future log; False if the current log is in this directory already, or a move is under way.

        Raises `KafkaStorageError` if a log directory is offline, because its contents are unknown.
        """
        if self.local_log_or_raise().parent_dir == destination:
            logger.info("%s: the log is in %s already", self.topic_partition, destination)
            return False
        if self.future_log is not None:
            return False
        # No lock: this may have to wait for the cleaner. The replica manager starts one move at a time.
        future = self._context.log_manager.get_or_create_log(
            self.topic_partition, is_future=True, topic_id=self.topic_id
        )
        with self._lock:
            self.future_log = future
        return True

    def remove_future_local_replica(self, *, delete_from_log_dir: bool = True) -> None:
        with self._lock:
            self.future_log = None
            if delete_from_log_dir:
                self._context.log_manager.async_delete(self.topic_partition, is_future=True)

    def maybe_replace_current_with_future_replica(self) -> bool:
        """Replaces the log with the future log if that has caught up; True if replaced."""
        current, future = self.role.log, self.future_log
        if current is None or future is None or future.log_end_offset != current.log_end_offset:
            return False  # without taking the lock from producers
        # The original is deleted soon. What was on its disk has to be on this one; nearly all of it without the lock.
        future.flush()
        with self._lock:  # no appends from here on
            current, future = self.role.log, self.future_log
            if current is None or future is None or future.log_end_offset != current.log_end_offset:
                return False
            future.flush()
            self._context.log_manager.replace_current_with_future_log(self.topic_partition)
            self.future_log = None
            self._listen_to(future)
            self.role = replace(self.role, log=future)
            return True

    # Listeners

    def maybe_add_listener(self, listener: PartitionListener) -> bool:
        """Adds a listener; False if the partition has no log."""
        with self._lock:
            log = self.role.log
            if log is None:
                return False
            self._listeners = (*self._listeners, listener)
            self._listen_to(log)
            return True

    def remove_listener(self, listener: PartitionListener) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            log = self.role.log
            if log is not None:
                self._listen_to(log)

    def _listen_to(self, log: UnifiedLog) -> None:
        log.watermarks.listener = self._on_high_watermark if self._listeners else no_listener

    def _on_high_watermark(self, offset: int) -> None:
        for listener in self._listeners:
            listener.on_high_watermark_updated(self.topic_partition, offset)

    # Removal

    def delete(self) -> None:
        """Removes the replica from this broker. The replica manager deletes the log, together with others."""
        for listener in self._clear():
            listener.on_deleted(self.topic_partition)

    def mark_offline(self) -> None:
        """Takes the partition offline because its log directory failed."""
        for listener in self._clear():
            listener.on_failed(self.topic_partition)

    def _clear(self) -> tuple[PartitionListener, ...]:
        with self._lock:
            listeners, self._listeners = self._listeners, ()
            self.isr.followers = {}
            self.isr.state = NO_STATE
            self.assignment = NO_ASSIGNMENT
            self.future_log = None
            # Keep the epoch: otherwise an older leader epoch would be accepted as new.
            self.role = replace(NO_ROLE, leader_epoch=self.role.leader_epoch)
            return listeners

    def __repr__(self) -> str:
        role = self.role
        return (
            f"Partition({self.topic_partition}, leader={role.leader_id}, leader_epoch={role.leader_epoch}, "
            f"partition_epoch={self.isr.partition_epoch}, replicas={list(self.assignment.replicas)}, "
            f"isr={sorted(self.isr.state.isr)})"
        )
