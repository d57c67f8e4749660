"""OffsetForLeaderEpoch (API 23): finds the end offset of a leader epoch.

It compares two logs after a change of leader (KIP-101, KIP-279). The leader responds with the largest epoch it has that
is *not above* the requested one, and the offset at which that epoch ends in its log. A replica truncates its own log
there. A consumer whose position is beyond it has read records that were lost since, and reports truncation (KIP-320).
Most followers use the same check in Fetch v12 instead; consumers still use this request.

``replica_id``: -1 a consumer; -2, the default, a debugging consumer; a broker id a follower. Epoch and offset are -1 if
the epoch is unknown.

Versions: v2 ``current_leader_epoch`` to fence the sender: FENCED_LEADER_EPOCH if it is behind, UNKNOWN_LEADER_EPOCH if
it is ahead (KIP-320); v3 replica id (KIP-392); v4 flexible.
"""

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
    """``end_offset`` is the offset after the last record of ``leader_epoch``."""

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
