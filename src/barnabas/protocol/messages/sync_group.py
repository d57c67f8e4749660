"""DOC SyncGroup."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string(default="")
    assignment: bytes = binary(default=b"")


class SyncGroupRequest(Request, api_key=ApiKey.SYNC_GROUP):
    group_id: str = string(default="")
    generation_id: int = int32(default=0)
    member_id: str = string(default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, default_factory=list)


class SyncGroupResponse(Response, api_key=ApiKey.SYNC_GROUP):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = binary(default=b"")
