"""DOC OffsetForLeaderEpoch."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32(default=0)
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32(default=0)


class OffsetForLeaderTopic(Struct):
    topic: str = string(default="")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, default_factory=list)


class OffsetForLeaderEpochRequest(Request, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, default_factory=list)


class EpochEndOffset(Struct):
    error_code: int = int16(default=0)
    partition: int = int32(default=0)
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string(default="")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, default_factory=list)


class OffsetForLeaderEpochResponse(Response, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, default_factory=list)
