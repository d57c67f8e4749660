"""Changes the protocol of groups while they have members (KIP-848).

An application moves to the consumer protocol by a rolling restart. When the first process rejoins with the new
protocol, its classic group becomes a consumer group in which the others are *members of the classic protocol*: they
continue with JoinGroup and SyncGroup, and the coordinator acts as their leader. When the last member of the new
protocol leaves again, the group becomes classic again. ``group.consumer.migration.policy`` controls both directions.

A group without members can always change, in either direction: its tombstones are written first, and its offsets stay.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

from barnabas.common.errors import Errors, GroupIdNotFoundError, InconsistentGroupProtocolError, ProtocolError
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_manager import ClassicGroupManager
from barnabas.coordinator.group.classic.classic_group_member import ClassicGroupMember
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.consumer.assignment import Assignment
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_manager import ConsumerGroupManager
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState
from barnabas.coordinator.group.consumer.topic_hashes import group_hash
from barnabas.coordinator.group.consumer_protocol import (
    from_consumer_protocol,
    read_assignment,
    read_subscription,
    to_consumer_protocol,
    version_for_assignment,
    write_assignment,
)
from barnabas.coordinator.group.group import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.group.group_coordinator_config import ConsumerGroupMigrationPolicy, GroupCoordinatorConfig
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.internal.consumer_groups import ClassicMemberMetadata, ClassicProtocol

logger = LimitedLogger(logging.getLogger(__name__))


class GroupMigration:
    """Converts groups from one protocol to the other."""

    def __init__(
        self,
        store: GroupStore,
        config: GroupCoordinatorConfig,
        classic: ClassicGroupManager,
        consumer: ConsumerGroupManager,
    ) -> None:
        self._store = store
        self._config = config
        self._classic = classic
        self._consumer = consumer

    # -- from classic to consumer

    def consumer_group_for_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        group = self._store.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            return ConsumerGroup(self._store.registry, group_id)
        if group.is_empty:
            group.create_group_tombstone_records(records)
            return ConsumerGroup(self._store.registry, group_id)
        problem = self._problem_with_upgrade(group)
        if problem is not None:
            logger.info("Group %s: cannot upgrade to the consumer protocol: %s", group_id, problem)
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group: {problem}.")
        return self._upgrade(group, records)

    def throw_if_classic_member_cannot_join(self, group: ConsumerGroup) -> None:
        if self._config.consumer_migration_policy is ConsumerGroupMigrationPolicy.DISABLED:
            raise InconsistentGroupProtocolError(
                f"Group {group.group_id} is a consumer group, and group.consumer.migration.policy does not allow a "
                "change of the protocol while it has members."
            )

    def _problem_with_upgrade(self, group: ClassicGroup) -> str | None:
        if not self._config.consumer_migration_policy.is_upgrade_enabled:
            return "group.consumer.migration.policy does not allow an upgrade while it has members"
        if not group.uses_consumer_group_protocol:
            return "its members are not consumers"
        if group.num_members > self._config.consumer_max_size:
            return "it has more members than group.consumer.max.size"
        return None

    def _upgrade(self, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        try:
            members = [self._upgraded_member(classic, member) for member in classic.members.values()]
        except ProtocolError as error:
            raise GroupIdNotFoundError(
                f"Group {classic.group_id} cannot be upgraded: a member's subscription or assignment cannot be decoded."
            ) from error
        classic.create_group_tombstone_records(records)
        group = ConsumerGroup(self._store.registry, classic.group_id)
        group_id, epoch = classic.group_id, classic.generation_id
        names = set().union(*(member.subscribed_topic_names for member in members))
        group.group_epoch.set(epoch)
        group.metadata_hash.set(group_hash(names, self._store.image))
        group.assignment_epoch.set(epoch)
        for member in members:
            group.target_assignment[member.member_id] = {
                topic_id: frozenset(partitions) for topic_id, partitions in member.assigned_partitions.items()
            }
            group.update_member(member)
        records.extend(group_records.consumer_group_member_subscription(group_id, member) for member in members)
        records.append(group_records.consumer_group_epoch(group_id, epoch, group.metadata_hash.get()))
        records.extend(
            group_records.consumer_group_target_assignment(group_id, one.member_id, group.target_of(one.member_id))
            for one in members
        )
        records.append(group_records.consumer_group_target_assignment_epoch(group_id, epoch, 0))
        records.extend(group_records.consumer_group_current_assignment(group_id, member) for member in members)
        return group

    def complete_upgrade(self, group: ConsumerGroup) -> None:
        group_id = group.group_id
        classic = self._store.groups.get(group_id)
        if not isinstance(classic, ClassicGroup) or classic.is_empty:
            return
        # Members that wait in a classic rebalance rejoin, and find the consumer group.
        classic.complete_all_futures(Errors.REBALANCE_IN_PROGRESS)
        # Timers of the classic group stay: they do nothing in a consumer group, but if the upgrade cannot be written,
        # the classic group needs them.
        for member in group.members.values():
            self._consumer.schedule_session_timeout(group_id, member.member_id, member.classic_session_timeout_ms)
        logger.info("Group %s: upgraded to a consumer group in epoch %d", group_id, group.group_epoch.get())

    def _upgraded_member(self, group: ClassicGroup, member: ClassicGroupMember) -> ConsumerGroupMember:
        topics = self._store.image.topics
        names = member.protocol_names
        # During a rebalance, a member may have joined without the protocol of the last generation.
        protocol = group.protocol_name if group.protocol_name in names else names[0]
        subscription = read_subscription(member.metadata(protocol))
        epoch = group.generation_id
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise GroupIdNotFoundError(
                f"Group {group.group_id} cannot be upgraded: a custom assignor has added user data to the "
                "assignments of its members, which would be lost. Use an assignor without user data, and try again."
            )
        assigned = from_consumer_protocol(assignment, topics)
        return ConsumerGroupMember(
            member.member_id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(subscription.topics),
            state=MemberState.STABLE,
            assigned_partitions={
                topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assigned.items() if partitions
            },
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=member.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=one.name, metadata=one.metadata) for one in member.supported_protocols
                ],
            ),
        )

    # -- from consumer to classic

    def downgrade_without(
        self, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
    ) -> CoordinatorResult[Any] | None:
        left = group.num_members - len(leaving)
        if (
            left <= 0
            or not group.all_members_use_classic_protocol_except(leaving)
            or not self._config.consumer_migration_policy.is_downgrade_enabled
            or left > self._config.classic_max_size
        ):
            return None
        records: list[CoordinatorRecord] = []
        group.create_group_tombstone_records(records)
        gone = {member.member_id for member in leaving}
        stay = [member for member in group.members.values() if member.member_id not in gone]
        targets = {member.member_id: group.target_of(member.member_id) for member in stay}
        classic = self._downgrade(group, stay, targets, records)
        self._classic.prepare_rebalance(classic, "the last member of the consumer protocol has left")
        written: Future[None] = Future()
        written.add_done_callback(lambda future: self.revert_downgrade_if_failed(group, classic, future.exception()))
        return CoordinatorResult(records, append_future=written, replay_records=False)

    def downgrades_with_replaced_member(self, group: ConsumerGroup, replaced: ConsumerGroupMember) -> bool:
        """Returns whether the last member of the consumer protocol is static, and rejoins with the classic one."""
        return (
            not replaced.uses_classic_protocol
            and group.all_members_use_classic_protocol_except([replaced])
            and self._config.consumer_migration_policy.is_downgrade_enabled
            and group.num_members <= self._config.classic_max_size
        )

    def downgrade_with_replaced_member(
        self,
        group: ConsumerGroup,
        replaced: ConsumerGroupMember,
        joining: ConsumerGroupMember,
        records: list[CoordinatorRecord],
        *,
        rebalances: bool,
    ) -> ClassicGroup:
        """Downgrades the group. The caller calls `revert_downgrade_if_failed` with the outcome of the write."""
        # The records that replace the old member by the new one are written before these.
        group.create_tombstones_with_replaced_member(records, replaced.member_id, joining.member_id)
        members = [member for member in group.members.values() if member.member_id != replaced.member_id]
        targets = {member.member_id: group.target_of(member.member_id) for member in members}
        targets[joining.member_id] = group.target_of(replaced.member_id)
        classic = self._downgrade(group, [*members, joining], targets, records)
        if rebalances:
            self._classic.prepare_rebalance(classic, "members do not have their target assignment")
        return classic

    def revert_downgrade_if_failed(
        self, group: ConsumerGroup, classic: ClassicGroup, error: BaseException | None
    ) -> None:
        """Puts the consumer group back if its downgrade was not written.

        The runtime has done that if the write failed, but not if the records did not fit into a batch. If the write has
        timed out, its records are in the log, and the downgrade stays.
        """
        if error is None or isinstance(error, TimeoutError):
            return
        classic.complete_all_futures(Errors.NOT_COORDINATOR)
        if self._store.groups.get(group.group_id) is classic:
            self._store.groups[group.group_id] = group
            self._store.update_groups_by_topic(group.group_id, (), group.subscribed_topic_names)

    def _downgrade(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerGroupMember],
        targets: Mapping[str, Assignment],
        records: list[CoordinatorRecord],
    ) -> ClassicGroup:
        group_id, now_ms = group.group_id, self._store.now_ms
        classic = ClassicGroup(
            group_id,
            now_ms,
            ClassicGroupState.STABLE,
            group.group_epoch.get(),
            CONSUMER_PROTOCOL_TYPE,
            current_state_timestamp_ms=now_ms(),
        )
        for member in members:
            classic.add(
                ClassicGroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.classic_session_timeout_ms,
                    CONSUMER_PROTOCOL_TYPE,
                    member.join_group_protocols,
                )
            )
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for made in classic.members.values():
            version = version_for_assignment(made.metadata(classic.protocol_name))
            target = to_consumer_protocol(targets[made.member_id], self._store.image.topics)
            made.assignment = write_assignment(target, version)
        records.append(group_records.group_metadata(classic, classic.assignment))
        for member in group.members.values():
            # Sessions stay: they do nothing in a classic group, but if the downgrade cannot be written, the consumer
            # group needs them.
            self._consumer.cancel_join_and_sync_timeouts(group_id, member.member_id)
        self._store.update_groups_by_topic(group_id, group.subscribed_topic_names, ())
        # The records are not replayed: this is their result, with members that can wait.
        self._store.groups[group_id] = classic
        for made in classic.members.values():
            self._classic.reschedule_heartbeat(classic, made.member_id)
        logger.info("Group %s: downgraded to a classic group in generation %d", group_id, classic.generation_id)
        return classic
