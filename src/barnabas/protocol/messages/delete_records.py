"""DOC DeleteRecords."""

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
