"""The records of groups and offsets, as Kafka writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.coordinator.group.offset_and_metadata import OffsetAndMetadata
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from barnabas.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.consumer.assignment import Assignment, ResolvedRegularExpression
    from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember

OFFSET_COMMIT_VERSION: Final = 4
"""The version that Kafka 4.3 writes; v1 for an offset with an expiry, which later versions do not have."""
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
GROUP_METADATA_VERSION: Final = 3


# -- offsets


def offset_commit(group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> CoordinatorRecord:
    has_expiry = offset.expire_timestamp_ms is not None
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset.committed_offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp=offset.commit_timestamp_ms,
            expire_timestamp=-1 if offset.expire_timestamp_ms is None else offset.expire_timestamp_ms,
            topic_id=offset.topic_id,
        ),
        OFFSET_COMMIT_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VERSION,
    )


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


# -- classic groups


def group_metadata(group: ClassicGroup, assignment: Mapping[str, bytes]) -> CoordinatorRecord:
    """Returns the record of a classic group, with an assignment that members may not have received yet."""
    protocol = group.protocol_name
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=protocol,
            leader=group.leader_id,
            current_state_timestamp=group.current_state_timestamp_or_default,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=b"" if protocol is None else member.metadata(protocol),
                    assignment=assignment.get(member.member_id, b""),
                )
                for member in group.members.values()
            ],
        ),
        GROUP_METADATA_VERSION,
    )


def empty_group_metadata(group: ClassicGroup) -> CoordinatorRecord:
    """Returns the record of a classic group without members."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=group.current_state_timestamp_or_default,
            members=[],
        ),
        GROUP_METADATA_VERSION,
    )


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id))


# -- consumer groups


def consumer_group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def consumer_group_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id))


def consumer_group_subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Returns the tombstone of a record that Kafka up to 4.0 wrote about a group's topics."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id))


def consumer_group_member_subscription(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Sorted, so that equal subscriptions have equal bytes.
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor_name,
            classic_member_metadata=member.classic_member_metadata,
        ),
    )


def consumer_group_member_subscription_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def consumer_group_target_assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def consumer_group_target_assignment_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def consumer_group_target_assignment(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(assignment.items())
            ]
        ),
    )


def consumer_group_target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def consumer_group_current_assignment(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            assigned_partitions=_topic_partitions(member.assigned_partitions.items()),
            partitions_pending_revocation=_topic_partitions(member.partitions_pending_revocation.items()),
        ),
    )


def _topic_partitions(items: Iterable[tuple[bytes, Mapping[int, int]]]) -> list[TopicPartitions]:
    made = []
    for topic_id, epochs in sorted(items):
        numbers = sorted(epochs)
        made.append(
            TopicPartitions(
                topic_id=topic_id,  # type: ignore[arg-type]
                partitions=numbers,
                assignment_epochs=[epochs[number] for number in numbers],
            )
        )
    return made


def consumer_group_current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def consumer_group_regular_expression(
    group_id: str, regex: str, resolved: ResolvedRegularExpression
) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def consumer_group_regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))
