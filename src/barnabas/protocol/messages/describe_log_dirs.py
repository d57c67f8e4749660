"""DescribeLogDirs (API 35): shows the contents of the log directories of one broker (KIP-113).

Each broker responds for its own disks. ``topics`` null means all. ``offset_lag`` is how far the log is behind the high
watermark; for a *future* replica (``is_future_key``, being built by AlterReplicaLogDirs) how far it is behind the
current one, so it reaches 0 when the move is about to finish. A directory that has failed reports KAFKA_STORAGE_ERROR.
Sizes exclude tiered storage.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 top-level error, so that "not authorized" no longer
looks like "no directories"; v4 size of the volume and free space, -1 unknown (KIP-827); v5 ``is_cordoned``
(KIP-1066).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class DescribableLogDirTopic(Struct):
    topic: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class DescribeLogDirsRequest(Request, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, default_factory=list, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32(default=0)
    partition_size: int = int64(default=0)
    offset_lag: int = int64(default=0)
    is_future_key: bool = boolean(default=False)


class DescribeLogDirsTopic(Struct):
    name: str = string(default="")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, default_factory=list)


class DescribeLogDirsResult(Struct):
    error_code: int = int16(default=0)
    log_dir: str = string(default="")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, default_factory=list)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, default_factory=list)
