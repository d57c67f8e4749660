"""StreamsGroupTopologyDescriptionUpdate (API 93): a Streams application uploads the graph of its processors (KIP-1331).

Sent by a member after a heartbeat whose response has ``topology_description_required``. The heartbeat itself carries
only what the assignment needs; this request carries the full description for people and tools. A plug-in of the broker
stores it, and StreamsGroupDescribe v1 shows it. Edges are given as ``successors``; predecessors follow from them.

UNKNOWN_MEMBER_ID: the sender is no longer a member, or the group does not exist; join again. UNSUPPORTED_VERSION: the
broker stores no descriptions. STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: the plug-in could not store it.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string, struct
from barnabas.protocol.message import Request, Response, Struct


class TopologyDescriptionNode(Struct):
    """``node_type`` 1 source, 2 processor, 3 sink. Topics chosen at run time are left empty."""

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
    """A global state store: the source that feeds it and the processor that fills it."""

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
