"""The leader's state of its followers: the ISR and the high watermark."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Final, NamedTuple

from barnabas.common.errors import Errors, NotLeaderOrFollowerError, UnknownLeaderEpochError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.partition_registration import NO_LEADER, LeaderRecoveryState
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.alter_partition import NO_BROKER_EPOCH, IsrMember, LeaderAndIsr
from barnabas.replica.partition.partition_context import PartitionContext
from barnabas.replica.partition.partition_state import (
    NO_ASSIGNMENT,
    NO_STATE,
    Assignment,
    CommittedPartitionState,
    PartitionState,
    PendingPartitionState,
)
from barnabas.replica.partition.remote_replica import Replica

logger = logging.getLogger(__name__)

_NOT_APPLIED: Final = frozenset({Errors.OPERATION_NOT_ATTEMPTED, Errors.INELIGIBLE_REPLICA})
"""Errors of the controller which mean that the proposal has no effect, now or later."""
_WAIT_FOR_METADATA: Final = frozenset(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.FENCED_LEADER_EPOCH,
        Errors.INVALID_UPDATE_VERSION,
        Errors.INVALID_REQUEST,
        Errors.NEW_LEADER_ELECTED,
    }
)
"""Errors for a leader with outdated state: newer metadata is on its way to it."""


class PartitionRole(NamedTuple):
    """This broker's role for a partition. Replaced as a whole, so it can be read without a lock."""

    log: UnifiedLog | None = None
    is_leader: bool = False
    leader_id: int = NO_LEADER
    leader_epoch: int = -1
    leader_epoch_start_offset: int | None = None
    """The log end offset when this broker was elected; None for a follower."""


NO_ROLE: Final = PartitionRole()


