"""InitializeShareGroupState (API 83): creates the delivery state of share partitions (KIP-932).

Sent by the group coordinator to the share coordinator when a share group subscribes to a partition for the first time
or its offset is reset. ``state_epoch`` rises with each initialization, so that a partition leader which still uses the
previous state is refused (FENCED_STATE_EPOCH). With ``start_offset`` -1 the partition leader decides by
``share.auto.offset.reset``.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32(default=0)
    state_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)


class InitializeStateData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class InitializeShareGroupStateRequest(Request, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE):
    group_id: str = string(default="")
    topics: list[InitializeStateData] = array(InitializeStateData, default_factory=list)


class PartitionResult(Struct):
    partition: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionResult] = array(PartitionResult, default_factory=list)


class InitializeShareGroupStateResponse(Response, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE):
    results: list[InitializeStateResult] = array(InitializeStateResult, default_factory=list)
