"""StreamsGroupDescribe (API 89): shows Kafka Streams groups, their topology and tasks (KIP-1071).

Sent to the coordinator of each group. For each member there is the assignment it works on and the target it is moving
to, each with active, standby and warm-up tasks; a task is a subtopology and a partition. ``topology`` is as the broker
has resolved it: real topics in place of patterns, partition counts filled in; its ``subtopologies`` are null while
source topics are missing or wrongly partitioned. In ``TopicInfo`` 0 stands for "any number of partitions" and "default
replication factor".

``authorized_operations`` is -2147483648 if not requested. ``user_endpoint`` is where an instance serves interactive
queries.

Versions: v1 ``topology_description``, the graph of processors that the application uploaded (KIP-1331);
``topology_description_status`` says whether it is present and why not: 0 not requested, 1 not stored, 2 failed, 3
present; and the name of the assignor that the *next* assignment will use (KIP-1357).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string, struct
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo


class StreamsGroupDescribeRequest(Request, api_key=ApiKey.STREAMS_GROUP_DESCRIBE):
    group_ids: list[str] = array("string", default_factory=list)
    include_authorized_operations: bool = boolean(default=False)
    include_topology_description: bool = boolean("1+", default=False)


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds, default_factory=list)
    standby_tasks: list[TaskIds] = array(TaskIds, default_factory=list)
    warmup_tasks: list[TaskIds] = array(TaskIds, default_factory=list)


class TopologyDescriptionNode(Struct):
    """A node of the processing graph.

    ``node_type`` is 1 source, 2 processor, 3 sink. A topic chosen at run time is left out.
    """

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
