"""BrokerRegistration (API 62): registers a broker process with the cluster (KIP-631).

Sent to the active controller once per process start, before any heartbeat. The response carries the *broker epoch*, the
offset of the RegisterBrokerRecord in the metadata log. Every later request of the broker to the controller carries this
epoch, which fences the requests that an earlier incarnation still has in flight. The broker starts fenced;
BrokerHeartbeat unfences it.

``incarnation_id`` is random per process. While one incarnation is alive, another with the same id is refused with
DUPLICATE_BROKER_REGISTRATION, which after a crash means: wait for the old session to expire and retry.
INCONSISTENT_CLUSTER_ID: the disks of the broker belong to another cluster. UNSUPPORTED_VERSION: the broker does not
support a feature level in force. An epoch of -1: not registered.

Versions: v1 ``is_migrating_zk_broker``, a leftover that must be false; v2 ids of the log directories (KIP-858); v3
``previous_broker_epoch``, read from the clean-shutdown file: if it is the broker's last epoch, the broker lost no data
and may stay an eligible leader (KIP-966); -1 after a crash; v4 features whose lowest version is 0 (KAFKA-17011).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string, uint16, uuid
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


class BrokerRegistrationRequest(Request, api_key=ApiKey.BROKER_REGISTRATION):
    broker_id: int = int32(default=0)
    cluster_id: str = string(default="")
    incarnation_id: Uuid = uuid(default=ZERO_UUID)
    listeners: list[Listener] = array(Listener, default_factory=list)
    features: list[Feature] = array(Feature, default_factory=list)
    rack: str | None = string(default="", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+", default=False)
    log_dirs: list[Uuid] = array("uuid", "2+", default_factory=list, ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=ApiKey.BROKER_REGISTRATION):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    broker_epoch: int = int64(default=-1)
