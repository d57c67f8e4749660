"""UnregisterController (API 94): removes the registration of a controller that will not return (KIP-1312).

The counterpart of UnregisterBroker. RemoveRaftVoter removes a node from the quorum, but leaves the record of
ControllerRegistration, and the registration of an old controller prevents raising features.
CONTROLLER_ID_NOT_REGISTERED: there is no such controller.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, string
from barnabas.protocol.message import Request, Response


class UnregisterControllerRequest(Request, api_key=ApiKey.UNREGISTER_CONTROLLER):
    controller_id: int = int32(default=0)


class UnregisterControllerResponse(Response, api_key=ApiKey.UNREGISTER_CONTROLLER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
