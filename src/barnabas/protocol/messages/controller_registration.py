"""ControllerRegistration (API 70): registers the endpoints and features of a controller (KIP-919).

Every controller, standby or active, sends it to the active controller once per process start. The resulting
RegisterControllerRecord gives clients of controllers the endpoints of the others, and prevents raising a feature above
the level that every controller supports. It does not make the node a voter; that is AddRaftVoter.
``zk_migration_ready`` is a leftover, always false.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class Listener(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)
    security_protocol: int = int16(default=0)


class Feature(Struct):
    name: str = string(default="")
    min_supported_version: int = int16(default=0)
    max_supported_version: int = int16(default=0)


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
