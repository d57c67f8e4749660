"""SyncGroup (API 14): distributes the assignment of a classic group; the second half of a rebalance.

Every member sends it right after JoinGroup; the leader sends ``assignments`` for all members, the others an empty list.
The coordinator holds the followers' requests until the leader's arrives, stores the assignment, and gives each member
its own bytes (for consumers a :mod:`~barnabas.protocol.messages.consumer_protocol` assignment). Members that the leader
left out get an empty assignment.

REBALANCE_IN_PROGRESS: another rebalance began meanwhile, join again; this is normal. ILLEGAL_GENERATION,
UNKNOWN_MEMBER_ID: join again. If the leader fails before it has sent the assignment, its session times out and all
members join again.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 static ids (KIP-345); v4 flexible; v5 protocol
type and name, which must agree with the group's (INCONSISTENT_GROUP_PROTOCOL, KIP-559).
"""

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
