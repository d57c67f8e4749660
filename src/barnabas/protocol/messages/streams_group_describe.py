"""DOC StreamsGroupDescribe."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, int64, string, struct, uint16
from barnabas.protocol.message import Request, Response, Struct


class StreamsGroupDescribeRequest(Request, api_key=ApiKey.STREAMS_GROUP_DESCRIBE):
    group_ids: list[str] = array("string", default_factory=list)
    include_authorized_operations: bool = boolean(default=False)
    include_topology_description: bool = boolean("1+", default=False)


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


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds, default_factory=list)
    standby_tasks: list[TaskIds] = array(TaskIds, default_factory=list)
    warmup_tasks: list[TaskIds] = array(TaskIds, default_factory=list)


class KeyValue(Struct):
    key: str = string(default="")
    value: str = string(default="")


class TopicInfo(Struct):
    name: str = string(default="")
    partitions: int = int32(default=0)
    replication_factor: int = int16(default=0)
    topic_configs: list[KeyValue] = array(KeyValue, default_factory=list)


class TopologyDescriptionNode(Struct):
    name: str = string("1+", default="")
    node_type: int = int8("1+", default=0)
    source_topics: list[str] = array("string", "1+", default_factory=list)
    sink_topic: str | None = string("1+", default=None, nullable="1+")
    stores: list[str] = array("string", "1+", default_factory=list)
    successors: list[str] = array("string", "1+", default_factory=list)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("1+", default="")
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, "1+", default_factory=list)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+", default_factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+", default_factory=TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(
        TopologyDescriptionSubtopology, "1+", default_factory=list
    )
    global_stores: list[TopologyDescriptionGlobalStore] = array(
        TopologyDescriptionGlobalStore, "1+", default_factory=list
    )


class Subtopology(Struct):
    subtopology_id: str = string(default="")
    source_topics: list[str] = array("string", default_factory=list)
    repartition_sink_topics: list[str] = array("string", default_factory=list)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, default_factory=list)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, default_factory=list)


class Topology(Struct):
    epoch: int = int32(default=0)
    subtopologies: list[Subtopology] | None = array(Subtopology, default=None, nullable="0+")


class Member(Struct):
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    client_id: str = string(default="")
    client_host: str = string(default="")
    topology_epoch: int = int32(default=0)
    process_id: str = string(default="")
    user_endpoint: Endpoint | None = struct(Endpoint, default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, default_factory=list)
    task_offsets: list[TaskOffset] = array(TaskOffset, default_factory=list)
    task_end_offsets: list[TaskOffset] = array(TaskOffset, default_factory=list)
    assignment: Assignment = struct(Assignment, default_factory=Assignment)
    target_assignment: Assignment = struct(Assignment, default_factory=Assignment)
    is_classic: bool = boolean(default=False)


class DescribedGroup(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string(default="")
    group_state: str = string(default="")
    group_epoch: int = int32(default=0)
    assignment_epoch: int = int32(default=0)
    topology: Topology | None = struct(Topology, default=None, nullable="0+")
    members: list[Member] = array(Member, default_factory=list)
    authorized_operations: int = int32(default=-2147483648)
    topology_description: TopologyDescription | None = struct(TopologyDescription, "1+", default=None, nullable="1+")
    topology_description_status: int = int8("1+", default=0)
    assignor_name: str | None = string("1+", default=None, nullable="1+", ignorable=True)


class StreamsGroupDescribeResponse(Response, api_key=ApiKey.STREAMS_GROUP_DESCRIBE):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, default_factory=list)
