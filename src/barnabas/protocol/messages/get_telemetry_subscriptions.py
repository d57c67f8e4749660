"""GetTelemetrySubscriptions (API 71): a client asks which metrics the cluster wants from it (KIP-714).

Sent to any broker once connected, and again whenever a PushTelemetry response says that the subscriptions have changed.
A client without an id sends a zero UUID and keeps the id in the response. The broker matches its subscriptions against
the client's attributes (id, software, address) and responds with the union:

- ``requested_metrics``: name prefixes. An empty list means *none*; the single entry ``*`` means all (a single empty
  string, which as a prefix matches everything, means the same in the KIP).
- ``push_interval_ms``: the shortest interval of the matching subscriptions. The first push is delayed at random, so
  that clients restarted together do not push together.
- ``delta_temporality``: send counters as differences since the last push, not as totals.
- ``accepted_compression_types``: in order of preference; ``telemetry_max_bytes``: the limit of one push.
- ``subscription_id``: a checksum of metrics and interval, mixed with the client's id; each push must carry it.

A repeated request before the interval is over gets THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed. A
broker that has no receiver configured does not advertise the API at all.
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
