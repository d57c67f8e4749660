"""ControllerRegistration (API 70): registers the endpoints and features of a controller (KIP-919).

Every controller, standby or active, sends it to the active controller once per process start. The resulting
RegisterControllerRecord gives clients of controllers the endpoints of the others, and prevents raising a feature above
the level that every controller supports. It does not make the node a voter; that is AddRaftVoter.
``zk_migration_ready`` is a leftover, always false.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.broker_registration import Feature, Listener


class ControllerRegistrationRequest(Request, api_key=ApiKey.CONTROLLER_REGISTRATION):
    controller_id: int = int32(default=0)
    incarnation_id: Uuid = uuid(default=ZERO_UUID)
    zk_migration_ready: bool = boolean(default=False)
    listeners: list[Listener] = array(Listener, default_factory=list)
    features: list[Feature] = array(Feature, default_factory=list)


class ControllerRegistrationResponse(Response, api_key=ApiKey.CONTROLLER_REGISTRATION):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
