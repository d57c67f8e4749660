"""DOC Heartbeat."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, string
from barnabas.protocol.message import Request, Response


class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT):
    group_id: str = string(default="")
    generation_id: int = int32(default=0)
    member_id: str = string(default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")


class HeartbeatResponse(Response, api_key=ApiKey.HEARTBEAT):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
