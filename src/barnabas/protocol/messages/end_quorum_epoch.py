"""EndQuorumEpoch (API 54): a raft leader that shuts down tells the voters to elect a new leader at once.

Without it the voters would notice only when their fetches fail or time out. The request lists the voters by log end
offset, the most advanced first. The first starts an election immediately; each of the others waits longer than the one
before it, so that they do not compete.

``leader_id`` -1 in the response: no leader known.

Versions: v1 flexible, ``preferred_candidates`` with directory ids in place of ``preferred_successors``, endpoints of
the leader (KIP-853).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages.begin_quorum_epoch import LeaderEndpoint, NodeEndpoint, ResponseTopicData


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+", default=0)
    candidate_directory_id: Uuid = uuid("1+", default=ZERO_UUID)


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    preferred_successors: list[int] = array("int32", "0", default_factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", default_factory=list, ignorable=True)


class RequestTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class EndQuorumEpochRequest(Request, api_key=ApiKey.END_QUORUM_EPOCH):
    cluster_id: str | None = string(default=None, nullable="0+")
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", default_factory=list, ignorable=True)


class EndQuorumEpochResponse(Response, api_key=ApiKey.END_QUORUM_EPOCH):
    error_code: int = int16(default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default_factory=list, tag=0)
