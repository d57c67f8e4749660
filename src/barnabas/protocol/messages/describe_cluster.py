"""DescribeCluster (API 60): lists the nodes of the cluster (KIP-700).

A smaller alternative to Metadata for administrators. A broker lists the brokers; a controller, with ``endpoint_type``
2, the controllers (KIP-919). A wrong type is refused with MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE. A
controller returns the raft leader as ``controller_id``. A broker returns some live broker, because clients cannot reach
controllers and any broker forwards. ``cluster_authorized_operations`` is a bit set over ACL operation codes,
-2147483648 if not requested.

Versions: v1 endpoint types (KIP-919); v2 fenced brokers on request (KIP-1073).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeClusterRequest(Request, api_key=ApiKey.DESCRIBE_CLUSTER):
    include_cluster_authorized_operations: bool = boolean(default=False)
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = int32(default=0)
    host: str = string(default="")
    port: int = int32(default=0)
    rack: str | None = string(default=None, nullable="0+")
    is_fenced: bool = boolean("2+", default=False)


class DescribeClusterResponse(Response, api_key=ApiKey.DESCRIBE_CLUSTER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string(default="")
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, default_factory=list)
    cluster_authorized_operations: int = int32(default=-2147483648)
