"""Describes a consumer group for ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.consumer.assignment import NO_ASSIGNMENT
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember
from barnabas.metadata.topics import TopicsImage
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def describe_consumer_group(
    group: ConsumerGroup, epoch: int, default_assignor: str, topics: TopicsImage
) -> DescribedGroup:
    """Describes the committed state."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_at(epoch),
        group_epoch=group.group_epoch.get(epoch),
        assignment_epoch=group.assignment_epoch.get(epoch),
        assignor_name=group.preferred_assignor(epoch=epoch) or default_assignor,
        members=[
            _describe_member(member, group.target_assignment.get(member_id, epoch, NO_ASSIGNMENT), topics)
            for member_id, member in group.members.items_at(epoch)
        ],
    )


def _describe_member(member: ConsumerGroupMember, target: Mapping[Uuid, Iterable[int]], topics: TopicsImage) -> Member:
    has: dict[Uuid, set[int]] = {}
    for assignment in (member.assigned_partitions, member.partitions_pending_revocation):
        for topic_id, partitions in assignment.items():
            has.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_describe_assignment(has, topics),
        target_assignment=_describe_assignment(target, topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _describe_assignment(assignment: Mapping[Uuid, Iterable[int]], topics: TopicsImage) -> Assignment:
    """Leaves out deleted topics, which have no name."""
    shown = []
    for topic_id, partitions in assignment.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            shown.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)))
    return Assignment(topic_partitions=shown)
