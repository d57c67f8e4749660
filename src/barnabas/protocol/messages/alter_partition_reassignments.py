"""DOC AlterPartitionReassignments."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ReassignablePartition(Struct):
    partition_index: int = int32(default=0)
    replicas: list[int] | None = array("int32", default=None, nullable="0+")


class ReassignableTopic(Struct):
    name: str = string(default="")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, default_factory=list)


class AlterPartitionReassignmentsRequest(Request, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, default_factory=list)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string(default="")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, default_factory=list)


class AlterPartitionReassignmentsResponse(Response, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, default_factory=list)
