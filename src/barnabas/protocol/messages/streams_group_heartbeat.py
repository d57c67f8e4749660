"""DOC StreamsGroupHeartbeat."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, int64, string, struct, uint16
from barnabas.protocol.message import Request, Response, Struct


class KeyValue(Struct):
    key: str = string(default="")
    value: str = string(default="")


class TopicInfo(Struct):
    name: str = string(default="")
    partitions: int = int32(default=0)
    replication_factor: int = int16(default=0)
    topic_configs: list[KeyValue] = array(KeyValue, default_factory=list)


class Endpoint(Struct):
    host: str = string(default="")
    port: int = uint16(default=0)


class TaskOffset(Struct):
    subtopology_id: str = string(default="")
    partition: int = int32(default=0)
    offset: int = int64(default=0)


class TaskIds(Struct):
    subtopology_id: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class CopartitionGroup(Struct):
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
