"""DOC BrokerHeartbeat."""

from __future__ import annotations

from barnabas.common.identifiers import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64
from barnabas.protocol.message import Request, Response


class BrokerHeartbeatRequest(Request, api_key=ApiKey.BROKER_HEARTBEAT):
    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64(default=0)
    want_fence: bool = boolean(default=False)
    want_shut_down: bool = boolean(default=False)
    offline_log_dirs: list[Uuid] = array("uuid", "1+", default_factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "2+", default=None, nullable="2+", tag=1)


class BrokerHeartbeatResponse(Response, api_key=ApiKey.BROKER_HEARTBEAT):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    is_caught_up: bool = boolean(default=False)
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean(default=False)
