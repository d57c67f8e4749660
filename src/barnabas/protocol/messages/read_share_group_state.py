"""ReadShareGroupState (API 84): loads the delivery state of share partitions (KIP-932).

Sent by a partition leader to the share coordinator when a share group first fetches from the partition, and after each
change of leader. The ``leader_epoch`` of the new leader also fences the old one: from now on, writes with a lower epoch
are refused with FENCED_LEADER_EPOCH.

``start_offset`` -1: initialized, but the leader decides where to begin. ``state_batches`` describe the offsets from the
start offset on: ranges that are 0 available, 2 acknowledged or 4 archived, and how often they were delivered. The state
*acquired* is never stored; after a change of leader such records are available again.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class ReadStateData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class ReadShareGroupStateRequest(Request, api_key=ApiKey.READ_SHARE_GROUP_STATE):
    group_id: str = string(default="")
    topics: list[ReadStateData] = array(ReadStateData, default_factory=list)


class StateBatch(Struct):
    """A range of offsets in the same delivery state, both ends included."""

    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    delivery_state: int = int8(default=0)
    delivery_count: int = int16(default=0)


class PartitionResult(Struct):
    partition: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    state_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)


class ReadStateResult(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionResult] = array(PartitionResult, default_factory=list)


class ReadShareGroupStateResponse(Response, api_key=ApiKey.READ_SHARE_GROUP_STATE):
    results: list[ReadStateResult] = array(ReadStateResult, default_factory=list)
