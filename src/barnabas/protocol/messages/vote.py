"""DOC Vote."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)
    replica_epoch: int = int32(default=0)
    replica_id: int = int32(default=0)
    replica_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int = int32(default=0)
    last_offset: int = int64(default=0)
    pre_vote: bool = boolean("2+", default=False)


class RequestTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class VoteRequest(Request, api_key=ApiKey.VOTE):
    cluster_id: str | None = string(default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    vote_granted: bool = boolean(default=False)


class ResponseTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class NodeEndpoint(Struct):
    node_id: int = int32("1+", default=0)
    host: str = string("1+", default="")
    port: int = uint16("1+", default=0)


class VoteResponse(Response, api_key=ApiKey.VOTE):
    error_code: int = int16(default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default_factory=list, tag=0)
