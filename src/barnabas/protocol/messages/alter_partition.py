"""AlterPartition (API 56): a partition leader asks the controller to change the in-sync replicas.

Only the leader knows which replicas keep up, but the ISR is cluster metadata, so the leader proposes and the controller
decides. Until the response arrives, the leader uses the *larger* of the old and the proposed ISR when it advances the
high watermark: a replica that might be in the ISR must never lack a committed record.

Two epochs fence a delayed request: ``leader_epoch`` (FENCED_LEADER_EPOCH) and ``partition_epoch``, which rises with
every change to the partition (INVALID_UPDATE_VERSION: the leader's state is outdated; wait for new metadata).
INELIGIBLE_REPLICA means that a proposed member is fenced or shutting down; NEW_LEADER_ELECTED that the change was made
*and* the sender lost its leadership, as happens when a reassignment completes. ``leader_recovery_state`` is 1 after an
unclean election until the new leader has repaired its log.

Versions: v2 topic ids, INELIGIBLE_REPLICA (KIP-841); v3 the ISR carries each broker's epoch, so that a broker which
crashed, restarted empty and re-registered cannot enter the ISR again (KIP-903).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, int64, uuid
from barnabas.protocol.message import Request, Response, Struct


class BrokerState(Struct):
    """A proposed member of the ISR; epoch -1 skips the check."""

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
