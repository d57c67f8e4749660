"""The records of ``__consumer_offsets`` for consumer groups of the new protocol (KIP-848).

A classic group is one record. A consumer group is many small records, so that a heartbeat which moves one member writes
one record. Keys are the group, or the group and the member; the newest value replaces earlier ones, and a tombstone
deletes it. A member that leaves gets three tombstones (its metadata, target and current assignment), a deleted group
one for each of its records.

The records form a pipeline: member metadata and the topics' metadata hash determine the *group epoch*; for a group
epoch a *target assignment* is computed; each member's *current assignment* moves toward its target step by step, as
other members release partitions. A new coordinator replays the records and continues where its predecessor stopped.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, binary, int8, int32, int64, string, struct, uuid
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class ConsumerGroupMetadataKey(CoordinatorKey, record_type=3, versions="0"):
    group_id: str = string("0", default="")


class ConsumerGroupMetadataValue(CoordinatorValue, record_type=3, versions="0", flexible="0+"):
    """The group and its epoch.

    ``metadata_hash`` changes when a subscribed topic does; then the epoch must rise (KIP-1101).
    """

    epoch: int = int32(default=0)
    metadata_hash: int = int64(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(CoordinatorKey, record_type=4, versions="0"):
    group_id: str = string("0", default="")


class PartitionMetadata(Struct):
    partition: int = int32(default=0)
    racks: list[str] = array("string", default_factory=list)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    topic_name: str = string(default="")
    num_partitions: int = int32(default=0)
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, default_factory=list)


class ConsumerGroupPartitionMetadataValue(CoordinatorValue, record_type=4, versions="0", flexible="0+"):
    """The metadata of the group's topics.

    Replaced by ``metadata_hash`` in Kafka 4.1. Still read, and deleted with tombstones.
    """

    topics: list[TopicMetadata] = array(TopicMetadata, default_factory=list)


class ConsumerGroupMemberMetadataKey(CoordinatorKey, record_type=5, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class ClassicProtocol(Struct):
    name: str = string(default="")
    metadata: bytes = binary(default=b"")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32(default=0)
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, default_factory=list)


class ConsumerGroupMemberMetadataValue(CoordinatorValue, record_type=5, versions="0", flexible="0+"):
    """The subscription and client data of a member: null fields were not given, -1 is no timeout.

    ``classic_member_metadata`` is set if the member still uses JoinGroup, while the group is being upgraded.
    """

    instance_id: str | None = string(default="", nullable="0+")
    rack_id: str | None = string(default="", nullable="0+")
    client_id: str = string(default="")
    client_host: str = string(default="")
    subscribed_topic_names: list[str] = array("string", default_factory=list)
    subscribed_topic_regex: str | None = string(default="", nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(default="", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, default_factory=ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey, record_type=6, versions="0"):
    group_id: str = string("0", default="")


class ConsumerGroupTargetAssignmentMetadataValue(CoordinatorValue, record_type=6, versions="0", flexible="0+"):
    """The group epoch for which the target assignment is complete, and when it was computed (KIP-1263).

    It is written after the members' targets: an epoch equal to the group's means that there is nothing left to
    compute.
    """

    assignment_epoch: int = int32(default=0)
    assignment_timestamp: int = int64(default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey, record_type=7, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class TopicPartition(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class ConsumerGroupTargetAssignmentMemberValue(CoordinatorValue, record_type=7, versions="0", flexible="0+"):
    """The target assignment of one member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, default_factory=list)


class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey, record_type=8, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class TopicPartitions(Struct):
    """The assigned partitions; ``assignment_epochs``, one per partition, fences late commits."""

    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)
    assignment_epochs: list[int] | None = array("int32", default_factory=list, nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(CoordinatorValue, record_type=8, versions="0", flexible="0+"):
    """The current assignment of one member, and the epoch that its requests must carry.

    ``previous_member_epoch`` is accepted too, in case the response with the new one was lost. ``state``: 0 stable, 1
    has partitions to revoke, 2 waits for partitions that others have not released. Partitions pending revocation belong
    to the member until it confirms their revocation.
    """

    member_epoch: int = int32(default=0)
    previous_member_epoch: int = int32(default=0)
    state: int = int8(default=0)
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, default_factory=list)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, default_factory=list)


class ConsumerGroupRegularExpressionKey(CoordinatorKey, record_type=16, versions="0"):
    """One per group and pattern."""

    group_id: str = string("0", default="")
    regular_expression: str = string("0", default="")


class ConsumerGroupRegularExpressionValue(CoordinatorValue, record_type=16, versions="0", flexible="0+"):
    """The topics a pattern matched, with the version of the metadata and the time at which it was evaluated."""

    topics: list[str] = array("string", default_factory=list)
    version: int = int64(default=0)
    timestamp: int = int64(default=0)
