"""DeleteShareGroupState (API 86): drops the delivery state of share partitions (KIP-932).

Sent by the group coordinator, after a share group or its offsets were deleted, to the share coordinator that stores the
state. The share coordinator writes a tombstone for each partition.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32(default=0)


class DeleteStateData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class DeleteShareGroupStateRequest(Request, api_key=ApiKey.DELETE_SHARE_GROUP_STATE):
    group_id: str = string(default="")
    topics: list[DeleteStateData] = array(DeleteStateData, default_factory=list)


class PartitionResult(Struct):
    partition: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionResult] = array(PartitionResult, default_factory=list)


class DeleteShareGroupStateResponse(Response, api_key=ApiKey.DELETE_SHARE_GROUP_STATE):
    results: list[DeleteStateResult] = array(DeleteStateResult, default_factory=list)
