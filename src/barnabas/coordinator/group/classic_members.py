"""Members of the classic protocol in a consumer group, while it is being upgraded (KIP-848).

Such a member sends JoinGroup, SyncGroup and Heartbeat as before. Its generation is its member epoch. Nothing waits for
other members: the response to JoinGroup is sent at once, with the member as a follower of a leader that does not exist,
and the response to SyncGroup has the assignment by the coordinator. If there is a next step, the response to a
heartbeat is REBALANCE_IN_PROGRESS, and the member rejoins. Its list of owned partitions tells the coordinator what it
has revoked.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from barnabas.common.dataclass import replace
from barnabas.common.errors import (
    ApiError,
    Errors,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_manager import KNOWN_MEMBER_ID_REQUIRED_SINCE
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_manager import (
    ConsumerGroupManager,
    TargetStep,
    throw_if_instance_id_is_fenced,
    throw_if_static_member_is_unknown,
)
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState
from barnabas.coordinator.group.consumer_protocol import (
    read_subscription,
    to_consumer_protocol,
    version_for_assignment,
    write_assignment,
)
from barnabas.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, UNKNOWN_MEMBER_ID
from barnabas.coordinator.group.group_migration import GroupMigration
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.group.group_timers import consumer_join, consumer_sync
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import EMPTY_RESULT, CoordinatorResult
from barnabas.coordinator.runtime.coordinator_timer import CoordinatorTimer
from barnabas.protocol.internal.consumer_groups import ClassicMemberMetadata, ClassicProtocol
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicMembers:
    """Handles the classic protocol for a consumer group."""

    def __init__(
        self,
        store: GroupStore,
        timer: CoordinatorTimer,
        consumer: ConsumerGroupManager,
        migration: GroupMigration,
    ) -> None:
        self._store = store
        self._timer = timer
        self._consumer = consumer
        self._migration = migration

    def join(
        self,
        context: MemberContext,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        response_future: Future[JoinGroupResponse],
    ) -> CoordinatorResult[None]:
        self._migration.throw_if_classic_member_cannot_join(group)
        group_id, instance_id = group.group_id, request.group_instance_id
        is_new = request.member_id == UNKNOWN_MEMBER_ID
        prefix = context.client_id if instance_id is None else instance_id
        from uuid import uuid4

        member_id = f"{prefix}-{uuid4()}" if is_new else request.member_id
        self._consumer.throw_if_full(group, member_id)
        if not group.supports_classic_protocols(request.protocol_type, [one.name for one in request.protocols]):
            raise InconsistentGroupProtocolError(f"Member {member_id}'s protocols are not supported.")
        if is_new and instance_id is None and context.api_version >= KNOWN_MEMBER_ID_REQUIRED_SINCE:
            response_future.set_result(JoinGroupResponse(member_id=member_id, error_code=Errors.MEMBER_ID_REQUIRED))
            return EMPTY_RESULT
        records: list[CoordinatorRecord] = []
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerGroupMember(member_id)
        else:
            member = self._consumer.static_member(
                group, member_id, -1, instance_id, {}, is_new, records, uses_classic_protocol=True
            )
        subscription = _subscription_of(request.protocols)
        updated = replace(
            member,
            instance_id=instance_id if instance_id is not None else member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else request.session_timeout_ms
            ),
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex="",
            client_id=context.client_id,
            client_host=context.client_host,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=one.name, metadata=one.metadata) for one in request.protocols
                ],
            ),
        )
        epoch, changed = self._consumer.update_epoch(context, group, member, updated, records)
        replaced = None if instance_id is None else group.static_member(instance_id)
        downgrades = replaced is not None and self._migration.downgrades_with_replaced_member(group, replaced)
        owned = self._owned(subscription)
        classic: ClassicGroup | None = None
        if downgrades:
            assert replaced is not None
            # The client will see a classic rebalance if anything changes.
            rebalances = group.assignment_epoch.get() < epoch
            if not rebalances:
                step = TargetStep(group.assignment_epoch.get(), group.target_of(updated.member_id, instance_id))
                updated = self._consumer.reconcile(group, updated, step, owned, changed, records)
            classic = self._migration.downgrade_with_replaced_member(
                group, replaced, updated, records, rebalances=rebalances
            )
        else:
            step = self._consumer.target(group, epoch, member, updated, records)
            updated = self._consumer.reconcile(group, updated, step, owned, changed, records)
        cancelled = self._consumer.cancel_replaced(group, instance_id, updated.member_id)
        response = JoinGroupResponse(
            member_id=updated.member_id,
            generation_id=updated.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=updated.classic_protocols[0].name,
        )
        written: Future[None] = Future()

        def on_written(future: Future[None]) -> None:
            error = future.exception()
            if classic is not None:
                self._migration.revert_downgrade_if_failed(group, classic, error)
            if error is not None and cancelled is not None:
                self._consumer.restart_timers(group_id, [cancelled])
            if error is not None or response_future.done():
                return  # the whole operation has failed, and sends the response
            self._timer.cancel(consumer_join(group_id, updated.member_id))
            if classic is None:
                self._consumer.schedule_session_timeout(group_id, updated.member_id, request.session_timeout_ms)
                self._consumer.schedule_sync_timeout(group_id, updated.member_id, updated.rebalance_timeout_ms)
            response_future.set_result(response)

        written.add_done_callback(on_written)
        return CoordinatorResult(records, append_future=written, replay_records=classic is None)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> dict[Uuid, set[int]]:
        """Returns the owned partitions of a cooperative consumer. An eager one owns nothing when it joins."""
        made: dict[Uuid, set[int]] = {}
        for entry in subscription.owned_partitions:
            topic = self._store.image.topics.topic(entry.topic)
            if topic is not None:
                made.setdefault(topic.id, set()).update(entry.partitions)
        return made

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, response_future: Future[SyncGroupResponse]
    ) -> CoordinatorResult[None]:
        group_id = group.group_id
        member = self._member(group, request.member_id, request.group_instance_id)
        _throw_if_generation_is_another(member, request.generation_id)
        protocol = member.classic_protocols[0]
        if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or request.protocol_name not in {
            None,
            protocol.name,
        }:
            raise InconsistentGroupProtocolError
        # Not the group epoch: until the target assignment is computed, there is no reason to rejoin.
        if group.assignment_epoch.get() > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumer.schedule_join_timeout_if_absent(group_id, member)
            raise RebalanceInProgressError(f"Member {member.member_id} of group {group_id} must rejoin.")
        assigned = to_consumer_protocol(member.assigned_partitions, self._store.image.topics)
        assignment = write_assignment(assigned, version_for_assignment(protocol.metadata))
        written: Future[None] = Future()

        def on_written(future: Future[None]) -> None:
            if future.exception() is not None or response_future.done():
                return
            self._timer.cancel(consumer_sync(group_id, member.member_id))
            self._consumer.schedule_session_timeout(group_id, member.member_id, member.classic_session_timeout_ms)
            response_future.set_result(
                SyncGroupResponse(
                    protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol.name, assignment=assignment
                )
            )

        written.add_done_callback(on_written)
        return CoordinatorResult((), append_future=written)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        member = self._member(group, request.member_id, request.group_instance_id)
        _throw_if_generation_is_another(member, request.generation_id)
        self._consumer.schedule_session_timeout(group.group_id, member.member_id, member.classic_session_timeout_ms)
        error = Errors.NONE
        if (
            member.member_epoch < group.assignment_epoch.get()
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased_partition(member))
        ):
            error = Errors.REBALANCE_IN_PROGRESS
            self._consumer.schedule_join_timeout_if_absent(group.group_id, member)
        return CoordinatorResult((), HeartbeatResponse(error_code=error))

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        responses: list[MemberResponse] = []
        leaving: dict[str, ConsumerGroupMember] = {}
        for one in request.members:
            member_response = MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id)
            responses.append(member_response)
            try:
                found = self._leaving(group, one)
            except ApiError as error:
                member_response.error_code = Errors.for_exception(error)
                continue
            leaving[found.member_id] = found
        response = LeaveGroupResponse(members=responses)
        if not leaving:
            return CoordinatorResult((), response)
        return self._consumer.remove_leaving(group, list(leaving.values()))._replace(response=response)

    def _leaving(self, group: ConsumerGroup, one: MemberIdentity) -> ConsumerGroupMember:
        """Finds a member of either protocol: administrators also remove members with this request."""
        if one.group_instance_id is None:
            return group.member(one.member_id)
        found = group.static_member(one.group_instance_id)
        throw_if_static_member_is_unknown(found, one.group_instance_id)
        assert found is not None
        if one.member_id != UNKNOWN_MEMBER_ID:
            throw_if_instance_id_is_fenced(found, one.member_id, one.group_instance_id)
        return found

    def _member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            found = group.static_member(instance_id)
            throw_if_static_member_is_unknown(found, instance_id)
            assert found is not None
            throw_if_instance_id_is_fenced(found, member_id, instance_id)
            member = found
        if not member.uses_classic_protocol:
            raise UnknownMemberIdError(f"Member {member.member_id} does not use the classic protocol.")
        return member


def _throw_if_generation_is_another(member: ConsumerGroupMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise IllegalGenerationError(f"The current generation is {member.member_epoch}, not {generation_id}.")


def _subscription_of(protocols: Sequence[JoinGroupRequestProtocol]) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(protocols[0].metadata)
    except ProtocolError as error:
        raise InconsistentGroupProtocolError(f"Cannot decode the subscription: {error}") from error
