"""AlterReplicaLogDirs (API 34): moves replicas between the log directories of one broker (KIP-113).

Sent to the broker that owns the directories; it is not forwarded and does not affect other brokers. The broker builds a
*future* replica in the other directory, lets it catch up with the current one and swaps the two; the response only says
that the move has begun, DescribeLogDirs shows its progress. REPLICA_NOT_AVAILABLE means that the broker has no such
replica yet: it keeps the path for when the replica is created.

Versions: v1 client-side throttling (KIP-219); v2 flexible.
"""

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
