"""DOC PushTelemetry."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, boolean, int8, int16, int32, uuid
from barnabas.protocol.message import Request, Response


class PushTelemetryRequest(Request, api_key=ApiKey.PUSH_TELEMETRY):
    client_instance_id: Uuid = uuid(default=ZERO_UUID)
    subscription_id: int = int32(default=0)
    terminating: bool = boolean(default=False)
    compression_type: int = int8(default=0)
    metrics: bytes = binary(default=b"")


class PushTelemetryResponse(Response, api_key=ApiKey.PUSH_TELEMETRY):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
