"""UnregisterBroker (API 64): removes the registration of a broker that is gone for good.

An administrator's request, forwarded to the controller. A broker that was merely shut down stays registered, fenced,
and keeps counting when the controller decides whether a feature may be raised. BROKER_ID_NOT_REGISTERED: there is
none. A broker that still runs would simply register again.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, string
from barnabas.protocol.message import Request, Response


class UnregisterBrokerRequest(Request, api_key=ApiKey.UNREGISTER_BROKER):
    broker_id: int = int32(default=0)


class UnregisterBrokerResponse(Response, api_key=ApiKey.UNREGISTER_BROKER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
