"""DOC AlterReplicaLogDirs."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class AlterReplicaLogDirTopic(Struct):
    name: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class AlterReplicaLogDir(Struct):
    path: str = string(default="")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, default_factory=list)


class AlterReplicaLogDirsRequest(Request, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, default_factory=list)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string(default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, default_factory=list)


class AlterReplicaLogDirsResponse(Response, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, default_factory=list)
