"""AlterPartitionReassignments (API 45): moves partitions to other brokers, or cancels a move (KIP-455).

Forwarded to the controller. ``replicas`` is the target list, preferred leader first; null cancels a move in progress
(NO_REASSIGNMENT_IN_PROGRESS when there is none). A response without error means that the move was *recorded*. Copying
the data follows: ListPartitionReassignments shows the moves in progress.

Versions: v1 ``allow_replication_factor_change``; false refuses a target with another replication factor (KIP-860).
"""

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
