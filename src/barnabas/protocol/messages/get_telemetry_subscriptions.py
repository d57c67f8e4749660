"""GetTelemetrySubscriptions (API 71): a client asks which metrics the cluster wants from it (KIP-714).

Sent to any broker once connected, and again whenever PushTelemetry says that things have changed. A client without an
id sends a zero UUID and takes the one in the response for the rest of its life. The broker matches its subscriptions
against what it knows of the client (id, software, address) and responds with the union:

- ``requested_metrics``: name prefixes. An empty list means *none*; the single entry ``*`` means all (a single empty
  string says the same in the KIP, and as a prefix it would).
- ``push_interval_ms``: the shortest interval of the matching subscriptions. The first push is delayed at random, so
  that clients restarted together do not push together.
- ``delta_temporality``: send counters as differences since the last push, not as totals.
- ``accepted_compression_types``: in order of preference; ``telemetry_max_bytes``: the limit of one push.
- ``subscription_id``: a checksum of metrics and interval, mixed with the client's id; to be quoted in each push.

Asking again before the interval is over is THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed. A broker
that has no receiver configured does not advertise the API at all.
"""

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
