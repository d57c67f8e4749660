"""DOC AlterClientQuotas."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, float64, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class EntityData(Struct):
    entity_type: str = string(default="")
    entity_name: str | None = string(default="", nullable="0+")


class OpData(Struct):
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
