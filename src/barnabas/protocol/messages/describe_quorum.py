"""DescribeQuorum (API 55): shows the state of the metadata quorum.

Brokers forward it; only the raft leader can respond, others return NOT_LEADER_OR_FOLLOWER. Voters and observers (mostly
brokers) are listed with the log end offset of their last fetch. ``last_fetch_timestamp`` is the time of that fetch,
``last_caught_up_timestamp`` the last time at which they had reached the leader's log end. All are -1 if unknown. For
itself, the leader reports the current time.

Versions: v1 the two timestamps (KIP-836); v2 error messages, directory ids and the voters' endpoints (KIP-853).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)


class RequestTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class DescribeQuorumRequest(Request, api_key=ApiKey.DESCRIBE_QUORUM):
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)


class ReplicaState(Struct):
    replica_id: int = int32(default=0)
    replica_directory_id: Uuid = uuid("2+", default=ZERO_UUID)
    log_end_offset: int = int64(default=0)
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string("2+", default="", nullable="2+", ignorable=True)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    high_watermark: int = int64(default=0)
    current_voters: list[ReplicaState] = array(ReplicaState, default_factory=list)
    observers: list[ReplicaState] = array(ReplicaState, default_factory=list)


class ResponseTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class Listener(Struct):
    name: str = string("2+", default="")
    host: str = string("2+", default="")
    port: int = uint16("2+", default=0)


class Node(Struct):
    node_id: int = int32("2+", default=0)
    listeners: list[Listener] = array(Listener, "2+", default_factory=list)


class DescribeQuorumResponse(Response, api_key=ApiKey.DESCRIBE_QUORUM):
    error_code: int = int16(default=0)
    error_message: str | None = string("2+", default="", nullable="2+", ignorable=True)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
    nodes: list[Node] = array(Node, "2+", default_factory=list)
