"""Handles requests of classic groups: join, sync, heartbeat, leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from barnabas.common.errors import (
    ApiError,
    CoordinatorNotAvailableError,
    Errors,
    GroupIdNotFoundError,
    IllegalGenerationError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records, group_timers
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_member import ClassicGroupMember
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.classic.classic_rebalance import (
    NO_MORE_TO_SAY,
    ClassicRebalance,
    join_error,
    joined,
    response_error_of_append,
)
from barnabas.coordinator.group.group import UNKNOWN_MEMBER_ID
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import EMPTY_RESULT, CoordinatorResult
from barnabas.coordinator.runtime.coordinator_timer import CoordinatorTimer
from barnabas.protocol.internal.consumer_offsets import GroupMetadataValue
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = LimitedLogger(logging.getLogger(__name__))

KNOWN_MEMBER_ID_REQUIRED_SINCE: Final = 4
"""The first version of JoinGroup whose clients understand MEMBER_ID_REQUIRED."""
SKIP_ASSIGNMENT_SINCE: Final = 9

_State = ClassicGroupState


class ClassicGroupManager:
    """Runs the classic protocol: decides what a request means for its group, and delegates to `ClassicRebalance`.

    Responses that have to wait are futures of the member. An operation returns the records to write, usually none.
    """

    def __init__(
        self, store: GroupStore, timer: CoordinatorTimer, config: GroupCoordinatorConfig, metrics: GroupMetrics
    ) -> None:
        self._store = store
        self._timer = timer
        self._config = config
        self._rebalance = ClassicRebalance(store, timer, config, metrics)

    # -- JoinGroup

    def join(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        response_future: Future[JoinGroupResponse],
        records: Sequence[CoordinatorRecord] = (),
    ) -> CoordinatorResult[None]:
        """Handles JoinGroup. `records` are tombstones of an empty group of another type that is replaced."""
        member_id = request.member_id
        is_new_member = member_id == UNKNOWN_MEMBER_ID
        is_new_group = request.group_id not in self._store.groups
        try:
            group = (
                self._store.get_or_create_classic_group(request.group_id)
                if is_new_member
                else self._store.classic_group(request.group_id)
            )
        except GroupIdNotFoundError:
            response_future.set_result(join_error(member_id, Errors.UNKNOWN_MEMBER_ID))
            return EMPTY_RESULT
        result: CoordinatorResult[None] = EMPTY_RESULT
        if not self._accepts(group, member_id):
            group.remove(member_id)
            response_future.set_result(join_error(UNKNOWN_MEMBER_ID, Errors.GROUP_MAX_SIZE_REACHED))
        elif group.is_in_state(_State.DEAD):
            response_future.set_result(join_error(member_id, Errors.COORDINATOR_NOT_AVAILABLE))
        elif not group.supports_protocols(request.protocol_type, [one.name for one in request.protocols]):
            response_future.set_result(join_error(member_id, Errors.INCONSISTENT_GROUP_PROTOCOL))
        elif is_new_member:
            result = self._join_new_member(context, request, group, response_future)
        else:
            result = self._join_existing_member(context, request, group, response_future)
        if is_new_group and result is EMPTY_RESULT:
            return self._write_new_group(group, response_future, records)
        if records:
            result = result._replace(records=[*records, *result.records])
        return result

    def _write_new_group(
        self, group: ClassicGroup, response_future: Future[JoinGroupResponse], records: Sequence[CoordinatorRecord]
    ) -> CoordinatorResult[None]:
        """Writes the record of a new group, so that its offsets have a group from the start."""
        written: Future[None] = Future()

        def on_written(future: Future[None]) -> None:
            error = future.exception()
            if error is not None and not response_future.done():
                response_future.set_result(
                    JoinGroupResponse(error_code=response_error_of_append(Errors.for_exception(error)))
                )

        written.add_done_callback(on_written)
        return CoordinatorResult(
            [*records, group_records.empty_group_metadata(group)], append_future=written, replay_records=False
        )

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Returns whether the group has room for this member."""
        max_size = self._config.classic_max_size
        if group.state in {_State.EMPTY, _State.DEAD}:
            return True
        if group.state is _State.PREPARING_REBALANCE:
            # Members of the last generation may rejoin only while there is room: the group may be too large after a
            # change of the limit.
            member = group.members.get(member_id)
            return (member is not None and member.is_awaiting_join) or group.num_awaiting_join < max_size
        return group.has_member(member_id) or group.num_members < max_size

    def _join_new_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        instance_id = request.group_instance_id
        member_id = group.generate_member_id(context.client_id, instance_id)
        if instance_id is not None:
            existing = group.static_members.get(instance_id)
            if existing is not None:
                logger.info(
                    "Group %s: instance %s is now %s instead of %s", group.group_id, instance_id, member_id, existing
                )
                return self._replace_static_member(context, request, group, existing, member_id, response_future)
            return self._add_member(context, request, group, member_id, response_future)
        if context.api_version < KNOWN_MEMBER_ID_REQUIRED_SINCE:
            return self._add_member(context, request, group, member_id, response_future)
        replaced = group.add_pending_member(member_id)
        if replaced is not None:
            self._timer.cancel(group_timers.classic_heartbeat(group.group_id, replaced))
        self._rebalance.schedule_heartbeat(group.group_id, member_id, request.session_timeout_ms)
        response_future.set_result(join_error(member_id, Errors.MEMBER_ID_REQUIRED))
        return EMPTY_RESULT

    def _join_existing_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        member_id = request.member_id
        if group.is_pending_member(member_id):
            if request.group_instance_id is not None:
                # Only dynamic members get assigned IDs.
                response_future.set_result(join_error(member_id, Errors.UNKNOWN_MEMBER_ID))
                return EMPTY_RESULT
            return self._add_member(context, request, group, member_id, response_future)
        try:
            group.validate_member(member_id, request.group_instance_id)
        except ApiError as error:
            response_future.set_result(
                JoinGroupResponse(member_id=member_id, error_code=Errors.for_exception(error), protocol_name=None)
            )
            return EMPTY_RESULT
        member = group.members[member_id]
        unchanged = member.matches(request.protocols)
        state = group.state
        if state is _State.PREPARING_REBALANCE:
            return self._rejoin(request, group, member, response_future)
        if state is _State.COMPLETING_REBALANCE:
            if unchanged:
                # Its response was lost, so it is sent again.
                response_future.set_result(joined(group, member))
                return EMPTY_RESULT
            return self._rejoin(request, group, member, response_future)
        if state is _State.STABLE:
            if group.is_leader(member_id) or not unchanged:
                # A leader rejoins to change the assignment: it has detected a change of a topic.
                return self._rejoin(request, group, member, response_future)
            response_future.set_result(joined(group, member, with_members=False))
            return EMPTY_RESULT
        response_future.set_result(join_error(member_id, Errors.UNKNOWN_MEMBER_ID))
        return EMPTY_RESULT

    def _rejoin(
        self,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member: ClassicGroupMember,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        self._settle_superseded(group, member)
        group.update_member(
            member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, response_future
        )
        return self._rebalance.rebalance_or_complete_join(group, f"member {member.member_id} rejoined", request.reason)

    @staticmethod
    def _settle_superseded(group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Completes a pending JoinGroup whose client has sent another one."""
        group.complete_join_future(
            member, JoinGroupResponse(member_id=member.member_id, error_code=Errors.REBALANCE_IN_PROGRESS)
        )

    def _add_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member_id: str,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
        )
        member.is_new = True
        if group.is_in_state(_State.PREPARING_REBALANCE) and group.previous_state is _State.EMPTY:
            group.new_member_added = True
        group.add(member, response_future)
        # It sends no heartbeats before it has joined, so without a timer a dead client would go unnoticed.
        self._rebalance.schedule_heartbeat(group.group_id, member_id, self._config.classic_new_member_join_timeout_ms)
        return self._rebalance.rebalance_or_complete_join(group, f"member {member_id} joined", request.reason)

    def _replace_static_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        old_member_id: str,
        new_member_id: str,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        """Replaces the member ID of a static member that rejoins. A stable group stays stable."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        leader_before = group.leader_id
        member = group.replace_static_member(instance_id, old_member_id, new_member_id)
        self._timer.cancel(group_timers.classic_heartbeat(group.group_id, old_member_id))
        self._rebalance.reschedule_heartbeat(group, member)
        before = (list(member.supported_protocols), member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update_member(
            member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, response_future
        )
        if group.is_in_state(_State.STABLE):
            if group.select_protocol() != group.protocol_name:
                return self._rebalance.rebalance_or_complete_join(
                    group, f"static member {new_member_id} changed the protocol", request.reason
                )
            return self._write_replaced_member(
                context, group, member, old_member_id, leader_before, before, response_future
            )
        if group.is_in_state(_State.COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, f"static member {new_member_id} rejoined")
        return self._rebalance.maybe_complete_join_phase(group)

    def _write_replaced_member(
        self,
        context: MemberContext,
        group: ClassicGroup,
        member: ClassicGroupMember,
        old_member_id: str,
        leader_before: str | None,
        before: tuple[list[JoinGroupRequestProtocol], int, int],
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        """Writes the new ID, because after a failover the member would otherwise be fenced by its old ID."""
        written: Future[None] = Future()

        def on_written(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                self._revert_replaced_member(group, member, old_member_id, before)
                if not response_future.done():
                    failed = joined(group, member, with_members=False)
                    failed.member_id = UNKNOWN_MEMBER_ID
                    failed.leader = leader_before or ""
                    failed.error_code = response_error_of_append(Errors.for_exception(error))
                    response_future.set_result(failed)
                return
            if context.api_version >= SKIP_ASSIGNMENT_SINCE:
                response = joined(group, member)
                response.skip_assignment = group.is_leader(member.member_id)
            else:
                # Even a leader gets no member list, or it would compute an assignment that is not needed.
                response = joined(group, member, with_members=False)
                response.leader = leader_before or ""
            group.complete_join_future(member, response)

        written.add_done_callback(on_written)
        record = group_records.group_metadata(group, group.assignment)
        return CoordinatorResult([record], append_future=written, replay_records=False)

    def _revert_replaced_member(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        old_member_id: str,
        before: tuple[list[JoinGroupRequestProtocol], int, int],
    ) -> None:
        assert member.group_instance_id is not None
        if member.member_id not in group.members:
            return  # the group has changed meanwhile
        group.update_member(member, *before, None)
        old = group.replace_static_member(member.group_instance_id, member.member_id, old_member_id)
        self._rebalance.reschedule_heartbeat(group, old)

    def prepare_rebalance(self, group: ClassicGroup, why: str) -> CoordinatorResult[None]:
        """Starts a rebalance: all members must rejoin."""
        return self._rebalance.prepare_rebalance(group, why)

    # -- SyncGroup

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, response_future: Future[SyncGroupResponse]
    ) -> CoordinatorResult[None]:
        error = self._problem_with_sync(group, request)
        if error is None and group.is_in_state(_State.PREPARING_REBALANCE):
            error = Errors.REBALANCE_IN_PROGRESS
        if error is not None:
            response_future.set_result(SyncGroupResponse(error_code=error))
            return EMPTY_RESULT
        member = group.members[request.member_id]
        if group.is_in_state(_State.STABLE):
            self._rebalance.received_sync(group, member.member_id)
            response_future.set_result(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
            return EMPTY_RESULT
        group.complete_sync_future(member, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        member.awaiting_sync_future = response_future
        self._rebalance.received_sync(group, member.member_id)
        if not group.is_leader(member.member_id):
            return EMPTY_RESULT
        given = {one.member_id: one.assignment for one in request.assignments}
        assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
        forgotten = [member_id for member_id in group.members if member_id not in given]
        if forgotten:
            logger.warning(
                "Group %s: the leader did not assign %s in generation %d",
                group.group_id,
                forgotten,
                group.generation_id,
            )
        written: Future[None] = Future()
        written.add_done_callback(
            lambda future: self._rebalance.assignment_written(group, request.generation_id, assignment, future)
        )
        record = group_records.group_metadata(group, assignment)
        return CoordinatorResult([record], append_future=written, replay_records=False)

    def _problem_with_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> Errors | None:
        if group.is_in_state(_State.DEAD):
            return Errors.COORDINATOR_NOT_AVAILABLE
        try:
            group.validate_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return Errors.for_exception(error)
        if request.generation_id != group.generation_id:
            return Errors.ILLEGAL_GENERATION
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
            return Errors.INCONSISTENT_GROUP_PROTOCOL
        return None

    # -- Heartbeat

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        if group.is_in_state(_State.DEAD):
            raise CoordinatorNotAvailableError
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGenerationError
        self._rebalance.reschedule_heartbeat(group, group.members[request.member_id])
        rebalances = group.is_in_state(_State.PREPARING_REBALANCE)
        return CoordinatorResult(
            (), HeartbeatResponse(error_code=Errors.REBALANCE_IN_PROGRESS if rebalances else Errors.NONE)
        )

    def reschedule_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        """Restarts the session timeout of a member, which its commits do too."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.reschedule_heartbeat(group, member)

    # -- LeaveGroup

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        if group.is_in_state(_State.DEAD):
            return CoordinatorResult((), LeaveGroupResponse(error_code=Errors.COORDINATOR_NOT_AVAILABLE))
        responses: list[MemberResponse] = []
        left: list[str] = []
        for one in request.members:
            member_response = MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id)
            responses.append(member_response)
            try:
                was_pending = group.is_pending_member(one.member_id)
                member_id = self._leaving(group, one.member_id, one.group_instance_id)
            except ApiError as error:
                member_response.error_code = Errors.for_exception(error)
                continue
            # An ID that was assigned but never joined owns no partitions.
            if not was_pending or group.is_in_state(_State.PREPARING_REBALANCE):
                left.append(member_id)
            logger.info("Group %s: member %s left: %s", group.group_id, member_id, one.reason or NO_MORE_TO_SAY)
        result: CoordinatorResult[None] = EMPTY_RESULT
        if left:
            if group.state in {_State.STABLE, _State.COMPLETING_REBALANCE}:
                result = self._rebalance.rebalance_or_complete_join(group, f"{left} left")
            elif group.is_in_state(_State.PREPARING_REBALANCE):
                result = self._rebalance.maybe_complete_join_phase(group)
        return CoordinatorResult(
            result.records,
            LeaveGroupResponse(members=responses),
            append_future=result.append_future,
            replay_records=result.replay_records,
        )

    def _leaving(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> str:
        """Removes a member and returns its ID, which an administrator need not know for a static member."""
        if member_id == UNKNOWN_MEMBER_ID:
            found = None if instance_id is None else group.static_members.get(instance_id)
            if found is None:
                raise Errors.UNKNOWN_MEMBER_ID.to_exception()  # type: ignore[misc]
            member_id = found
        elif group.is_pending_member(member_id):
            group.remove(member_id)
            self._timer.cancel(group_timers.classic_heartbeat(group.group_id, member_id))
            return member_id
        else:
            group.validate_member(member_id, instance_id)
        member = group.members[member_id]
        self._timer.cancel(group_timers.classic_heartbeat(group.group_id, member_id))
        group.complete_join_future(member, join_error(UNKNOWN_MEMBER_ID, Errors.UNKNOWN_MEMBER_ID))
        group.complete_sync_future(member, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return member_id

    # -- the log

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._store.remove(group_id)
            return
        group = ClassicGroup(
            group_id,
            self._store.now_ms,
            _State.STABLE if value.members else _State.EMPTY,
            value.generation,
            value.protocol_type or None,
            value.protocol,
            value.leader,
            None if value.current_state_timestamp == -1 else value.current_state_timestamp,
        )
        for one in value.members:
            group.add(
                ClassicGroupMember(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout,
                    one.session_timeout,
                    value.protocol_type,
                    [JoinGroupRequestProtocol(name=value.protocol or "", metadata=one.subscription)],
                    one.assignment,
                )
            )
        self._store.groups[group_id] = group
        group.subscribed_topics = group.compute_subscribed_topics()

    def on_loaded(self, group: ClassicGroup) -> None:
        """Starts the session timeouts of all members."""
        for member in group.members.values():
            self._rebalance.reschedule_heartbeat(group, member)
        if group.num_members > self._config.classic_max_size:
            self.prepare_rebalance(group, f"its {group.num_members} members exceed group.max.size")

    def on_unloaded(self, group: ClassicGroup) -> None:
        """Fails all pending requests, so that clients find the new coordinator."""
        group.transition_to(_State.DEAD)
        group.complete_all_futures(Errors.NOT_COORDINATOR)


def _differ(given: str | None, expected: str | None) -> bool:
    return given is not None and expected is not None and given != expected
