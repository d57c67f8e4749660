"""AddOffsetsToTxn (API 25): adds a consumer group's offsets to a transaction.

A transactional producer sends it to its transaction coordinator before the first TxnOffsetCommit for a group. The
coordinator computes which partition of ``__consumer_offsets`` holds the group and adds that partition to the
transaction, as AddPartitionsToTxn does for data partitions, so that EndTxn writes a marker there too. This request
carries no offsets; they go to the *group* coordinator, in TxnOffsetCommit.

A producer on transaction version 2 never sends it: TxnOffsetCommit v5 adds the partition implicitly.

Versions: v1 client-side throttling (KIP-219); v2 a fenced producer gets PRODUCER_FENCED, not INVALID_PRODUCER_EPOCH
(KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, int64, string
from barnabas.protocol.message import Request, Response


class AddOffsetsToTxnRequest(Request, api_key=ApiKey.ADD_OFFSETS_TO_TXN):
    transactional_id: str = string(default="")
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    group_id: str = string(default="")


class AddOffsetsToTxnResponse(Response, api_key=ApiKey.ADD_OFFSETS_TO_TXN):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
