"""BrokerHeartbeat (API 63): a broker tells the active controller that it is alive, and learns its state.

Sent every ``broker.heartbeat.interval.ms`` (2 s). A broker that sends none for ``broker.session.timeout.ms`` (9 s) is
*fenced*: it leads no partition, is removed from every ISR that has another member, and clients no longer see it. The
same request drives the whole life cycle of a broker:

- **Starting.** It registers fenced and keeps ``want_fence`` set while it recovers its logs. The controller unfences it
  once the flag is cleared and ``current_metadata_offset`` has reached the broker's own registration (``is_caught_up``),
  so no client is sent to a broker that does not know the topics yet.
- **Stopping.** With ``want_shut_down`` the controller moves leadership away; the broker keeps sending heartbeats until
  the response has ``should_shut_down`` set.

``is_fenced`` defaults to true. STALE_BROKER_EPOCH means that this incarnation is no longer the registered one.

Versions: v1 failed log directories (KIP-858); v2 cordoned log directories, which get no new replicas; null until the
broker has determined them (KIP-1066).
"""

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
