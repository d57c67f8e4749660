"""Produce (API 0): appends record batches to partitions.

Sent to the leader of the partitions. Each partition gets **exactly one batch** of format v2, which the broker validates
and appends unchanged except for offset, leader epoch and, if the topic uses it, append time. ``acks`` says what to wait
for:

- 0: nothing, and there is *no response at all*; on an error the broker can only close the connection
- 1: the leader's append
- -1: all replicas in sync, for at most ``timeout_ms`` (REQUEST_TIMED_OUT: the append may still succeed). With fewer of
  them than ``min.insync.replicas`` the response is NOT_ENOUGH_REPLICAS, or NOT_ENOUGH_REPLICAS_AFTER_APPEND when the
  records are in the log already

Each partition has its own error. ``base_offset`` is the offset of its first record, -1 on an error.
``log_append_time_ms`` is -1 unless the topic uses append time. ``record_errors`` lists the records because of which the
whole batch was refused.

The batch header has the fields for idempotence: producer id, epoch, base sequence. For a batch that the broker already
has (it remembers the last five per producer and partition), it returns the original offset without an error.
OUT_OF_ORDER_SEQUENCE_NUMBER: there is a gap. INVALID_PRODUCER_EPOCH: a newer producer has taken over, or the
transaction has ended. ``transactional_id`` (null: not transactional) is used for authorization, one per request.

NOT_LEADER_OR_FOLLOWER: refresh metadata and retry; ``current_leader`` and ``node_endpoints`` may save the round trip.
The client should pause for the throttle time; the broker mutes the connection for as long.

Versions: v3 batch format v2, transactional id; v4 KAFKA_STORAGE_ERROR (KIP-112); v5 log start offset; v6 client-side
throttling (KIP-219); v7 zstd (UNSUPPORTED_COMPRESSION_TYPE before, KIP-110); v8 record errors and message (KIP-467);
v9 flexible; v10 new leader in the response (KIP-951); v11 TRANSACTION_ABORTABLE; v12 in a transaction of version 2 the
partition is added to it implicitly, without AddPartitionsToTxn (both KIP-890); v13 topic ids, UNKNOWN_TOPIC_ID
(KIP-516). v0 to v2 are advertised though not served, see ``ApiKey.advertised_versions``.
"""

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
    """A refused record, by its index in the batch."""

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
    """The endpoint of a broker named in a ``current_leader``."""

    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", default=None, nullable="10+")


class ProduceResponse(Response, api_key=ApiKey.PRODUCE):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, default_factory=list)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default_factory=list, tag=0)
