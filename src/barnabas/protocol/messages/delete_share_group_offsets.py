"""DeleteShareGroupOffsets (API 92): deletes the offsets of a share group for whole topics (KIP-932).

Sent by an administrator to the group coordinator; the group must be empty (NON_EMPTY_GROUP). It works by topic, not by
partition. If the group subscribes to the topic again, ``share.auto.offset.reset`` determines where it starts.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string(default="")


class DeleteShareGroupOffsetsRequest(Request, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    group_id: str = string(default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, default_factory=list)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string(default="")
    topic_id: Uuid = uuid(default=ZERO_UUID)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Response, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic, default_factory=list
    )
