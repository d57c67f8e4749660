"""Heartbeat (API 12): a member of a classic group says that it is alive.

Sent to the group coordinator every ``heartbeat.interval.ms``; the member is thrown out after ``session.timeout.ms``
of silence. The error code is the message: **REBALANCE_IN_PROGRESS** is how members learn that they have to join again
(the heartbeat counts nonetheless). ILLEGAL_GENERATION: the group has moved on without us. UNKNOWN_MEMBER_ID: we have
been removed; both mean join anew, and whatever was not committed will be read by somebody else. FENCED_INSTANCE_ID:
another process with our static id took our place; give up.

A heartbeat proves that the client's background thread lives, not that the application makes progress: that is what
``max.poll.interval.ms`` is for, in the client.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 static ids (KIP-345); v4 flexible.
"""

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
