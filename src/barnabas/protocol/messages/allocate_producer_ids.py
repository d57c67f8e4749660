"""AllocateProducerIds (API 67): a broker takes a block of producer ids from the active controller (KIP-730).

Brokers assign ids in InitProducerId and must never assign an id twice, so the controller allocates them in blocks (1000
ids) and writes a ProducerIdsRecord before it responds. A broker that restarts loses its unused ids; 63 bits are enough
for that. The block is ``producer_id_start`` to ``producer_id_start + producer_id_len - 1``. STALE_BROKER_EPOCH means
that the broker has registered again in the meantime.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, int64
from barnabas.protocol.message import Request, Response


class AllocateProducerIdsRequest(Request, api_key=ApiKey.ALLOCATE_PRODUCER_IDS):
    broker_id: int = int32(default=0)
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Response, api_key=ApiKey.ALLOCATE_PRODUCER_IDS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id_start: int = int64(default=0)
    producer_id_len: int = int32(default=0)
