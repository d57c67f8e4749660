"""DeleteRecords (API 21): advances the log start offset, so that older records are no longer readable.

Sent to the leader of each partition. ``offset`` becomes the first readable offset; -1 means the high watermark, that
is, all committed records. Nothing past the high watermark can be deleted (OFFSET_OUT_OF_RANGE), nor from a topic that
is only compacted (POLICY_VIOLATION). The disk is freed later, segment by segment.

The request waits until all live replicas have advanced theirs; ``low_watermark`` is the lowest log start offset among
them, -1 on an error. Kafka Streams uses it to trim its repartition topics.

Versions: v1 client-side throttling (KIP-219); v2 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class DeleteRecordsPartition(Struct):
    partition_index: int = int32(default=0)
    offset: int = int64(default=0)


class DeleteRecordsTopic(Struct):
    name: str = string(default="")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, default_factory=list)


class DeleteRecordsRequest(Request, api_key=ApiKey.DELETE_RECORDS):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, default_factory=list)
    timeout_ms: int = int32(default=0)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32(default=0)
    low_watermark: int = int64(default=0)
    error_code: int = int16(default=0)


class DeleteRecordsTopicResult(Struct):
    name: str = string(default="")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, default_factory=list)


class DeleteRecordsResponse(Response, api_key=ApiKey.DELETE_RECORDS):
    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, default_factory=list)
