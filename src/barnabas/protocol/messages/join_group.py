"""DOC JoinGroup."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, boolean, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    name: str = string(default="")
    metadata: bytes = binary(default=b"")


class JoinGroupRequest(Request, api_key=ApiKey.JOIN_GROUP):
    group_id: str = string(default="")
    session_timeout_ms: int = int32(default=0)
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string(default="")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string(default="")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, default_factory=list)
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string(default="")
    group_instance_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = binary(default=b"")


class JoinGroupResponse(Response, api_key=ApiKey.JOIN_GROUP):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = string(default="", nullable="7+")
    leader: str = string(default="")
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string(default="")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, default_factory=list)
