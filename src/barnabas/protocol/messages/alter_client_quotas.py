"""AlterClientQuotas (API 49): sets and removes client quotas (KIP-546).

An administrator's request, forwarded to the controller. An *entity* is the combination of names that a quota applies
to: a ``user``, a ``client-id``, both together, or an ``ip`` alone. A null name is the default entity, which applies to
every name without an entry of its own; it is not a wildcard. The keys are ``producer_byte_rate``,
``consumer_byte_rate``, ``request_percentage`` and ``controller_mutation_rate``, and for an ip
``connection_creation_rate``. Keys that the request does not list are unchanged.

Each entry succeeds or fails by itself. ``validate_only`` reports the result without applying it.

Versions: v1 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, float64, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class EntityData(Struct):
    entity_type: str = string(default="")
    entity_name: str | None = string(default="", nullable="0+")


class OpData(Struct):
    """One key to set; with ``remove`` the value is ignored and the key dropped."""

    key: str = string(default="")
    value: float = float64(default=0.0)
    remove: bool = boolean(default=False)


class RequestEntryData(Struct):
    entity: list[EntityData] = array(EntityData, default_factory=list)
    ops: list[OpData] = array(OpData, default_factory=list)


class AlterClientQuotasRequest(Request, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    entries: list[RequestEntryData] = array(RequestEntryData, default_factory=list)
    validate_only: bool = boolean(default=False)


class ResponseEntryData(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    entity: list[EntityData] = array(EntityData, default_factory=list)


class AlterClientQuotasResponse(Response, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    throttle_time_ms: int = int32(default=0)
    entries: list[ResponseEntryData] = array(ResponseEntryData, default_factory=list)
