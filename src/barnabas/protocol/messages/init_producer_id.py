"""InitProducerId (API 22): gives a producer its identity, and fences its predecessors.

*Without* a transactional id (null) any broker responds at once: a fresh producer id, epoch 0. That is all an idempotent
producer needs. *With* one, the request goes to the transaction coordinator and makes the sender the only producer of
this id. The coordinator raises the epoch, so that everything the predecessor still sends is refused (PRODUCER_FENCED,
INVALID_PRODUCER_EPOCH). If the predecessor left a transaction open, it is aborted first, and the caller gets
CONCURRENT_TRANSACTIONS until that is done: retry. Once the request succeeds, every earlier transaction is decided; so a
restarted application may safely read its offsets.

``producer_id`` and ``producer_epoch`` are -1 in the first call. A producer that wants to continue after an error passes
its current ones and gets the next epoch, unless another producer has taken over meanwhile (KIP-360). When the epochs of
an id run out, a new id follows. ``transaction_timeout_ms`` above ``transaction.max.timeout.ms`` is
INVALID_TRANSACTION_TIMEOUT.

Versions: v1 client-side throttling (KIP-219); v2 flexible; v3 continue with an existing id and epoch (KIP-360); v4
PRODUCER_FENCED (KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890); v6, not stable yet, two-phase commit: ``enable2_pc``
lifts the timeout, ``keep_prepared_txn`` keeps the open transaction instead of aborting it, and the response names its
id and epoch, -1 if there is none (KIP-939).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response


class InitProducerIdRequest(Request, api_key=ApiKey.INIT_PRODUCER_ID):
    transactional_id: str | None = string(default="", nullable="0+")
    transaction_timeout_ms: int = int32(default=0)
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Response, api_key=ApiKey.INIT_PRODUCER_ID):
    throttle_time_ms: int = int32(default=0, ignorable=True)
    error_code: int = int16(default=0)
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=0)
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
