"""FindCoordinator (API 10): asks which broker coordinates a group, a transactional id or a share partition.

Any broker can respond: the key's hash picks a partition of an internal topic, and the leader of that partition is the
coordinator. ``key_type`` 0 is a group (``__consumer_offsets``), 1 a transactional id (``__transaction_state``), 2 a
share partition (``__share_group_state``; the key is ``group:topicId:partition`` and only brokers request it). The hash
is Java's ``String.hashCode``, sign bit dropped, modulo the number of partitions.

COORDINATOR_NOT_AVAILABLE is normal at first: the internal topic is being created, or its partition has no leader yet.
Retry. When a coordinator responds with NOT_COORDINATOR to some other request, its partition has moved: send this
request again.

Versions: v1 key types, throttle time, error message; v2 client-side throttling (KIP-219); v3 flexible; v4 many keys
at once in ``coordinator_keys``, each with its own response and error (KIP-699); v5 TRANSACTION_ABORTABLE (KIP-890); v6
share partitions (KIP-932).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class FindCoordinatorRequest(Request, api_key=ApiKey.FIND_COORDINATOR):
    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array("string", "4+", default_factory=list)


class Coordinator(Struct):
    key: str = string("4+", default="")
    node_id: int = int32("4+", default=0)
    host: str = string("4+", default="")
    port: int = int32("4+", default=0)
    error_code: int = int16("4+", default=0)
    error_message: str | None = string("4+", default="", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=ApiKey.FIND_COORDINATOR):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", default="", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default_factory=list)
