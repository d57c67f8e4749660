"""DescribeTransactions (API 65): shows the state of transactions (KIP-664).

Sent to the coordinator of each transactional id. States: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
CompleteAbort, PrepareEpochFence. An unknown id gets TRANSACTIONAL_ID_NOT_FOUND. ``topics`` are the partitions of the
current transaction; while it ends, those whose marker is still missing. A start time of -1: there never was a
transaction. A request without ids returns nothing: ListTransactions lists the ids.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeTransactionsRequest(Request, api_key=ApiKey.DESCRIBE_TRANSACTIONS):
    transactional_ids: list[str] = array("string", default_factory=list)


class TopicData(Struct):
    topic: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class TransactionState(Struct):
    error_code: int = int16(default=0)
    transactional_id: str = string(default="")
    transaction_state: str = string(default="")
    transaction_timeout_ms: int = int32(default=0)
    transaction_start_time_ms: int = int64(default=0)
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    topics: list[TopicData] = array(TopicData, default_factory=list)


class DescribeTransactionsResponse(Response, api_key=ApiKey.DESCRIBE_TRANSACTIONS):
    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState, default_factory=list)
