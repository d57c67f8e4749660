"""EndTxn (API 26): commits or aborts a producer's transaction.

Sent by the producer to its transaction coordinator. The coordinator appends PrepareCommit or PrepareAbort to
``__transaction_state``: that append *is* the decision, and the response is sent as soon as the append is committed.
Markers are written to the partitions afterwards (WriteTxnMarkers), so consumers may see the records a moment after the
producer gets the response, and a new transaction that starts meanwhile may get CONCURRENT_TRANSACTIONS.

Repeating it with the same outcome is safe; the opposite outcome is refused with INVALID_TXN_STATE. So after a
connection timeout the producer sends it again and never has to guess. PRODUCER_FENCED: another producer with the same
transactional id has taken over, or the transaction exceeded ``transaction.timeout.ms`` and was aborted.

From v5 on, every end of a transaction raises the producer's epoch, and the response carries the id and epoch to use
next (a new id when the epochs are used up; -1 with an error). A record of an old transaction that arrives late then has
an old epoch and is refused. Up to v4 the epoch does not change, and such a record would become part of the *next*
transaction.

Versions: v1 client-side throttling (KIP-219); v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5
new epoch with every transaction (both KIP-890).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response


class EndTxnRequest(Request, api_key=ApiKey.END_TXN):
    transactional_id: str = string(default="")
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    committed: bool = boolean(default=False)


class EndTxnResponse(Response, api_key=ApiKey.END_TXN):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
