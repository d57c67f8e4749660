"""The records of ``__consumer_offsets`` for share groups (KIP-932).

They are structured like the records of consumer groups (:mod:`~barnabas.protocol.internal.consumer_groups`): member
metadata determines the group epoch, the group epoch a target assignment, the target the current assignment of each
member. They are simpler, because partitions are shared and need not be revoked before they are assigned. Keys are the
group, or the group and the member; the newest value replaces earlier ones, and a tombstone deletes it.

The progress of the group is not here but in ``__share_group_state``, and the two topics have different coordinators.
ShareGroupStatePartitionMetadata connects them: it lists the partitions whose delivery state exists, or is being created
or deleted, so that a new coordinator can finish a pending operation.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, int8, int32, int64, string, uuid
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class ShareGroupMemberMetadataKey(CoordinatorKey, record_type=10, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class ShareGroupMemberMetadataValue(CoordinatorValue, record_type=10, versions="0", flexible="0+"):
    """The subscription and client data of a member."""

    rack_id: str | None = string(default="", nullable="0+")
    client_id: str = string(default="")
    client_host: str = string(default="")
    subscribed_topic_names: list[str] = array("string", default_factory=list)


class ShareGroupMetadataKey(CoordinatorKey, record_type=11, versions="0"):
    group_id: str = string("0", default="")


class ShareGroupMetadataValue(CoordinatorValue, record_type=11, versions="0", flexible="0+"):
    """The group and its epoch; the hash changes when a subscribed topic does."""

    epoch: int = int32(default=0)
    metadata_hash: int = int64(default=0)


class ShareGroupTargetAssignmentMetadataKey(CoordinatorKey, record_type=12, versions="0"):
    group_id: str = string("0", default="")


class ShareGroupTargetAssignmentMetadataValue(CoordinatorValue, record_type=12, versions="0", flexible="0+"):
    """The group epoch for which the target assignment is complete, and when it was computed (KIP-1263)."""

    assignment_epoch: int = int32(default=0)
    assignment_timestamp: int = int64(default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(CoordinatorKey, record_type=13, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class TopicPartition(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class ShareGroupTargetAssignmentMemberValue(CoordinatorValue, record_type=13, versions="0", flexible="0+"):
    """The target assignment of one member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, default_factory=list)


class ShareGroupCurrentMemberAssignmentKey(CoordinatorKey, record_type=14, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class ShareGroupCurrentMemberAssignmentValue(CoordinatorValue, record_type=14, versions="0", flexible="0+"):
    """The current assignment of one member; the previous epoch is accepted too, in case a response was lost."""

    member_epoch: int = int32(default=0)
    previous_member_epoch: int = int32(default=0)
    state: int = int8(default=0)
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, default_factory=list)


class ShareGroupStatePartitionMetadataKey(CoordinatorKey, record_type=15, versions="0"):
    group_id: str = string("0", default="")


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    topic_name: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class TopicInfo(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    topic_name: str = string(default="")


class ShareGroupStatePartitionMetadataValue(CoordinatorValue, record_type=15, versions="0", flexible="0+"):
    """The partitions whose delivery state the share coordinators have initialized, are initializing or deleting."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, default_factory=list)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, default_factory=list)
    deleting_topics: list[TopicInfo] = array(TopicInfo, default_factory=list)
