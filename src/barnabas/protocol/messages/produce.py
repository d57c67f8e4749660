"""DOC Produce."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, records, string, struct, uuid
from barnabas.protocol.message import Buffer, Request, Response, Struct


class PartitionProduceData(Struct):
    index: int = int32(default=0)
    records: Buffer | None = records(default=None, nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, default_factory=list)


class ProduceRequest(Request, api_key=ApiKey.PRODUCE):
    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16(default=0)
    timeout_ms: int = int32(default=0)
    topic_data: list[TopicProduceData] = array(TopicProduceData, default_factory=list)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32(default=0)
    error_code: int = int16(default=0)
    base_offset: int = int64(default=0)
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", default_factory=list, ignorable=True
    )
    error_message: str | None = string("8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", default=None, tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, default_factory=list)


class NodeEndpoint(Struct):
    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", default=None, nullable="10+")


class ProduceResponse(Response, api_key=ApiKey.PRODUCE):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, default_factory=list)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default_factory=list, tag=0)
