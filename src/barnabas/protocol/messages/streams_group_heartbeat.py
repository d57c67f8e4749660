"""StreamsGroupHeartbeat (API 88): joins, stays in and leaves a Kafka Streams group (KIP-1071).

ConsumerGroupHeartbeat for tasks instead of partitions. The same rules apply: ``member_epoch`` 0 joins, -1 leaves, -2 is
a static member that will return; null means "unchanged" in both directions. A joining member sends its whole
``topology``: subtopologies, the topics they read and write, and which topics must have the same number of partitions
(``copartition_groups``, as *indexes* into the lists of the subtopology). The broker creates missing internal topics and
computes the tasks: active tasks process records, standby tasks keep a copy of the state, warm-up tasks catch up in
order to take over.

``status`` reports why the group cannot work, and is not an error: 0 stale topology, 1 missing source topics, 2 wrongly
partitioned topics, 3 missing internal topics, 4 shutdown requested by some member, 5 assignment delayed, 6 missing
client tags. ``task_offsets`` and ``task_end_offsets`` report the progress of standby and warm-up tasks; a warm-up task
within ``acceptable_recovery_lag`` may become active.

``partitions_by_user_endpoint`` is for interactive queries: which instance has which partitions. It has one entry per
*member*, so an instance with several threads appears several times and the entries have to be merged. It comes only
when its epoch is newer than the member's ``endpoint_information_epoch``.

FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID: drop all tasks and join again. STREAMS_TOPOLOGY_FENCED,
STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH: the topology does not match the group's.

Versions: v1 ``topology_description_required`` asks for a StreamsGroupTopologyDescriptionUpdate (KIP-1331), status 6
(KAFKA-20744), recovery lag as int64, -1 if the broker has no such setting.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, int64, string, struct, uint16
from barnabas.protocol.message import Request, Response, Struct


class KeyValue(Struct):
    key: str = string(default="")
    value: str = string(default="")


class TopicInfo(Struct):
    """An internal topic. 0 leaves its partitions or replication factor to the broker."""

    name: str = string(default="")
    partitions: int = int32(default=0)
    replication_factor: int = int16(default=0)
    topic_configs: list[KeyValue] = array(KeyValue, default_factory=list)


class Endpoint(Struct):
    host: str = string(default="")
    port: int = uint16(default=0)


class TaskOffset(Struct):
    """How far a task's changelog has been read, summed over its partitions."""

    subtopology_id: str = string(default="")
    partition: int = int32(default=0)
    offset: int = int64(default=0)


class TaskIds(Struct):
    subtopology_id: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


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


class Topology(Struct):
    epoch: int = int32(default=0)
    subtopologies: list[Subtopology] = array(Subtopology, default_factory=list)


class StreamsGroupHeartbeatRequest(Request, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT):
    group_id: str = string(default="")
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    endpoint_information_epoch: int = int32(default=0)
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, default=None, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    process_id: str | None = string(default=None, nullable="0+")
    user_endpoint: Endpoint | None = struct(Endpoint, default=None, nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, default=None, nullable="0+")
    task_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable="0+")
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable="0+")
    shutdown_application: bool = boolean(default=False)


class Status(Struct):
    status_code: int = int8(default=0)
    status_detail: str = string(default="")


class TopicPartition(Struct):
    topic: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint, default_factory=Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition, default_factory=list)
    standby_partitions: list[TopicPartition] = array(TopicPartition, default_factory=list)


class StreamsGroupHeartbeatResponse(Response, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    acceptable_recovery_lag_legacy: int = int32("0", default=0)
    task_offset_interval_ms: int = int32(default=0)
    acceptable_recovery_lag: int = int64("1+", default=-1, ignorable=True)
    status: list[Status] | None = array(Status, default_factory=list, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable="0+")
    topology_description_required: bool = boolean("1+", default=False)
    endpoint_information_epoch: int = int32(default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, default=None, nullable="0+"
    )
