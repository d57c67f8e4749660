"""TxnOffsetCommit (API 28): commits a consumer's offsets as part of a producer's transaction.

Consume-transform-produce relies on it: the offsets take effect if and only if the output does. The *producer* sends it
to the *group* coordinator, which writes the offsets to ``__consumer_offsets`` as transactional records. They stay
pending until the transaction's marker arrives, and meanwhile OffsetFetch with ``require_stable`` reports
UNSTABLE_OFFSET_COMMIT. Before v5 the producer has to send AddOffsetsToTxn to the transaction coordinator first.

Two fences: producer id and epoch stop a zombie producer (INVALID_PRODUCER_EPOCH), and since v3 member id and generation
stop a producer whose partitions were assigned to another member (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID), which is what allows one producer per process instead of one per partition (KIP-447). -1 and an
empty id skip the second check.

Versions: v1 client-side throttling (KIP-219); v2 leader epoch (KIP-320); v3 flexible, group membership (KIP-447); v4
TRANSACTION_ABORTABLE; v5 adds the partition to a transaction of version 2 implicitly (both KIP-890); v6 topic ids
instead of names, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH, UNKNOWN_TOPIC_ID (KIP-1319).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32(default=0)
    committed_offset: int = int64(default=0)
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(default="", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0-5", default="", ignorable=True)
    topic_id: Uuid = uuid("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, default_factory=list)


class TxnOffsetCommitRequest(Request, api_key=ApiKey.TXN_OFFSET_COMMIT):
    transactional_id: str = string(default="")
    group_id: str = string(default="")
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, default_factory=list)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5", default="", ignorable=True)
    topic_id: Uuid = uuid("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition, default_factory=list)


class TxnOffsetCommitResponse(Response, api_key=ApiKey.TXN_OFFSET_COMMIT):
    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, default_factory=list)
