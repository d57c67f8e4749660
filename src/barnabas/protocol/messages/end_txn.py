"""DOC EndTxn."""

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
