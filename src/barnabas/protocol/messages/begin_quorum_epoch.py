"""BeginQuorumEpoch (API 53): a new raft leader announces itself to the other voters.

In KRaft, followers pull, so the voters that did not vote for a new leader do not learn about it. The leader therefore
sends this request right after an election, and again to every voter that does not fetch. The receiver adopts leader and
epoch and starts fetching.

A receiver that knows a newer epoch responds with FENCED_LEADER_EPOCH and that epoch, and the sender steps down.
``leader_id`` -1 in the response: no leader known. INVALID_VOTER_KEY means that the request was meant for another node
or another disk.

Versions: v1 flexible, the receiver's id and directory, the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class RequestTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class LeaderEndpoint(Struct):
    name: str = string("1+", default="")
    host: str = string("1+", default="")
    port: int = uint16("1+", default=0)


class BeginQuorumEpochRequest(Request, api_key=ApiKey.BEGIN_QUORUM_EPOCH):
    cluster_id: str | None = string(default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", default_factory=list, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class ResponseTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class NodeEndpoint(Struct):
    node_id: int = int32("1+", default=0)
    host: str = string("1+", default="")
    port: int = uint16("1+", default=0)


class BeginQuorumEpochResponse(Response, api_key=ApiKey.BEGIN_QUORUM_EPOCH):
    error_code: int = int16(default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default_factory=list, tag=0)
