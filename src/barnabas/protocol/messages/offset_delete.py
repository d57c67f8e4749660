"""OffsetDelete (API 47): deletes committed offsets of a group, partition by partition (KIP-496).

Sent to the group coordinator by an administrator. A topic to which the group is subscribed is refused
(GROUP_SUBSCRIBED_TO_TOPIC); offsets of its other topics can be deleted while the group has members. Note that the error
code comes before the throttle time, and that the API has no flexible version.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32(default=0)


class OffsetDeleteRequestTopic(Struct):
    name: str = string(default="")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, default_factory=list)


class OffsetDeleteRequest(Request, api_key=ApiKey.OFFSET_DELETE):
    group_id: str = string(default="")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, default_factory=list)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = string(default="")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, default_factory=list)


class OffsetDeleteResponse(Response, api_key=ApiKey.OFFSET_DELETE):
    error_code: int = int16(default=0)
    throttle_time_ms: int = int32(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, default_factory=list)
