"""The records of ``__consumer_offsets`` for Kafka Streams groups (KIP-1071).

They are structured like the records of consumer groups (:mod:`~barnabas.protocol.internal.consumer_groups`), with tasks
in place of partitions: a task is a subtopology and a partition number, and a member has active, standby and warm-up
tasks. In addition the group has a topology, sent by the first member. Keys are the group, or the group and the member;
the newest value replaces earlier ones, and a tombstone deletes it.
"""

from __future__ import annotations

from barnabas.protocol.fields import array, int8, int16, int32, int64, string, struct, uint16
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class StreamsGroupMetadataKey(CoordinatorKey, record_type=17, versions="0"):
    group_id: str = string("0", default="")


class LastAssignmentConfig(Struct):
    key: str = string(default="")
    value: str = string(default="")


class StreamsGroupMetadataValue(CoordinatorValue, record_type=17, versions="0", flexible="0+"):
    """The group and its epoch.

    ``validated_topology_epoch`` is the epoch of the last topology whose topics all passed validation, -1 for none.
    ``last_assignment_configs`` are the settings of the last assignment: changing them requires a new one.
    """

    epoch: int = int32(default=0)
    metadata_hash: int = int64(default=0)
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, default_factory=list, nullable="0+", tag=1
    )


class StreamsGroupMemberMetadataKey(CoordinatorKey, record_type=19, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class Endpoint(Struct):
    host: str = string(default="")
    port: int = uint16(default=0)


class KeyValue(Struct):
    key: str = string(default="")
    value: str = string(default="")


class StreamsGroupMemberMetadataValue(CoordinatorValue, record_type=19, versions="0", flexible="0+"):
    """The client data of a member; members with the same ``process_id`` are threads of one instance."""

    instance_id: str | None = string(default="", nullable="0+")
    rack_id: str | None = string(default="", nullable="0+")
    client_id: str = string(default="")
    client_host: str = string(default="")
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32(default=0)
    process_id: str = string(default="")
    user_endpoint: Endpoint | None = struct(Endpoint, default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, default_factory=list)


class StreamsGroupTargetAssignmentMetadataKey(CoordinatorKey, record_type=20, versions="0"):
    group_id: str = string("0", default="")


class StreamsGroupTargetAssignmentMetadataValue(CoordinatorValue, record_type=20, versions="0", flexible="0+"):
    """The group epoch for which the target assignment is complete, and when it was computed (KIP-1263)."""

    assignment_epoch: int = int32(default=0)
    assignment_timestamp: int = int64(default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(CoordinatorKey, record_type=21, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    subtopology_id: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class StreamsGroupTargetAssignmentMemberValue(CoordinatorValue, record_type=21, versions="0", flexible="0+"):
    """The target tasks of one member."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = array(
        StreamsGroupTargetAssignmentMemberTaskIds, default_factory=list
    )
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = array(
        StreamsGroupTargetAssignmentMemberTaskIds, default_factory=list
    )
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = array(
        StreamsGroupTargetAssignmentMemberTaskIds, default_factory=list
    )


class StreamsGroupCurrentMemberAssignmentKey(CoordinatorKey, record_type=22, versions="0"):
    group_id: str = string("0", default="")
    member_id: str = string("0", default="")


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    """Tasks of one subtopology; ``assignment_epochs``, for active tasks only, fences late commits."""

    subtopology_id: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)
    assignment_epochs: list[int] | None = array("int32", default_factory=list, nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(CoordinatorValue, record_type=22, versions="0", flexible="0+"):
    """The current tasks of one member, those it still has to revoke, and the epoch that its requests must carry.

    ``state``: 1 stable, 2 has tasks to revoke, 3 waits for tasks that others have not released.
    """

    member_epoch: int = int32(default=0)
    previous_member_epoch: int = int32(default=0)
    state: int = int8(default=0)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, default_factory=list
    )


class StreamsGroupTopologyKey(CoordinatorKey, record_type=23, versions="0"):
    group_id: str = string("0", default="")


class TopicConfig(Struct):
    key: str = string(default="")
    value: str = string(default="")


class TopicInfo(Struct):
    """An internal topic; 0 leaves partitions or replication factor to the broker."""

    name: str = string(default="")
    partitions: int = int32(default=0)
    replication_factor: int = int16(default=0)
    topic_configs: list[TopicConfig] = array(TopicConfig, default_factory=list)


class CopartitionGroup(Struct):
    """Topics that must have equal partition counts, each as an index into a list of the subtopology."""

    source_topics: list[int] = array("int16", default_factory=list)
    source_topic_regex: list[int] = array("int16", default_factory=list)
    repartition_source_topics: list[int] = array("int16", default_factory=list)


class Subtopology(Struct):
    subtopology_id: str = string(default="")
    source_topics: list[str] = array("string", default_factory=list)
    source_topic_regex: list[str] = array("string", default_factory=list)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, default_factory=list)
    repartition_sink_topics: list[str] = array("string", default_factory=list)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, default_factory=list)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, default_factory=list)


class StreamsGroupTopologyValue(CoordinatorValue, record_type=23, versions="0", flexible="0+"):
    """The topology of the application as its members sent it: patterns unresolved, partition counts not filled in."""

    epoch: int = int32(default=0)
    subtopologies: list[Subtopology] = array(Subtopology, default_factory=list)
