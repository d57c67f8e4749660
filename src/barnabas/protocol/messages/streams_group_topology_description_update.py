"""DOC StreamsGroupTopologyDescriptionUpdate."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string, struct
from barnabas.protocol.message import Request, Response, Struct


class TopologyDescriptionNode(Struct):
    name: str = string(default="")
    node_type: int = int8(default=0)
    source_topics: list[str] = array("string", default_factory=list)
    sink_topic: str | None = string(default=None, nullable="0+")
    stores: list[str] = array("string", default_factory=list)
    successors: list[str] = array("string", default_factory=list)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string(default="")
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, default_factory=list)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, default_factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, default_factory=TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, default_factory=list)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, default_factory=list)


class StreamsGroupTopologyDescriptionUpdateRequest(Request, api_key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE):
    group_id: str = string(default="")
    member_id: str = string(default="")
    topology_epoch: int = int32(default=0)
    topology_description: TopologyDescription = struct(TopologyDescription, default_factory=TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Response, api_key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
