"""The rebalance of a classic group: its two phases and their timeouts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from barnabas.common.errors import Errors
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records, group_timers
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_member import ClassicGroupMember
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.group import UNKNOWN_MEMBER_ID
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.runtime.coordinator_result import EMPTY_RESULT, CoordinatorResult
from barnabas.coordinator.runtime.coordinator_timer import CoordinatorTimer
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

logger = LimitedLogger(logging.getLogger(__name__))

NO_MORE_TO_SAY: Final = "not provided"

_State = ClassicGroupState


class ClassicRebalance:
    """Takes classic groups from one generation to the next.

    A rebalance has two phases. In the join phase, JoinGroup requests wait until all members have joined (or the timeout
    ends); then all get the new generation, and one of them becomes the leader. In the sync phase, SyncGroup requests
    wait for the leader's assignment. It is written to the log first, and sent to members only when it is committed,
    because after a failover the new coordinator must have the same assignment.

    Each phase has a timer, and so has the session of each member: a member that times out is removed, which starts the
    next rebalance.
    """

    def __init__(
        self, store: GroupStore, timer: CoordinatorTimer, config: GroupCoordinatorConfig, metrics: GroupMetrics
    ) -> None:
        self._store = store
        self._timer = timer
        self._config = config
        self._metrics = metrics

    # -- join phase

    def rebalance_or_complete_join(
        self, group: ClassicGroup, why: str, reason: str | None = None
    ) -> CoordinatorResult[None]:
        if group.can_rebalance:
            return self.prepare_rebalance(group, f"{why}; client reason: {reason or NO_MORE_TO_SAY}")
        return self.maybe_complete_join_phase(group)

    def prepare_rebalance(self, group: ClassicGroup, why: str) -> CoordinatorResult[None]:
        """Starts a rebalance: all members must rejoin."""
        if group.is_in_state(_State.COMPLETING_REBALANCE):
            self._reset_and_propagate_assignment(group, Errors.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.clear()
        self._timer.cancel(group_timers.classic_sync(group.group_id))
        is_initial = group.is_in_state(_State.EMPTY)
        group.transition_to(_State.PREPARING_REBALANCE)
        self._metrics.classic_group_rebalances.record()
        logger.info("Group %s: preparing to rebalance in generation %d: %s", group.group_id, group.generation_id, why)
        if not is_initial:
            return self._complete_join_or_schedule(group)
        # Consumers that start together should share one rebalance.
        delay_ms = self._config.classic_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._schedule_initial(group.group_id, delay_ms, remaining_ms)
        return EMPTY_RESULT

    def _schedule_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        self._timer.schedule(
            group_timers.classic_join(group_id),
            delay_ms,
            lambda: self._complete_initial_rebalance(group_id, delay_ms, remaining_ms),
            retry=False,
        )

    def _complete_initial_rebalance(self, group_id: str, delay_ms: int, remaining_ms: int) -> CoordinatorResult[None]:
        group = self._find(group_id)
        if group is None:
            return EMPTY_RESULT
        if group.new_member_added and remaining_ms != 0:
            group.new_member_added = False
            next_delay_ms = min(self._config.classic_initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial(group_id, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return EMPTY_RESULT
        return self._complete_join(group)

    def _complete_join_or_schedule(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if group.has_all_members_joined:
            return self._complete_join(group)
        self._schedule_join(group)
        return EMPTY_RESULT

    def _schedule_join(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        self._timer.schedule(
            group_timers.classic_join(group_id),
            group.rebalance_timeout_ms,
            lambda: self._expire_join(group_id),
            retry=False,
        )

    def _expire_join(self, group_id: str) -> CoordinatorResult[None]:
        group = self._find(group_id)
        return EMPTY_RESULT if group is None else self._complete_join(group)

    def maybe_complete_join_phase(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if (
            group.is_in_state(_State.PREPARING_REBALANCE)
            # The initial delay runs to its end even if all current members have joined.
            and group.previous_state is not _State.EMPTY
            and group.has_all_members_joined
        ):
            return self._complete_join(group)
        return EMPTY_RESULT

    def _complete_join(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Ends the join phase. Members that have not joined are removed, except static ones, whose session decides."""
        self._timer.cancel(group_timers.classic_join(group.group_id))
        if not group.is_in_state(_State.PREPARING_REBALANCE):
            return EMPTY_RESULT
        try:
            return self._open_join_barrier(group)
        except Exception:
            logger.exception(
                "Group %r: removing all %d members, because completing the join failed",
                group.group_id,
                len(group.members),
            )
            return self._remove_all_members(group)

    def _remove_all_members(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Removes all members when a join phase cannot complete.

        Otherwise the group, and all members that join later, would wait forever. After UNKNOWN_MEMBER_ID clients rejoin
        as new members of an empty group.
        """
        for member in list(group.members.values()):
            group.complete_join_future(member, join_error(UNKNOWN_MEMBER_ID, Errors.UNKNOWN_MEMBER_ID))
            group.complete_sync_future(member, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))
            group.remove(member.member_id)
            self._timer.cancel(group_timers.classic_heartbeat(group.group_id, member.member_id))
        if group.is_in_state(_State.COMPLETING_REBALANCE):
            group.transition_to(_State.PREPARING_REBALANCE)
        group.init_next_generation()
        return CoordinatorResult([group_records.group_metadata(group, {})], replay_records=False)

    def _open_join_barrier(self, group: ClassicGroup) -> CoordinatorResult[None]:
        group_id = group.group_id
        for member in group.not_yet_rejoined_members:
            if not member.is_static_member:
                logger.info("Group %s: removing member %s, which did not join in time", group_id, member.member_id)
                group.remove(member.member_id)
                self._timer.cancel(group_timers.classic_heartbeat(group_id, member.member_id))
        if not group.maybe_elect_new_joined_leader() and group.members:
            # Only static members, none of which has rejoined: wait until their sessions end.
            self._schedule_join(group)
            return EMPTY_RESULT
        group.init_next_generation()
        if group.is_empty:
            logger.info("Group %s: generation %d is empty", group_id, group.generation_id)
            record = group_records.group_metadata(group, {})
            return CoordinatorResult([record], replay_records=False)
        logger.info("Group %s: generation %d has %d members", group_id, group.generation_id, group.num_members)
        for member in group.members.values():
            group.complete_join_future(member, joined(group, member))
            self.reschedule_heartbeat(group, member)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        generation_id = group.generation_id
        self._timer.schedule(
            group_timers.classic_sync(group_id),
            group.rebalance_timeout_ms,
            lambda: self._expire_pending_sync(group_id, generation_id),
            retry=False,
        )
        return EMPTY_RESULT

    # -- sync phase

    def received_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync_members.discard(member_id)
        if not group.pending_sync_members:
            self._timer.cancel(group_timers.classic_sync(group.group_id))

    def assignment_written(
        self, group: ClassicGroup, generation_id: int, assignment: Mapping[str, bytes], written: Future[None]
    ) -> None:
        if not group.is_in_state(_State.COMPLETING_REBALANCE) or group.generation_id != generation_id:
            return  # another rebalance has started meanwhile
        failure = written.exception()
        if failure is not None:
            error = response_error_of_append(Errors.for_exception(failure))
            self._reset_and_propagate_assignment(group, error)
            self.rebalance_or_complete_join(group, f"the assignment could not be written: {error.name}")
            return
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        self._propagate_assignment(group, Errors.NONE)
        group.transition_to(_State.STABLE)
        self._metrics.classic_group_completed_rebalances.record()
        logger.info("Group %s: generation %d is stable", group.group_id, group.generation_id)

    def _expire_pending_sync(self, group_id: str, generation_id: int) -> CoordinatorResult[None]:
        """Removes members that have joined but not requested their assignment.

        They would own partitions without knowing it.
        """
        group = self._find(group_id)
        if (
            group is None
            or group.generation_id != generation_id
            or group.state not in {_State.COMPLETING_REBALANCE, _State.STABLE}
            or not group.pending_sync_members
        ):
            return EMPTY_RESULT
        late = sorted(group.pending_sync_members)
        for member_id in late:
            group.remove(member_id)
            self._timer.cancel(group_timers.classic_heartbeat(group_id, member_id))
        return self.prepare_rebalance(group, f"{late} did not sync in time")

    def _reset_and_propagate_assignment(self, group: ClassicGroup, error: Errors) -> None:
        for member in group.members.values():
            member.assignment = b""
        self._propagate_assignment(group, error)

    def _propagate_assignment(self, group: ClassicGroup, error: Errors) -> None:
        good = error is Errors.NONE
        for member in group.members.values():
            response = SyncGroupResponse(
                protocol_name=group.protocol_name if good else None,
                protocol_type=group.protocol_type if good else None,
                assignment=member.assignment,
                error_code=error,
            )
            if group.complete_sync_future(member, response):
                # It did not have to send heartbeats while it waited.
                self.reschedule_heartbeat(group, member)

    # -- sessions

    def reschedule_heartbeat(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        self.schedule_heartbeat(group.group_id, member.member_id, member.session_timeout_ms)

    def schedule_heartbeat(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._timer.schedule(
            group_timers.classic_heartbeat(group_id, member_id),
            timeout_ms,
            lambda: self._expire_heartbeat(group_id, member_id),
            retry=False,
        )

    def _expire_heartbeat(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        group = self._find(group_id)
        if group is None or group.is_in_state(_State.DEAD):
            return EMPTY_RESULT
        if group.is_pending_member(member_id):
            group.remove(member_id)
            if group.is_in_state(_State.PREPARING_REBALANCE) and group.has_all_members_joined:
                return self._complete_join(group)
            return EMPTY_RESULT
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return EMPTY_RESULT
        logger.info("Group %s: removing member %s, whose session has timed out", group_id, member_id)
        self._metrics.session_expirations.record()
        return self._remove_member(group, member, f"the session of {member_id} has timed out")

    def _remove_member(self, group: ClassicGroup, member: ClassicGroupMember, why: str) -> CoordinatorResult[None]:
        group.complete_join_future(member, join_error(UNKNOWN_MEMBER_ID, Errors.UNKNOWN_MEMBER_ID))
        group.complete_sync_future(member, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.state in {_State.STABLE, _State.COMPLETING_REBALANCE}:
            return self.rebalance_or_complete_join(group, why)
        if group.is_in_state(_State.PREPARING_REBALANCE) and group.has_all_members_joined:
            return self._complete_join(group)
        return EMPTY_RESULT

    def _find(self, group_id: str) -> ClassicGroup | None:
        group: Any = self._store.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None


def joined(group: ClassicGroup, member: ClassicGroupMember, *, with_members: bool = True) -> JoinGroupResponse:
    """Returns the response to JoinGroup at the end of the join phase. The leader gets the list of members."""
    return JoinGroupResponse(
        members=group.current_members if with_members and group.is_leader(member.member_id) else [],
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        protocol_type=group.protocol_type,
        leader=group.leader_id or "",
    )


def join_error(member_id: str, error: Errors) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=error)


def response_error_of_append(error: Errors) -> Errors:
    """Maps a failed append to the error for the client, which makes it look for the coordinator."""
    if error in {Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT}:
        return Errors.COORDINATOR_NOT_AVAILABLE
    if error in {Errors.NOT_LEADER_OR_FOLLOWER, Errors.KAFKA_STORAGE_ERROR}:
        return Errors.NOT_COORDINATOR
    if error in {Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE}:
        return Errors.UNKNOWN_SERVER_ERROR
    return error
