"""Handles consumer groups: heartbeats, epochs, assignments, and timeouts (KIP-848)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

from barnabas.common.client_pattern import ClientPattern
from barnabas.common.dataclass import replace
from barnabas.common.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnknownServerError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from barnabas.common.identifiers import Uuid, random_uuid, uuid_to_string
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records, group_timers
from barnabas.coordinator.group.assignor.partition_assignor import PartitionAssignor, PartitionAssignorError
from barnabas.coordinator.group.consumer.assignment import (
    Assignment,
    EpochAssignment,
    from_request,
    without_epochs,
)
from barnabas.coordinator.group.consumer.consumer_group import METADATA_REFRESH_INTERVAL_MS, ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from barnabas.coordinator.group.consumer.current_assignment_builder import CurrentAssignmentBuilder
from barnabas.coordinator.group.consumer.regex_resolution import RegexResolution
from barnabas.coordinator.group.consumer.target_assignment_builder import build_target_assignment
from barnabas.coordinator.group.consumer.topic_hashes import group_hash
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_settings import GroupSettings
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_timer import CoordinatorTimer
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment as HeartbeatAssignment,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger = LimitedLogger(logging.getLogger(__name__))

REGEX_FIRST_VERSION: Final = 1


class Migration(Protocol):
    """Changes the protocol of a group with members: see `barnabas.coordinator.group.group_migration`."""

    def consumer_group_for_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """Returns the consumer group that a member joins.

        It may be new, or a classic group that is upgraded; then the upgrade is added to `records`, and takes effect
        with `complete_upgrade`.
        """
        ...

    def complete_upgrade(self, group: ConsumerGroup) -> None:
        """Ends the classic rebalance of a group that is upgraded, and starts the sessions of its members.

        Must be called only after all checks of the request: a refused request ends no rebalance.
        """
        ...

    def downgrade_without(
        self, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
    ) -> CoordinatorResult[None] | None:
        """Downgrades a group to classic if its last member of the consumer protocol leaves; otherwise returns None."""
        ...


class TargetStep(NamedTuple):
    """The target assignment of a member, as of a change that is about to be written."""

    epoch: int
    assignment: Assignment


class ConsumerGroupManager:
    """Runs the consumer protocol.

    A heartbeat reports changes of a member, and its response has the changes for that member. Everything else follows
    from it, in one pass::

        member joins, leaves, or changes its subscription      \\
        a topic of the group has changed                         >  group epoch + 1
                                                                    group epoch > assignment epoch:
                                                                    compute a target assignment for all
        this member has not reached its target                   -> one step toward it: revoke, or get free partitions

    Each step writes records, and the response is sent when they are committed. No member waits for others: they learn
    the new target with their own heartbeats, at their own pace.
    """

    def __init__(
        self,
        store: GroupStore,
        timer: CoordinatorTimer,
        config: GroupCoordinatorConfig,
        settings: GroupSettings,
        metrics: GroupMetrics,
        assignors: Mapping[str, PartitionAssignor],
        regexes: RegexResolution,
    ) -> None:
        """`assignors` by name, the default first."""
        self._store = store
        self._timer = timer
        self._config = config
        self._settings = settings
        self._metrics = metrics
        self._assignors = assignors
        self._regexes = regexes
        self.migration: Migration | None = None
        """Set by the shard, which knows this manager and the classic one."""

    @property
    def default_assignor(self) -> str:
        return next(iter(self._assignors))

    # -- ConsumerGroupHeartbeat

    def heartbeat(
        self, context: MemberContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        self._validate(request, context.api_version)
        if request.member_epoch in {LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH}:
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        joins = request.member_epoch == 0
        assert self.migration is not None
        group = (
            self.migration.consumer_group_for_join(request.group_id, records)
            if joins
            else self._store.consumer_group(request.group_id)
        )
        # In v0 the coordinator assigns IDs; since v1 the client does, so that a repeated join is not a second member.
        member_id = request.member_id or uuid_to_string(random_uuid())
        self.throw_if_full(group, member_id)
        owned = from_request(request.topic_partitions)
        if request.instance_id is None:
            member = self._dynamic_member(group, member_id, request.member_epoch, owned, joins)
        else:
            member = self.static_member(
                group, member_id, request.member_epoch, request.instance_id, owned, joins, records
            )
        # After the group and the member were found: a pattern is only compiled for a valid member.
        if request.subscribed_topic_regex:
            ClientPattern(request.subscribed_topic_regex, "SubscribedTopicRegex")
        updated = replace(
            member,
            instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
            rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms
            ),
            server_assignor_name=(
                request.server_assignor if request.server_assignor is not None else member.server_assignor_name
            ),
            subscribed_topic_names=(
                frozenset(request.subscribed_topic_names)
                if request.subscribed_topic_names is not None
                else member.subscribed_topic_names
            ),
            subscribed_topic_regex=(
                request.subscribed_topic_regex
                if request.subscribed_topic_regex is not None
                else member.subscribed_topic_regex
            ),
            client_id=context.client_id,
            client_host=context.client_host,
            classic_member_metadata=None,
        )
        epoch, changed = self.update_epoch(context, group, member, updated, records)
        step = self.target(group, epoch, member, updated, records)
        updated = self.reconcile(group, updated, step, owned, changed, records)
        # After everything that can raise.
        if joins:
            self.migration.complete_upgrade(group)
        replaced = self.cancel_replaced(group, request.instance_id, member.member_id)
        self.schedule_session_timeout(group.group_id, updated.member_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms(group.group_id),
        )
        # A full request gets a full response, because the last response may have been lost.
        is_full_request = joins or (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if is_full_request or without_epochs(member.assigned_partitions) != without_epochs(updated.assigned_partitions):
            response.assignment = _response_assignment(updated.assigned_partitions)
        result = CoordinatorResult(records, response)
        return result if replaced is None else self.with_timers_if_failed(group.group_id, [replaced], result)

    def _validate(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        _not_blank(request.group_id, "GroupId")
        _not_blank(request.instance_id, "InstanceId")
        _not_blank(request.rack_id, "RackId")
        epoch = request.member_epoch
        if epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
            _not_blank(request.member_id, "MemberId")
        elif epoch == 0:
            if api_version >= REGEX_FIRST_VERSION:
                _not_blank(request.member_id, "MemberId")
            if request.rebalance_timeout_ms == -1:
                raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                # Both may be empty: a member whose pattern matches nothing yet still joins the group.
                raise InvalidRequestError(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            if api_version >= REGEX_FIRST_VERSION:
                _not_blank(request.member_id, "MemberId")
            if request.instance_id is None:
                raise InvalidRequestError("InstanceId can't be null.")
        else:
            raise InvalidRequestError("MemberEpoch is invalid.")
        if request.server_assignor is not None and request.server_assignor not in self._assignors:
            raise UnsupportedAssignorError(
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(self._assignors)}."
            )

    def throw_if_full(self, group: ConsumerGroup, member_id: str) -> None:
        if group.num_members >= self._config.consumer_max_size and not group.has_member(member_id):
            raise GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {self._config.consumer_max_size} members."
            )

    # -- members

    def _dynamic_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        member_epoch: int,
        owned: Mapping[Uuid, Collection[int]] | None,
        joins: bool,
    ) -> ConsumerGroupMember:
        if joins and not group.has_member(member_id):
            return ConsumerGroupMember(member_id)
        member = group.member(member_id)
        self._throw_if_epoch_is_invalid(member, member_epoch, owned)
        return member

    def static_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        member_epoch: int,
        instance_id: str,
        owned: Mapping[Uuid, Collection[int]] | None,
        joins: bool,
        records: list[CoordinatorRecord],
        *,
        uses_classic_protocol: bool = False,
    ) -> ConsumerGroupMember:
        """Returns the static member.

        If it rejoins with another member ID, it takes over the state of the old one; after all checks of the request,
        the caller cancels the timers of the old one with `cancel_replaced`.
        """
        existing = group.static_member(instance_id)
        if not joins:
            throw_if_static_member_is_unknown(existing, instance_id)
            assert existing is not None
            throw_if_instance_id_is_fenced(existing, member_id, instance_id)
            if not uses_classic_protocol:
                self._throw_if_epoch_is_invalid(existing, member_epoch, owned)
            return existing
        if existing is None:
            return ConsumerGroupMember(member_id) if not group.has_member(member_id) else group.member(member_id)
        if existing.member_id == member_id:
            return existing  # a repeated join
        if (
            not uses_classic_protocol
            and not existing.uses_classic_protocol
            and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH
        ):
            raise UnreleasedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member."
            )
        new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        _replace_member(group, existing, new, records)
        return new

    def cancel_replaced(self, group: ConsumerGroup, instance_id: str | None, member_id: str) -> str | None:
        """Cancels the timers of the static member that another member ID replaces, and returns its ID, if any."""
        existing = None if instance_id is None else group.static_member(instance_id)
        if existing is None or existing.member_id == member_id:
            return None
        self.cancel_timers(group.group_id, existing.member_id)
        return existing.member_id

    def _throw_if_epoch_is_invalid(
        self, member: ConsumerGroupMember, epoch: int, owned: Mapping[Uuid, Collection[int]] | None
    ) -> None:
        """Checks the epoch of a member: it must be the coordinator's, or the previous one.

        With the previous epoch, because the response with the new one was lost, it must not own partitions outside its
        assignment.
        """
        if epoch == 0:
            return  # it rejoins
        if epoch > member.member_epoch:
            relation = "greater"
        elif epoch < member.member_epoch and (
            epoch != member.previous_member_epoch or not _is_subset(owned, member.assigned_partitions)
        ):
            relation = "smaller"
        else:
            return
        raise FencedMemberEpochError(
            f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin."
        )

    # -- epochs

    def update_epoch(
        self,
        context: MemberContext,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        records: list[CoordinatorRecord],
    ) -> tuple[int, bool]:
        """Computes the effect of a changed member.

        Returns the group epoch, and whether the member's subscription has changed.
        """
        now_ms = self._store.now_ms()
        if _metadata_of(updated) != _metadata_of(member):
            records.append(group_records.consumer_group_member_subscription(group.group_id, updated))
        changed = updated.subscribed_topic_names != member.subscribed_topic_names
        regex = self._regexes.on_heartbeat(context, group, member, updated, records)
        bump = changed or regex.bumps_epoch
        changed = changed or updated.subscribed_topic_regex != member.subscribed_topic_regex
        epoch = group.group_epoch.get()
        if bump or group.has_metadata_expired(now_ms):
            names = group.subscribed_topic_names_with(self._superseded(group, member, updated), updated)
            new_hash = group_hash(names, self._store.image)
            bump = bump or new_hash != group.metadata_hash.get()
            if bump:
                epoch += 1
                records.append(group_records.consumer_group_epoch(group.group_id, epoch, new_hash))
                self._metrics.consumer_group_rebalances.record()
            group.set_metadata_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
        return epoch, changed

    @staticmethod
    def _superseded(
        group: ConsumerGroup, member: ConsumerGroupMember, updated: ConsumerGroupMember
    ) -> list[ConsumerGroupMember]:
        """Returns the current members that `updated` will replace."""
        gone = [member]
        previous = group.static_member_id(updated.instance_id)
        if previous is not None and previous != updated.member_id:
            gone.append(group.member(previous))
        return gone

    def target(
        self,
        group: ConsumerGroup,
        group_epoch: int,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        records: list[CoordinatorRecord],
    ) -> TargetStep:
        """Returns the target assignment of the member, and first computes a new one if that is due."""
        now_ms = self._store.now_ms()
        assignment_epoch = group.assignment_epoch.get()
        interval_ms = self._settings.assignment_interval_ms(group.group_id)
        # Below 0 if the date was set back: then the last assignment was not in this interval either.
        elapsed_ms = now_ms - group.assignment_timestamp_ms.get()
        if group_epoch <= assignment_epoch or 0 <= elapsed_ms < interval_ms:
            # Nothing to compute, or not yet: changes in quick succession are combined.
            return TargetStep(max(assignment_epoch, 0), group.target_of(updated.member_id, updated.instance_id))
        members = dict(group.members.items())
        previous = group.static_member_id(updated.instance_id)
        if previous is not None and previous != updated.member_id:
            members.pop(previous, None)
        members[updated.member_id] = updated
        name = group.preferred_assignor(member, updated) or self.default_assignor
        try:
            result = build_target_assignment(
                group,
                members,
                group_epoch,
                # Requested by a member that joined when the previous coordinator still had this assignor.
                self._assignors.get(name) or self._assignors[self.default_assignor],
                self._store.image.topics,
                now_ms,
            )
        except PartitionAssignorError as error:
            raise UnknownServerError(
                f"Failed to compute a new target assignment for epoch {group_epoch}: {error}"
            ) from error
        logger.info("Group %s: computed a target assignment for epoch %d with %s", group.group_id, group_epoch, name)
        records.extend(result.records)
        return TargetStep(group_epoch, result.target.get(updated.member_id, {}))

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        step: TargetStep,
        owned: Mapping[Uuid, Collection[int]] | None,
        has_subscription_changed: bool,
        records: list[CoordinatorRecord],
    ) -> ConsumerGroupMember:
        """Takes the member one step toward its target."""
        if not has_subscription_changed and member.is_reconciled_to(step.epoch):
            return member
        topics = self._store.image.topics
        found = (topics.topic(name) for name in group.topics_of(member))
        updated = CurrentAssignmentBuilder(
            member,
            step.epoch,
            step.assignment,
            group.current_partition_epoch,
            owned,
            frozenset(topic.id for topic in found if topic is not None),
            has_subscription_changed,
        ).build()
        if updated == member:
            return member
        records.append(group_records.consumer_group_current_assignment(group.group_id, updated))
        if not updated.uses_classic_protocol:
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self._schedule_rebalance_timeout(group.group_id, updated)
            else:
                self._timer.cancel(group_timers.rebalance_timeout(group.group_id, updated.member_id))
        return updated

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        group = self._store.consumer_group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            found = group.static_member(request.instance_id)
            throw_if_static_member_is_unknown(found, request.instance_id)
            assert found is not None
            throw_if_instance_id_is_fenced(found, request.member_id, request.instance_id)
            member = found
            if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                # It will rejoin. Its session continues, and it keeps its partitions.
                away = replace(member, member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, partitions_pending_revocation={})
                record = group_records.consumer_group_current_assignment(group.group_id, away)
                return CoordinatorResult([record], response)
        return self.remove_leaving(group, [member])._replace(response=response)

    def remove_leaving(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> CoordinatorResult[Any]:
        """Removes members that leave. If that cannot be written, their sessions continue."""
        result = self.fence_members(group, members)
        return self.with_timers_if_failed(group.group_id, [member.member_id for member in members], result)

    def fence_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> CoordinatorResult[Any]:
        """Removes a member; the others get a new assignment."""
        return self.fence_members(group, [member])

    def fence_members(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> CoordinatorResult[Any]:
        assert self.migration is not None
        for member in members:
            self.cancel_timers(group.group_id, member.member_id)
        downgraded = self.migration.downgrade_without(group, members)
        if downgraded is not None:
            return downgraded
        records: list[CoordinatorRecord] = []
        for member in members:
            remove_member(records, group.group_id, member.member_id)
        self._regexes.forget_unused(group, members, None, records)
        names = group.subscribed_topic_names_with(members, None)
        epoch = group.group_epoch.get() + 1
        records.append(group_records.consumer_group_epoch(group.group_id, epoch, group_hash(names, self._store.image)))
        return CoordinatorResult(records)

    # -- timers

    def schedule_session_timeout(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        self._timer.schedule(
            group_timers.session_timeout(group_id, member_id),
            self._settings.session_timeout_ms(group_id) if timeout_ms is None else timeout_ms,
            lambda: self.fence_if_there(group_id, member_id, "its session has timed out"),
        )

    def _schedule_rebalance_timeout(self, group_id: str, member: ConsumerGroupMember) -> None:
        member_id, epoch = member.member_id, member.member_epoch

        def expire() -> CoordinatorResult[Any]:
            found = self._find(group_id, member_id)
            if found is None or found[1].member_epoch != epoch:
                return CoordinatorResult()
            logger.info("Group %s: member %s did not revoke its partitions in time", group_id, member_id)
            return self.fence_member(*found)

        self._timer.schedule(group_timers.rebalance_timeout(group_id, member_id), member.rebalance_timeout_ms, expire)

    def schedule_join_timeout_if_absent(self, group_id: str, member: ConsumerGroupMember) -> None:
        """Starts the join timeout of a member of the classic protocol that must rejoin."""
        member_id = member.member_id
        self._timer.schedule_if_absent(
            group_timers.consumer_join(group_id, member_id),
            member.rebalance_timeout_ms,
            lambda: self.fence_if_there(group_id, member_id, "it did not join in time"),
        )

    def schedule_sync_timeout(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Starts the sync timeout of a classic member that has joined but not requested its assignment."""
        self._timer.schedule(
            group_timers.consumer_sync(group_id, member_id),
            timeout_ms,
            lambda: self.fence_if_there(group_id, member_id, "it did not sync in time"),
        )

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        self._timer.cancel(group_timers.session_timeout(group_id, member_id))
        self._timer.cancel(group_timers.rebalance_timeout(group_id, member_id))
        self.cancel_join_and_sync_timeouts(group_id, member_id)

    def cancel_join_and_sync_timeouts(self, group_id: str, member_id: str) -> None:
        self._timer.cancel(group_timers.consumer_join(group_id, member_id))
        self._timer.cancel(group_timers.consumer_sync(group_id, member_id))

    def with_timers_if_failed(
        self, group_id: str, member_ids: Collection[str], result: CoordinatorResult[Any]
    ) -> CoordinatorResult[Any]:
        """Returns a result that restarts cancelled timers of members if it cannot be written.

        Such members are still in the group. Without a session a member that is gone would keep its partitions for good.
        """
        written: Future[None] = Future() if result.append_future is None else result.append_future
        written.add_done_callback(
            lambda future: None if future.exception() is None else self.restart_timers(group_id, member_ids)
        )
        return result._replace(append_future=written)

    def restart_timers(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Starts the timers of those members that are in the group and have none."""
        for member_id in member_ids:
            found = self._find(group_id, member_id)
            if found is not None and not self._timer.is_scheduled(group_timers.session_timeout(group_id, member_id)):
                self._start_timers(*found)

    def fence_if_there(self, group_id: str, member_id: str, why: str) -> CoordinatorResult[Any]:
        found = self._find(group_id, member_id)
        if found is None:
            return CoordinatorResult()
        logger.info("Group %s: fencing member %s: %s", group_id, member_id, why)
        self._metrics.session_expirations.record()
        return self.fence_member(*found)

    def _find(self, group_id: str, member_id: str) -> tuple[ConsumerGroup, ConsumerGroupMember] | None:
        try:
            group = self._store.consumer_group(group_id)
            return group, group.member(member_id)
        except (GroupIdNotFoundError, UnknownMemberIdError):
            return None

    def on_loaded(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            self._start_timers(group, member)

    def _start_timers(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        timeout_ms = member.classic_session_timeout_ms if member.uses_classic_protocol else None
        self.schedule_session_timeout(group.group_id, member.member_id, timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._schedule_rebalance_timeout(group.group_id, member)


def remove_member(records: list[CoordinatorRecord], group_id: str, member_id: str) -> None:
    records.append(group_records.consumer_group_current_assignment_tombstone(group_id, member_id))
    records.append(group_records.consumer_group_target_assignment_tombstone(group_id, member_id))
    records.append(group_records.consumer_group_member_subscription_tombstone(group_id, member_id))


def throw_if_instance_id_is_fenced(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    if member.member_id != member_id:
        raise FencedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )


def throw_if_static_member_is_unknown(member: ConsumerGroupMember | None, instance_id: str) -> None:
    if member is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")


def _replace_member(
    group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember, records: list[CoordinatorRecord]
) -> None:
    group_id = group.group_id
    remove_member(records, group_id, old.member_id)
    records.append(group_records.consumer_group_member_subscription(group_id, new))
    records.append(
        group_records.consumer_group_target_assignment(group_id, new.member_id, group.target_of(old.member_id))
    )
    records.append(group_records.consumer_group_current_assignment(group_id, new))


def _not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise InvalidRequestError(f"{name} can't be empty.")


def _is_subset(owned: Mapping[Uuid, Collection[int]] | None, assigned: EpochAssignment) -> bool:
    if owned is None:
        return False
    return all(assigned.get(topic_id, {}).keys() >= set(partitions) for topic_id, partitions in owned.items())


def _metadata_of(member: ConsumerGroupMember) -> Iterable[object]:
    """Returns the contents of a member's subscription record."""
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        member.rebalance_timeout_ms,
        member.server_assignor_name,
        member.classic_member_metadata,
    )


def _response_assignment(assigned: EpochAssignment) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
    )
