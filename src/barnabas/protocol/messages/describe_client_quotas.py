"""DescribeClientQuotas (API 48): lists the client quotas that match a filter (KIP-546).

Any broker responds. A component selects one part of an entity, by ``match_type``: 0 the name in ``match``, 1 the
default entry, 2 any entry that has this part at all. Unless ``strict`` is set, entities may have more parts than the
filter (a filter on a user also finds that user's quotas per client id). A filter without components that is not strict
lists everything.

These are the quotas as configured. Precedence decides which one applies to a client when it connects.

Versions: v1 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, float64, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ComponentData(Struct):
    entity_type: str = string(default="")
    match_type: int = int8(default=0)
    match: str | None = string(default="", nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    components: list[ComponentData] = array(ComponentData, default_factory=list)
    strict: bool = boolean(default=False)


class EntityData(Struct):
    entity_type: str = string(default="")
    entity_name: str | None = string(default="", nullable="0+")


class ValueData(Struct):
    key: str = string(default="")
    value: float = float64(default=0.0)


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, default_factory=list)
    values: list[ValueData] = array(ValueData, default_factory=list)


class DescribeClientQuotasResponse(Response, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, default_factory=list, nullable="0+")
