"""ShareGroupDescribe (API 77): shows share groups and their members (KIP-932).

Sent by an administrator to the coordinator of each group. Several members can have the same partition, by the design of
share groups. States: Empty, Stable, Dead. DescribeShareGroupOffsets shows the offsets. ``authorized_operations`` is
-2147483648 if not requested.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class ShareGroupDescribeRequest(Request, api_key=ApiKey.SHARE_GROUP_DESCRIBE):
    group_ids: list[str] = array("string", default_factory=list)
    include_authorized_operations: bool = boolean(default=False)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    topic_name: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, default_factory=list)


class Member(Struct):
    member_id: str = string(default="")
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32(default=0)
    client_id: str = string(default="")
    client_host: str = string(default="")
    subscribed_topic_names: list[str] = array("string", default_factory=list)
    assignment: Assignment = struct(Assignment, default_factory=Assignment)


class DescribedGroup(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string(default="")
    group_state: str = string(default="")
    group_epoch: int = int32(default=0)
    assignment_epoch: int = int32(default=0)
    assignor_name: str = string(default="")
    members: list[Member] = array(Member, default_factory=list)
    authorized_operations: int = int32(default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=ApiKey.SHARE_GROUP_DESCRIBE):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, default_factory=list)
