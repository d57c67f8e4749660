"""DescribeShareGroupOffsets (API 90): shows the start offsets and the lag of share groups (KIP-932).

Sent to the group coordinator, which asks the share coordinators (ReadShareGroupStateSummary). ``topics`` null requests
all topics of the group. A share group has no committed offset: ``start_offset`` is the first record that is not
completed, and some after it may be completed already. -1: not initialized. ``lag`` counts the records that still have
to be delivered, not simply log end minus start.

Versions: v1 ``lag``, -1 unknown (KIP-1226).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string(default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, default_factory=list, nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Request, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup, default_factory=list
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32(default=0)
    start_offset: int = int64(default=0)
    leader_epoch: int = int32(default=0)
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string(default="")
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, default_factory=list
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string(default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic, default_factory=list
    )
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class DescribeShareGroupOffsetsResponse(Response, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup, default_factory=list
    )
