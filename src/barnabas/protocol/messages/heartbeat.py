"""Heartbeat (API 12): keeps a member of a classic group alive.

Sent to the group coordinator every ``heartbeat.interval.ms``; the coordinator removes a member that sends none for
``session.timeout.ms``. The error code carries the information: **REBALANCE_IN_PROGRESS** tells members to join again
(the heartbeat still counts). ILLEGAL_GENERATION: the group has a newer generation. UNKNOWN_MEMBER_ID: the member was
removed. Both mean join again; other members read the records whose offsets were not committed. FENCED_INSTANCE_ID:
another process uses the same static id; stop.

A heartbeat proves that the client's background thread is alive, not that the application makes progress: the client
checks that with ``max.poll.interval.ms``.

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
