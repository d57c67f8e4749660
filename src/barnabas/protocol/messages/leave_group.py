"""LeaveGroup (API 13): removes members from a classic group at once.

Without it the group would wait for their sessions to time out before it rebalances. Consumers send it when they close;
static members normally do *not*, because they are expected to return. An administrator sends it to remove members,
static ones by ``group_instance_id`` with an empty member id. Each member has its own error code; the top-level one is
for the request as a whole.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 many members at once (KIP-345); v4 flexible; v5
``reason``, for the broker's log (KIP-800).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class MemberIdentity(Struct):
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Request, api_key=ApiKey.LEAVE_GROUP):
    group_id: str = string(default="")
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default_factory=list)


class MemberResponse(Struct):
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default="", nullable="3+")
    error_code: int = int16("3+", default=0)


class LeaveGroupResponse(Response, api_key=ApiKey.LEAVE_GROUP):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    members: list[MemberResponse] = array(MemberResponse, "3+", default_factory=list)
