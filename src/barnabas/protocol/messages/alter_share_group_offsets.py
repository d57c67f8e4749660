"""AlterShareGroupOffsets (API 91): moves the start offset of a share group's partitions (KIP-932).

Sent by an administrator to the group coordinator. The group must have no members (NON_EMPTY_GROUP). Acquired and
acknowledged states past the new start offset are discarded: the coordinator initializes the state of the partition
again, with a higher state epoch, through InitializeShareGroupState.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32(default=0)
    start_offset: int = int64(default=0)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string(default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition, default_factory=list
    )


class AlterShareGroupOffsetsRequest(Request, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    group_id: str = string(default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic, default_factory=list)


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string(default="")
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition, default_factory=list
    )


class AlterShareGroupOffsetsResponse(Response, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic, default_factory=list
    )
