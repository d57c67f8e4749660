"""PushTelemetry (API 72): a client delivers its metrics (KIP-714).

Sent to any broker, every ``push_interval_ms`` of the current subscription. ``metrics`` is OTLP ``MetricsData`` v1 in
protobuf, compressed with one of the accepted types (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd). The broker does not
decode them: it checks id, subscription, interval and size and passes the bytes on, with the attributes of the
connection.

The error codes steer the client:

- UNKNOWN_SUBSCRIPTION_ID: subscriptions have changed. Send GetTelemetrySubscriptions at once, then push
- UNSUPPORTED_COMPRESSION_TYPE: likewise, then push uncompressed or with another type
- TELEMETRY_TOO_LARGE: over ``telemetry_max_bytes``, also once decompressed; drop the push and continue at the next
  interval
- THROTTLING_QUOTA_EXCEEDED: too early; wait for the interval
- INVALID_RECORD: the payload is invalid; stop pushing
- INVALID_REQUEST: no client id, or a push after the last one; stop as well

``terminating`` marks the last push, when the client closes. Only this push may come before the interval is over, and no
push may follow it.
"""

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
