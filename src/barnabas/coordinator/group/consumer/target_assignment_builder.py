"""Computes the target assignment of all members of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec, MemberSubscription, PartitionAssignor
from barnabas.coordinator.group.consumer.assignment import NO_ASSIGNMENT, Assignment
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.metadata.topics import TopicsImage


class TargetAssignmentResult(NamedTuple):
    records: list[CoordinatorRecord]
    """Records of changed targets, and last the epoch, which marks them as complete."""
    target: dict[str, Assignment]


def build_target_assignment(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    epoch: int,
    assignor: PartitionAssignor,
    topics: TopicsImage,
    now_ms: int,
) -> TargetAssignmentResult:
    """Calls the assignor. `members` are the future members of the group, some of which may not be in it yet."""
    subscriptions: dict[str, MemberSubscription] = {}
    num_partitions: dict[Uuid, int] = {}
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    for member_id, member in members.items():
        names = group.topics_of(member)
        topic_ids = ids.get(names)
        if topic_ids is None:
            # Usually all subscribe to the same topics.
            found = [topic for topic in map(topics.topic, names) if topic is not None]
            topic_ids = ids[names] = frozenset(topic.id for topic in found)
            num_partitions.update({topic.id: len(topic.partitions) for topic in found})
        subscriptions[member_id] = MemberSubscription(
            topic_ids, group.target_of(member_id, member.instance_id), member.instance_id, member.rack_id
        )
    # Sorted, so that the result does not depend on the order of joining.
    ordered = dict(sorted(subscriptions.items()))
    target = assignor.assign(GroupSpec(ordered, num_partitions))
    records = []
    for member_id in ordered:
        new = target.get(member_id, NO_ASSIGNMENT)
        old = group.target_assignment.get(member_id)
        if old is None or dict(old) != dict(new):
            records.append(group_records.consumer_group_target_assignment(group.group_id, member_id, new))
    records.append(group_records.consumer_group_target_assignment_epoch(group.group_id, epoch, now_ms))
    return TargetAssignmentResult(records, target)
