"""JoinGroup (API 11): joins a classic group; the first half of a rebalance.

All members meet at a barrier. The coordinator holds each request until every known member has joined, or until the
longest ``rebalance_timeout_ms`` among them has passed; members that have not joined by then are removed. A new group
waits a little longer (``group.initial.rebalance.delay.ms``), so that consumers started together form one generation.
Then all get their response at once: a new ``generation_id``, the protocol that all support, and the **leader**. Only
the leader gets ``members`` with the metadata of all members; it computes the assignment, and SyncGroup distributes it.
The broker does not know what is assigned: ``metadata`` is opaque to it. For consumers it is a
:mod:`~barnabas.protocol.messages.consumer_protocol` subscription, once per assignor in order of preference.

Joining takes two requests: the first has an empty member id, and its response has MEMBER_ID_REQUIRED and an id for the
second (KIP-394). Otherwise each join whose response was lost would leave a member that does not exist, and the group
would wait for it. A static member (``group_instance_id``) rejoins under its old id and causes no rebalance, provided it
returns within the session timeout.

INCONSISTENT_GROUP_PROTOCOL: no protocol in common with the group, or another protocol type. UNKNOWN_MEMBER_ID: join
again with an empty id. FENCED_INSTANCE_ID: another process uses the same static id. GROUP_MAX_SIZE_REACHED,
INVALID_SESSION_TIMEOUT: a limit of the broker's configuration.

Versions: v1 a rebalance timeout separate from the session timeout (v0 uses the latter for both); v2 throttle time; v3
client-side throttling (KIP-219); v4 MEMBER_ID_REQUIRED (KIP-394); v5 static ids (KIP-345); v6 flexible; v7 protocol
type in the response, protocol null on an error (KIP-559); v8 ``reason``, for the broker's log (KIP-800); v9
``skip_assignment``: a returning static leader monitors the group but does not reassign it (KIP-814).
"""

from __future__ import annotations

from typing import ClassVar

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, boolean, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, and the member's metadata for it."""

    name: str = string(default="")
    metadata: bytes = binary(default=b"")


class JoinGroupRequest(Request, api_key=ApiKey.JOIN_GROUP):
    max_entries: ClassVar[int] = 1_000
    """A member names the few assignors that it supports."""

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
