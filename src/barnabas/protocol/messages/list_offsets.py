"""ListOffsets (API 2): finds the offset for a point in time, or for one of the ends of the log.

Sent to the leader of the partitions: by a consumer that has nothing committed, by ``seekToBeginning`` and
``offsetsForTimes``, by tools that compute lag. A ``timestamp`` of 0 or more is a time in milliseconds and finds the
*first* record at that time or later. Negative values are named positions:

- -1 latest: the high watermark; with ``isolation_level`` 1 (read committed) the last stable offset
- -2 earliest: the log start offset
- -3 the record with the largest timestamp (v7)
- -4 earliest on the broker's own disk, when the topic has tiered storage (v8)
- -5 last one in tiered storage (v9)
- -6 first one that has yet to be uploaded (v11)

The response is the offset, its timestamp (-1 for the named positions other than -3) and its leader epoch. If there is
no such record, for example because all are older: offset -1 and timestamp -1, *without* an error. A new leader that
does not know its high watermark yet returns OFFSET_NOT_AVAILABLE, because offsets would seem to go backwards: retry.

Clients must set ``replica_id`` to -1: the declared default, 0, is a broker id, and a broker reads past the high
watermark.

Versions: v2 isolation level, throttle time; v3 client-side throttling (KIP-219); v4 leader epochs,
FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible; v7 -3
(KIP-734); v8 -4 (KIP-405); v9 -5 (KIP-1005); v10 ``timeout_ms`` for look-ups in tiered storage (KIP-1075); v11 -6
(KIP-1023).
"""

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
