"""BrokerHeartbeat (API 63): a broker tells the active controller that it lives, and learns what it may do.

Sent every ``broker.heartbeat.interval.ms`` (2 s). A broker that stays silent for ``broker.session.timeout.ms`` (9 s)
is *fenced*: it leads nothing, drops out of every ISR that has another member, and clients no longer see it. The same
request drives the whole life of a broker:

- **Starting.** It registers fenced and keeps ``want_fence`` set while it recovers its logs. The controller unfences
  it once the flag is gone and ``current_metadata_offset`` has reached the broker's own registration
  (``is_caught_up``), so nobody is directed to a broker that has not heard of the topics.
- **Stopping.** With ``want_shut_down`` the controller moves leadership away; the broker keeps heartbeating until
  ``should_shut_down`` says that it may go.

``is_fenced`` defaults to true: silence is not permission. STALE_BROKER_EPOCH means that this incarnation is not the
registered one any more.

Versions: v1 failed log directories (KIP-858); v2 cordoned log directories, which get no new replicas; null until the
broker has got far enough to know them (KIP-1066).
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