class PartitionIsr:
    """Tracks the replicas and the high watermark of one partition.

    **The high watermark** of a leader is the smallest log end offset of the ISR: all records before it are on all of
    these replicas, and survive any election. Each fetch of a follower reports its log end offset. A replica outside
    the ISR that is caught up counts as well: if the high watermark ran ahead of it, it could never join the ISR.
    Without followers, the high watermark is the log end offset. While the ISR is smaller than
    ``min.insync.replicas``, the high watermark does not move (KIP-966).

    **Locks.** Kafka guards this state with a readers/writer lock. Appends and fetches take it for reading: they run
    concurrently, but not during a change of leader. In Python such a lock costs several operations on plain locks.
    Therefore

    * *reads* take no lock: `role`, `state` and the table of replicas are immutable values, each replaced as a whole.
      A reader takes the role once, works with it, and checks at the end that it is still the same.
    * *appends* take a plain lock. An append must not come after a change of leader, or the log would have records that
      the new leader does not have. Appends to one partition queue for the log's lock anyway; appends to different
      partitions are independent.
    * *changes* of this state take the same lock.

    The lock is never held while a waiting request is completed or the controller is called.
    """

    __slots__ = (
        "_assignment",
        "_context",
        "_future_log",
        "_lock",
        "_partition_epoch",
        "followers",
        "role",
        "state",
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
        self.state: PartitionState = NO_STATE
        self._assignment: Assignment = NO_ASSIGNMENT
        self._partition_epoch = -1
        self.followers: dict[int, Replica] = {}
        """The other replicas, if this is the leader. Never modified: a change replaces the table."""
        self._future_log: UnifiedLog | None = None
        """The copy in another log directory that is going to replace the log."""

    # Role and replicas

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
    def partition_epoch(self) -> int:
        return self._partition_epoch

    @property
    def log(self) -> UnifiedLog | None:
        return self.role.log

    @property
    def leader_log_if_local(self) -> UnifiedLog | None:
        role = self.role
        return role.log if role.is_leader else None

    @property
    def assignment(self) -> Assignment:
        return self._assignment

    @property
    def remote_replicas(self) -> tuple[Replica, ...]:
        return tuple(self.followers.values())

    def replica(self, broker_id: int) -> Replica | None:
        return self.followers.get(broker_id)

    @property
    def in_sync_replica_ids(self) -> frozenset[int]:
        return self.state.isr

    def is_adding_replica(self, broker_id: int) -> bool:
        return broker_id in self._assignment.adding_replicas

    @property
    def is_reassigning(self) -> bool:
        return self.is_leader and self._assignment.is_reassigning

    # Replication health

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and self._assignment.replication_factor > len(self.state.isr)

    def effective_min_isr(self, log: UnifiedLog) -> int:
        """Returns the required size of the ISR: ``min.insync.replicas``, at most the number of replicas."""
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        log = self.leader_log_if_local
        return log is not None and len(self.state.isr) < self.effective_min_isr(log)

    @property
    def is_at_min_isr(self) -> bool:
        log = self.leader_log_if_local
        return log is not None and len(self.state.isr) == self.effective_min_isr(log)

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, Errors]:
        """Returns whether an append that ends at this offset is committed, and the error if there is one."""
        role = self.role
        log = role.log
        if not role.is_leader or log is None:
            return False, Errors.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, Errors.NONE
        if self.followers and len(self.state.maximal_isr) < self.effective_min_isr(log):
            # The records are committed, but on fewer replicas than the topic requires: report it to the client.
            return True, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, Errors.NONE

    # The high watermark

    def _maybe_increment_leader_hw(self, log: UnifiedLog, now_ms: int | None = None) -> bool:
        """Advances the high watermark as far as possible; True if it moved. The lock must be held."""
        if not self.followers:
            return log.watermarks.move_high_watermark_to_end()
        end = log.watermarks.offsets.log_end_offset
        if len(self.state.isr) < self.effective_min_isr(log):
            return False
        if now_ms is None:
            now_ms = self._context.clock.milliseconds()
        new = end
        maximal_isr = self.state.maximal_isr
        for replica in self.followers.values():
            follower = replica.state
            if follower.log_end_offset < new.message_offset and (
                replica.broker_id in maximal_isr
                or (
                    follower.is_caught_up(end.message_offset, now_ms, self._context.replica_lag_time_max_ms)
                    and self._is_isr_eligible(replica)
                )
            ):
                new = follower.log_end_offset_metadata
        return log.watermarks.maybe_increment_high_watermark(new) is not None

    def low_watermark_if_leader(self) -> int:
        """Returns the smallest log start offset of the live replicas.

        Raises `NotLeaderOrFollowerError` if this broker is not the leader.
        """
        log = self.leader_log_if_local
        if log is None:
            raise self._not_leader()
        low = log.log_start_offset
        cache = self._context.metadata_cache
        for replica in self.followers.values():
            start = replica.state.log_start_offset
            if start < low and cache.has_alive_broker(replica.broker_id):
                low = start
        future = self._future_log
        return low if future is None else min(low, future.log_start_offset)

    # Followers that fetch

    def follower_replica_or_raise(self, broker_id: int, current_leader_epoch: int) -> Replica:
        """Returns the follower that sent a fetch; raises a retriable error if this leader does not know it yet."""
        replica = self.followers.get(broker_id)
        if replica is not None:
            return replica
        message = (
            f"Replica {broker_id} is not among the replicas of {self.topic_partition} in leader epoch "
            f"{self.role.leader_epoch} and partition epoch {self._partition_epoch}"
        )
        # With the right leader epoch, the follower must know of a reassignment that this broker does not know yet.
        raise UnknownLeaderEpochError(message) if current_leader_epoch >= 0 else NotLeaderOrFollowerError(message)

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
        waiting = self._context.waiting
        any_deletes = waiting.any_delayed_deletes
        with self._lock:
            log = self.leader_log_if_local
            self._check_broker_epoch(replica.broker_id, broker_epoch)
            low_before = self.low_watermark_if_leader() if any_deletes and log is not None else -1
            end_before = replica.state.log_end_offset
            replica.update_fetch_state(fetch_offset, log_start_offset, now_ms, leader_end_offset, broker_epoch)
            if log is None:
                return
            low_moved = any_deletes and self.low_watermark_if_leader() > low_before
            proposal = self._prepare_expansion(replica, log)
            hw_moved = end_before != fetch_offset.message_offset and self._maybe_increment_leader_hw(log, now_ms)
        if proposal is not None:
            self._submit(proposal)
        if low_moved or hw_moved:
            waiting.check_and_complete_all(self.topic_partition)

    def _check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """Rejects a fetch of an earlier incarnation of a broker, which may have lost its log since."""
        if broker_epoch == NO_BROKER_EPOCH:
            return
        known = self._context.metadata_cache.alive_broker_epoch(broker_id)
        if known is not None and known > broker_epoch:
            raise NotLeaderOrFollowerError(
                f"A fetch of {self.topic_partition} by broker {broker_id} with epoch {broker_epoch} is out of date: "
                f"the broker is at epoch {known}"
            )

    # ISR proposals

    def _is_isr_eligible(self, replica: Replica) -> bool:
        """Whether the controller would accept this replica into the ISR, as far as this broker knows."""
        cache = self._context.metadata_cache
        broker = cache.broker(replica.broker_id)
        stored = replica.state.broker_epoch
        return (
            broker is not None
            and stored is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and stored in {NO_BROKER_EPOCH, broker.epoch}
        )

    def _prepare_expansion(self, replica: Replica, log: UnifiedLog) -> PendingPartitionState | None:
        """Proposes to add a follower to the ISR, if it has all committed records. The lock must be held.

        The follower must also have reached the start of this leader's epoch: records between the high watermark and
        there may be committed without this leader knowing it yet.
        """
        state = self.state
        epoch_start = self.role.leader_epoch_start_offset
        end = replica.state.log_end_offset
        if (
            not isinstance(state, CommittedPartitionState)
            or replica.broker_id in state.isr
            or epoch_start is None
            or end < epoch_start
            or end < log.high_watermark
            or not self._is_isr_eligible(replica)
        ):
            return None
        logger.info("%s: proposing to add %d to the ISR %s", self.topic_partition, replica.broker_id, sorted(state.isr))
        return self._propose(state, state.isr | {replica.broker_id})

    def maybe_shrink_isr(self) -> None:
        """Proposes to remove followers from the ISR that have not been caught up for too long."""
        if not self.role.is_leader or not self.followers or self.state.is_in_flight:
            return
        with self._lock:
            log, state = self.leader_log_if_local, self.state
            if log is None or not isinstance(state, CommittedPartitionState):
                return
            lagging = self._out_of_sync_replicas(log, state)
            if not lagging:
                return
            logger.info(
                "%s: proposing to remove %s from the ISR %s; the high watermark is %d, the log ends at %d, and the "
                "followers are %s",
                self.topic_partition,
                sorted(lagging),
                sorted(state.isr),
                log.high_watermark,
                log.log_end_offset,
                list(self.followers.values()),
            )
            proposal = self._propose(state, state.isr - lagging)
        self._submit(proposal)

    def _out_of_sync_replicas(self, log: UnifiedLog, state: CommittedPartitionState) -> frozenset[int]:
        now_ms, end = self._context.clock.milliseconds(), log.log_end_offset
        max_lag_ms = self._context.replica_lag_time_max_ms
        return frozenset(
            broker_id
            for broker_id in state.isr
            if broker_id != self._context.broker_id
            and (
                (replica := self.followers.get(broker_id)) is None
                or not replica.state.is_caught_up(end, now_ms, max_lag_ms)
            )
        )

    def _propose(self, state: CommittedPartitionState, isr: frozenset[int]) -> PendingPartitionState:
        context = self._context
        members = []
        for broker_id in sorted(isr):
            if broker_id == context.broker_id:
                epoch: int | None = context.broker_epoch()
            else:
                replica = self.followers.get(broker_id)
                epoch = None if replica is None else replica.state.broker_epoch
            # None: a replica in the ISR that has not fetched yet. If its broker has restarted since, the controller has
            # removed it from the ISR, and refuses this proposal because of its partition epoch.
            members.append(IsrMember(broker_id, NO_BROKER_EPOCH if epoch is None else epoch))
        proposal = PendingPartitionState(
            LeaderAndIsr(
                context.broker_id,
                self.role.leader_epoch,
                LeaderRecoveryState.RECOVERED,
                tuple(members),
                self._partition_epoch,
            ),
            state,
        )
        self.state = proposal
        return proposal

    # Responses to ISR proposals

    def _submit(self, proposal: PendingPartitionState) -> None:
        """Sends a proposal. No lock may be held: the response may arrive at once."""
        partition = TopicIdPartition(self.topic_id or ZERO_UUID, *self.topic_partition)
        future = self._context.alter_partition_manager.submit(partition, proposal.sent)
        future.add_done_callback(lambda done: self._on_answer(proposal, done))

    def _on_answer(self, proposal: PendingPartitionState, future: Future[LeaderAndIsr]) -> None:
        error = future.exception()
        hw_moved = retry = False
        with self._lock:
            if self.state is not proposal:
                logger.debug("%s: the answer to %s comes too late", self.topic_partition, proposal)
            elif error is None:
                hw_moved = self._on_altered(proposal, future.result())
            else:
                retry = self._on_refused(proposal, error)
        if hw_moved:
            self._context.waiting.check_and_complete_all(self.topic_partition)
        if retry:
            self._submit(proposal)

    def _on_altered(self, proposal: PendingPartitionState, answer: LeaderAndIsr) -> bool:
        meters = self._context.isr_meters
        if answer.leader_epoch != self.role.leader_epoch or answer.partition_epoch < self._partition_epoch:
            # The metadata log has delivered newer state already.
            meters.failed_updates.mark()
            return False
        self.state = CommittedPartitionState(frozenset(answer.isr), answer.leader_recovery_state)
        self._partition_epoch = answer.partition_epoch
        (meters.expands if proposal.is_expansion else meters.shrinks).mark()
        logger.info(
            "%s: the ISR is %s now, in partition epoch %d",
            self.topic_partition,
            sorted(self.state.isr),
            self._partition_epoch,
        )
        log = self.leader_log_if_local
        return log is not None and self._maybe_increment_leader_hw(log)

    def _on_refused(self, proposal: PendingPartitionState, error: BaseException) -> bool:
        """Handles a refused proposal; True to send it again."""
        self._context.isr_meters.failed_updates.mark()
        code = Errors.for_exception(error)
        if code in _NOT_APPLIED:
            # Only these errors prove that the proposal has no effect; with others the larger ISR may still apply.
            self.state = proposal.last_committed
            logger.info("%s: the controller refused %s with %s", self.topic_partition, proposal.sent, code.name)
            return False
        if code in _WAIT_FOR_METADATA:
            logger.debug("%s: %s got %s; waiting for metadata", self.topic_partition, proposal.sent, code.name)
            return False
        logger.warning("%s: %s failed with %s, and is tried again", self.topic_partition, proposal.sent, code.name)
        return True

    def _not_leader(self) -> NotLeaderOrFollowerError:
        return NotLeaderOrFollowerError(
            f"Broker {self._context.broker_id} does not lead {self.topic_partition}; broker {self.role.leader_id} does"
        )
