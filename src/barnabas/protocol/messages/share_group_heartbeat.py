"""ShareGroupHeartbeat (API 76): joins, stays in and leaves a share group (KIP-932).

A simpler form of ConsumerGroupHeartbeat. ``member_epoch`` 0 joins, -1 leaves, otherwise it is the one from the last
response; the member id is a UUID that the client generates. Null fields, and a null ``assignment`` in the response, are
unchanged since the last heartbeat.

Assignments may overlap, so a partition need not be revoked before another member gets it: a member applies its new
assignment at once and does not confirm it. There are no static members and no patterns. UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH: join again with epoch 0.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class ShareGroupHeartbeatRequest(Request, api_key=ApiKey.SHARE_GROUP_HEARTBEAT):
    group_id: str = string(default="")
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    rack_id: str | None = string(default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable="0+")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, default_factory=list)


class ShareGroupHeartbeatResponse(Response, api_key=ApiKey.SHARE_GROUP_HEARTBEAT):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: Assignment | None = struct(Assignment, default=None, nullable="0+")
