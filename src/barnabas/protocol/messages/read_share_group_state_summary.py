"""ReadShareGroupStateSummary (API 87): reads the start offset of share partitions, without the batches (KIP-932).

Sent by the group coordinator to share coordinators, to respond to DescribeShareGroupOffsets. ``leader_epoch`` is the
last one that the share coordinator has seen.

Versions: v1 ``delivery_complete_count``: the number of records at or after the start offset that are completed, for
computing the lag, -1 unknown (KIP-1226).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class ReadShareGroupStateSummaryRequest(Request, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY):
    group_id: str = string(default="")
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData, default_factory=list)


class PartitionResult(Struct):
    partition: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionResult] = array(PartitionResult, default_factory=list)


class ReadShareGroupStateSummaryResponse(Response, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, default_factory=list)
