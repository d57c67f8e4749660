"""DescribeProducers (API 61): shows the producer state that the leader of a partition keeps (KIP-664).

Used to find *hanging transactions*: the coordinator no longer knows the transaction of a producer, but its
``current_txn_start_offset`` still keeps the last stable offset from advancing, so that read-committed consumers are
stuck. Sent to the leader of each partition. -1 means "none" for that offset, the last sequence and the last timestamp.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class TopicRequest(Struct):
    name: str = string(default="")
    partition_indexes: list[int] = array("int32", default_factory=list)


class DescribeProducersRequest(Request, api_key=ApiKey.DESCRIBE_PRODUCERS):
    topics: list[TopicRequest] = array(TopicRequest, default_factory=list)


class ProducerState(Struct):
    """One producer id; ``coordinator_epoch`` is from the last marker written for it."""

    producer_id: int = int64(default=0)
    producer_epoch: int = int32(default=0)
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32(default=0)
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, default_factory=list)


class TopicResponse(Struct):
    name: str = string(default="")
    partitions: list[PartitionResponse] = array(PartitionResponse, default_factory=list)


class DescribeProducersResponse(Response, api_key=ApiKey.DESCRIBE_PRODUCERS):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse, default_factory=list)
