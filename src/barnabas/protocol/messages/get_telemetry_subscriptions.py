"""DOC GetTelemetrySubscriptions."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, uuid
from barnabas.protocol.message import Request, Response


class GetTelemetrySubscriptionsRequest(Request, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
    client_instance_id: Uuid = uuid(default=ZERO_UUID)


class GetTelemetrySubscriptionsResponse(Response, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    client_instance_id: Uuid = uuid(default=ZERO_UUID)
    subscription_id: int = int32(default=0)
    accepted_compression_types: list[int] = array("int8", default_factory=list)
    push_interval_ms: int = int32(default=0)
    telemetry_max_bytes: int = int32(default=0)
    delta_temporality: bool = boolean(default=False)
    requested_metrics: list[str] = array("string", default_factory=list)
