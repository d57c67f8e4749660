"""The leader's state of its followers: the ISR and the high watermark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from barnabas.common.errors import Errors, NotLeaderOrFollowerError, UnknownLeaderEpochError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.alter_partition import NO_BROKER_EPOCH, IsrMember, LeaderAndIsr
from barnabas.replica.partition.partition_context import PartitionContext
from barnabas.replica.partition.partition_role import PartitionRole
from barnabas.replica.partition.partition_state import (
    NO_STATE,
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


class PartitionIsr:
    """Tracks the followers of a partition, and which of them are in sync.

    **The high watermark** of a leader is the smallest log end offset of the ISR: all records before it are on all of
    these replicas, and survive any election. Each fetch of a follower reports its log end offset. A replica outside
    the ISR that is caught up counts as well: if the high watermark ran ahead of it, it could never join the ISR.
    Without followers, the high watermark is the log end offset. While the ISR is smaller than
    ``min.insync.replicas``, the high watermark does not move (KIP-966).

    **Changes of the ISR** are proposed to the controller: a follower that has caught up joins (`propose_expansion`),
    one that lags leaves (`propose_shrink`). A proposal is made with the lock held, and sent (`submit`) without it,
    because the response may arrive at once. A change of role replaces the state, so a response that finds its own
    proposal is a response to the current leader epoch.
    """

    __slots__ = (
        "_context",
        "_lock",
        "_on_committed",
        "_topic_id",
        "followers",
        "partition_epoch",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        context: PartitionContext,
        lock: threading.Lock,
        on_committed: Callable[[], object],
    ) -> None:
        """`lock` is the partition's. `on_committed` is called without it when the controller has changed the ISR."""
        self.topic_partition = topic_partition
        self._topic_id = topic_id or ZERO_UUID
        self._context = context
        self._lock = lock
        self._on_committed = on_committed
        self.state: PartitionState = NO_STATE
        self.partition_epoch = -1
        self.followers: dict[int, Replica] = {}
        """The other replicas, if this is the leader. Never modified: a change replaces the table."""

    def follow(self, broker_ids: Iterable[int]) -> None:
        """Tracks these followers from now on; known ones keep their state. The lock must be held."""
        self.followers = {broker_id: self.followers.get(broker_id) or Replica(broker_id) for broker_id in broker_ids}

    def effective_min_isr(self, log: UnifiedLog) -> int:
        """Returns the required size of the ISR: ``min.insync.replicas``, at most the number of replicas."""
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    # The high watermark

    def maybe_increment_high_watermark(self, log: UnifiedLog, now_ms: int | None = None) -> bool:
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

    def low_watermark(self, log: UnifiedLog) -> int:
        """Returns the smallest log start offset of the leader's log and the live followers."""
        low = log.log_start_offset
        cache = self._context.metadata_cache
        for replica in self.followers.values():
            start = replica.state.log_start_offset
            if start < low and cache.has_alive_broker(replica.broker_id):
                low = start
        return low

    # Followers that fetch

    def follower_or_raise(self, broker_id: int, current_leader_epoch: int) -> Replica:
        """Returns the follower that sent a fetch; raises a retriable error if this leader does not know it yet."""
        replica = self.followers.get(broker_id)
        if replica is not None:
            return replica
        message = (
            f"Replica {broker_id} is not among the replicas of {self.topic_partition} in partition "
            f"epoch {self.partition_epoch}"
        )
        # With the right leader epoch, the follower must know of a reassignment that this broker does not know yet.
        raise UnknownLeaderEpochError(message) if current_leader_epoch >= 0 else NotLeaderOrFollowerError(message)

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """Rejects a fetch of an earlier incarnation of a broker, which may have lost its log since."""
        if broker_epoch == NO_BROKER_EPOCH:
            return
        known = self._context.metadata_cache.alive_broker_epoch(broker_id)
        if known is not None and known > broker_epoch:
            raise NotLeaderOrFollowerError(
                f"A fetch of {self.topic_partition} by broker {broker_id} with epoch {broker_epoch} is out of date: "
                f"the broker is at epoch {known}"
            )

    # Proposals

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

    def propose_expansion(self, replica: Replica, role: PartitionRole, log: UnifiedLog) -> PendingPartitionState | None:
        """Proposes to add a follower to the ISR, if it has all committed records. The lock must be held.

        The follower must also have reached the start of this leader's epoch: records between the high watermark and
        there may be committed without this leader knowing it yet.
        """
        state = self.state
        epoch_start = role.leader_epoch_start_offset
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
        return self._propose(state, role, state.isr | {replica.broker_id})

    def propose_shrink(self, role: PartitionRole, log: UnifiedLog) -> PendingPartitionState | None:
        """Proposes to remove followers that have not been caught up for too long. The lock must be held."""
        state = self.state
        if not isinstance(state, CommittedPartitionState):
            return None
        lagging = self._out_of_sync_replicas(log, state)
        if not lagging:
            return None
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
        return self._propose(state, role, state.isr - lagging)

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

    def _propose(
        self, state: CommittedPartitionState, role: PartitionRole, isr: frozenset[int]
    ) -> PendingPartitionState:
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
                role.leader_epoch,
                LeaderRecoveryState.RECOVERED,
                tuple(members),
                self.partition_epoch,
            ),
            state,
        )
        self.state = proposal
        return proposal

    # Responses

    def submit(self, proposal: PendingPartitionState) -> None:
        """Sends a proposal. No lock may be held: the response may arrive at once."""
        future = self._context.alter_partition_manager.submit(
            TopicIdPartition(self._topic_id, *self.topic_partition), proposal.sent
        )
        future.add_done_callback(lambda done: self._on_response(proposal, done))

    def _on_response(self, proposal: PendingPartitionState, future: Future[LeaderAndIsr]) -> None:
        error = future.exception()
        committed = retry = False
        with self._lock:
            if self.state is not proposal:
                logger.debug("%s: the response to %s comes too late", self.topic_partition, proposal)
            elif error is None:
                committed = self._on_altered(proposal, future.result())
            else:
                retry = self._on_refused(proposal, error)
        if committed:
            self._on_committed()
        if retry:
            self.submit(proposal)

    def _on_altered(self, proposal: PendingPartitionState, response: LeaderAndIsr) -> bool:
        """Applies the ISR of a response; False if newer state has arrived through the metadata log already."""
        meters = self._context.isr_meters
        if response.leader_epoch != proposal.sent.leader_epoch or response.partition_epoch < self.partition_epoch:
            meters.failed_updates.mark()
            return False
        self.state = CommittedPartitionState(frozenset(response.isr), response.leader_recovery_state)
        self.partition_epoch = response.partition_epoch
        (meters.expands if proposal.is_expansion else meters.shrinks).mark()
        logger.info(
            "%s: the ISR is %s now, in partition epoch %d",
            self.topic_partition,
            sorted(self.state.isr),
            self.partition_epoch,
        )
        return True

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
