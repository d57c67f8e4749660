"""Replays the records of the consumer protocol into the groups in memory."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.dataclass import replace
from barnabas.coordinator.group.consumer.assignment import ResolvedRegularExpression
from barnabas.coordinator.group.consumer.consumer_group import NO_TARGET, ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_member import LEAVE_GROUP_MEMBER_EPOCH, ConsumerGroupMember
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.protocol.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class ConsumerGroupReplay:
    """Applies records: new ones of the manager, and all existing ones when a partition is loaded.

    State changes only here, so that the memory of a coordinator is what the next one reads from the log. A value of
    None is a tombstone.
    """

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    def group(self, group_id: str, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            group = self._store.get_or_create_persisted_consumer_group(group_id)
            group.group_epoch.set(value.epoch)
            group.metadata_hash.set(value.metadata_hash)
            return
        found = self._persisted(group_id)
        if found is not None:
            found.validate_no_longer_there()
            self._store.remove(group_id)

    def partition_metadata(self, group_id: str, is_there: bool) -> None:
        """Notes a record of an older Kafka about the group's topics, which must be deleted with the group."""
        group = self._store.get_or_create_persisted_consumer_group(group_id) if is_there else self._persisted(group_id)
        if group is not None:
            group.has_subscription_metadata_record.set(is_there)

    def member(self, group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        def change(group: ConsumerGroup) -> None:
            if value is not None:
                before = group.members.get(member_id) or ConsumerGroupMember(member_id)
                group.update_member(before.with_metadata(value))
            elif group.has_member(member_id):
                group.remove_member(member_id)

        self._change_topics(group_id, change, is_deletion=value is None)

    def regular_expression(self, group_id: str, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        def change(group: ConsumerGroup) -> None:
            if value is not None:
                group.resolved_regular_expressions[regex] = ResolvedRegularExpression(
                    frozenset(value.topics), value.version, value.timestamp
                )
            else:
                group.resolved_regular_expressions.pop(regex)

        self._change_topics(group_id, change, is_deletion=value is None)

    def _change_topics(self, group_id: str, change: Callable[[ConsumerGroup], None], *, is_deletion: bool) -> None:
        """Changes the subscriptions of a group. The deletion of a group's part creates no group."""
        group = self._persisted(group_id) if is_deletion else self._group_of_record(group_id)
        if group is None:
            return
        before = group.subscribed_topic_names
        change(group)
        self._store.update_groups_by_topic(group.group_id, before, group.subscribed_topic_names)

    def target_member(
        self, group_id: str, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            found = self._persisted(group_id)
            if found is not None:
                found.target_assignment.pop(member_id)
            return
        self._group_of_record(group_id).target_assignment[member_id] = {
            entry.topic_id: frozenset(entry.partitions) for entry in value.topic_partitions if entry.partitions
        }

    def target_epoch(self, group_id: str, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        group = self._persisted(group_id) if value is None else self._group_of_record(group_id)
        if group is None:
            return
        if value is None:
            if len(group.target_assignment):
                raise RuntimeError(f"the target assignment of group {group_id} is deleted while members have one")
            group.assignment_epoch.set(NO_TARGET)
            group.assignment_timestamp_ms.set(0)
            return
        group.assignment_epoch.set(value.assignment_epoch)
        group.assignment_timestamp_ms.set(value.assignment_timestamp)

    def current_assignment(
        self, group_id: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            group = self._group_of_record(group_id)
            before = group.members.get(member_id) or ConsumerGroupMember(member_id)
            group.update_member(before.with_assignment(value))
            return
        found = self._persisted(group_id)
        if found is not None and found.has_member(member_id):
            found.update_member(
                replace(
                    found.member(member_id),
                    member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    assigned_partitions={},
                    partitions_pending_revocation={},
                )
            )

    def _group_of_record(self, group_id: str) -> ConsumerGroup:
        return self._store.get_or_create_persisted_consumer_group(group_id)

    def _persisted(self, group_id: str) -> ConsumerGroup | None:
        """Returns the group of a tombstone; None if it was already removed, or has another type now."""
        group = self._store.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None
