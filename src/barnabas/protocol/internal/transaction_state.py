"""DOC transaction_state."""

from __future__ import annotations

from barnabas.protocol.fields import array, int8, int16, int32, int64, string
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class TransactionLogKey(CoordinatorKey, record_type=0, versions="0"):
    transactional_id: str = string("0", default="")


class PartitionsSchema(Struct):
    topic: str = string(default="")
    partition_ids: list[int] = array("int32", default_factory=list)


class TransactionLogValue(CoordinatorValue, record_type=0, versions="0-1", flexible="1+"):
    producer_id: int = int64(default=0)
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16(default=0)
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32(default=0)
    transaction_status: int = int8(default=0)
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, default_factory=list, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64(default=0)
    transaction_start_timestamp_ms: int = int64(default=0)
    client_transaction_version: int = int16("1+", default=0, tag=2)
