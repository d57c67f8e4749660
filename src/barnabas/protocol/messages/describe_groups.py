"""DescribeGroups (API 15): shows groups that use the classic protocol.

Sent to the coordinator of each group. Groups of other types are not found: use ConsumerGroupDescribe,
ShareGroupDescribe or StreamsGroupDescribe. States: PreparingRebalance, CompletingRebalance, Stable, Empty, Dead.
``protocol_data`` (the chosen assignor), the members' metadata and their assignments are filled in while the group is
Stable only; for consumers the bytes are those of :mod:`~barnabas.protocol.messages.consumer_protocol`.
``authorized_operations`` is -2147483648 if not requested.

Below v6 a group that does not exist is *not* an error: the response shows it in the state Dead.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 authorized operations (KIP-430); v4 static ids
(KIP-345); v5 flexible; v6 GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, boolean, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeGroupsRequest(Request, api_key=ApiKey.DESCRIBE_GROUPS):
    groups: list[str] = array("string", default_factory=list)
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = string(default="")
    group_instance_id: str | None = string("4+", default=None, nullable="4+", ignorable=True)
    client_id: str = string(default="")
    client_host: str = string(default="")
    member_metadata: bytes = binary(default=b"")
    member_assignment: bytes = binary(default=b"")


class DescribedGroup(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string(default="")
    group_state: str = string(default="")
    protocol_type: str = string(default="")
    protocol_data: str = string(default="")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, default_factory=list)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=ApiKey.DESCRIBE_GROUPS):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, default_factory=list)
