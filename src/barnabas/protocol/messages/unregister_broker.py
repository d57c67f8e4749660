"""UnregisterBroker (API 64): removes the registration of a broker that will not return.

An administrator's request, forwarded to the controller. A broker that was only shut down stays registered and fenced,
and the controller still considers it when it decides whether a feature may be raised. BROKER_ID_NOT_REGISTERED: there
is no such broker. A broker that still runs would register again.
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
