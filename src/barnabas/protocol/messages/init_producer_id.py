"""DOC InitProducerId."""

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
