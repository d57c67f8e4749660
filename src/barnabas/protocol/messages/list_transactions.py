"""ListTransactions (API 66): lists the transactional ids that one broker coordinates (KIP-664).

Each coordinator knows its own ids only; an administrator asks every broker. All filters have to match, and an empty one
matches everything. Unknown state names are returned in ``unknown_state_filters`` and match nothing. Ids that the caller
may not describe are omitted.

Versions: v1 ``duration_filter``: only transactions that have run longer than this many milliseconds, negative for all
(KIP-994); v2 ``transactional_id_pattern``, a RE2/J pattern, INVALID_REGULAR_EXPRESSION (KIP-1152).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class ListTransactionsRequest(Request, api_key=ApiKey.LIST_TRANSACTIONS):
    state_filters: list[str] = array("string", default_factory=list)
    producer_id_filters: list[int] = array("int64", default_factory=list)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")


class TransactionState(Struct):
    transactional_id: str = string(default="")
    producer_id: int = int64(default=0)
    transaction_state: str = string(default="")


class ListTransactionsResponse(Response, api_key=ApiKey.LIST_TRANSACTIONS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    unknown_state_filters: list[str] = array("string", default_factory=list)
    transaction_states: list[TransactionState] = array(TransactionState, default_factory=list)
