"""AssignReplicasToDirs (API 73): a broker reports in which log directory its replicas live (KIP-858).

Sent to the controller when the directory of a replica differs from the metadata: after the broker picked a directory
for a new replica, or moved one. With several disks per broker the controller must know which replicas a failed
directory takes offline, and the broker must not serve a replica whose directory the cluster does not know. Directories
are the UUIDs from their ``meta.properties``, not paths. Each partition has its own error; a top-level error, such as
STALE_BROKER_EPOCH, applies to the whole request.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, uuid
from barnabas.protocol.message import Request, Response, Struct


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)


class RequestTopicData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class RequestDirectoryData(Struct):
    id: Uuid = uuid(default=ZERO_UUID)
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)


class AssignReplicasToDirsRequest(Request, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS):
    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=-1)
    directories: list[RequestDirectoryData] = array(RequestDirectoryData, default_factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class ResponseDirectoryData(Struct):
    id: Uuid = uuid(default=ZERO_UUID)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)


class AssignReplicasToDirsResponse(Response, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    directories: list[ResponseDirectoryData] = array(ResponseDirectoryData, default_factory=list)
