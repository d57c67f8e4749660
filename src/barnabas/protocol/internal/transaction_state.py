"""The records of ``__transaction_state``: the state of transaction coordinators.

A compacted topic of 50 partitions. The hash of a transactional id picks its partition; the leader of that partition is
its coordinator, and a new leader replays the partition. The key is the transactional id. The newest value replaces all
earlier ones, and a tombstone removes an id that has been idle for ``transactional.id.expiration.ms``.

Appending a value *is* the state transition: a transaction is committed as soon as its PrepareCommit is replicated. A
new coordinator that finds PrepareCommit or PrepareAbort sends the markers again.
"""

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
    """The state of one transactional id, as a whole.

    ``transaction_status``: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete
    abort, 6 dead, 7 prepare epoch fence. The partitions are null in state 0.

    Versions: v1 flexible; as tagged fields, the producer ids before and after a change of id, so that a retried
    EndTxn is recognized, and the client's transaction version (KIP-890).
    """

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
