"""ListPartitionReassignments (API 46): shows the partitions that are being moved (KIP-455).

Forwarded to the controller. ``topics`` null lists all moves in progress. Partitions that are not moving are left out of
the response. ``replicas`` has the old and the new replicas together; ``adding_replicas`` and ``removing_replicas`` tell
which are which.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: str = string(default="")
    partition_indexes: list[int] = array("int32", default_factory=list)


class ListPartitionReassignmentsRequest(Request, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable="0+"
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32(default=0)
    replicas: list[int] = array("int32", default_factory=list)
    adding_replicas: list[int] = array("int32", default_factory=list)
    removing_replicas: list[int] = array("int32", default_factory=list)


class OngoingTopicReassignment(Struct):
    name: str = string(default="")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, default_factory=list)


class ListPartitionReassignmentsResponse(Response, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, default_factory=list)
