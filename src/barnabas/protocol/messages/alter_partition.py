"""DOC AlterPartition."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, int64, uuid
from barnabas.protocol.message import Request, Response, Struct


class BrokerState(Struct):
    broker_id: int = int32("3+", default=0)
    broker_epoch: int = int64("3+", default=-1)


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    new_isr: list[int] = array("int32", "0-2", default_factory=list)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+", default_factory=list)
    leader_recovery_state: int = int8("1+", default=0)
    partition_epoch: int = int32(default=0)


class RequestTopicData(Struct):
    topic_id: Uuid = uuid("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class AlterPartitionRequest(Request, api_key=ApiKey.ALTER_PARTITION):
    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    isr: list[int] = array("int32", default_factory=list)
    leader_recovery_state: int = int8("1+", default=0, ignorable=True)
    partition_epoch: int = int32(default=0)


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class AlterPartitionResponse(Response, api_key=ApiKey.ALTER_PARTITION):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
