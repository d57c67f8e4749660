"""DOC ListOffsets."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class ListOffsetsPartition(Struct):
    partition_index: int = int32(default=0)
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64(default=0)


class ListOffsetsTopic(Struct):
    name: str = string(default="")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, default_factory=list)


class ListOffsetsRequest(Request, api_key=ApiKey.LIST_OFFSETS):
    replica_id: int = int32(default=0)
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, default_factory=list)
    timeout_ms: int = int32("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string(default="")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, default_factory=list)


class ListOffsetsResponse(Response, api_key=ApiKey.LIST_OFFSETS):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, default_factory=list)
