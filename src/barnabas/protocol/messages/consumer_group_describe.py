"""ConsumerGroupDescribe (API 69): shows consumer groups that use the new protocol (KIP-848).

Sent by an administrator to the coordinator of each group. For every member it lists two assignments: ``assignment`` is
what the member owns now, ``target_assignment`` what it will own after the rebalance; they differ while other members
still have to revoke partitions. Likewise ``group_epoch`` rises when members or topics change, and ``assignment_epoch``
is the group epoch for which a target was last computed.

A classic group is not found here (GROUP_ID_NOT_FOUND): DescribeGroups shows those. ``authorized_operations`` is a bit
set, bit *n* for the ACL operation with code *n*; -2147483648 means that it was not requested.

Versions: v1 ``member_type``: 0 classic protocol, 1 consumer protocol, -1 unknown (KIP-1099). A group can hold both
kinds while its members are upgraded one by one.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class ConsumerGroupDescribeRequest(Request, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE):
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
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32(default=0)
    client_id: str = string(default="")
    client_host: str = string(default="")
    subscribed_topic_names: list[str] = array("string", default_factory=list)
    subscribed_topic_regex: str | None = string(default=None, nullable="0+")
    assignment: Assignment = struct(Assignment, default_factory=Assignment)
    target_assignment: Assignment = struct(Assignment, default_factory=Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


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


class ConsumerGroupDescribeResponse(Response, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, default_factory=list)
