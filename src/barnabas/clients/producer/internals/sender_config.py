"""The settings of the producer's I/O thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """The settings of `Sender`."""

    acks: int = -1
    retries: int = 2**31 - 1
    max_request_size: int = 1_048_576
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    max_block_ms: int = 60_000
    """How long a producer that is closed waits for its open transaction to be aborted."""
    guarantee_message_order: bool = False
    """Whether partitions are muted while a batch is in flight: for ``max.in.flight.requests.per.connection=1``."""
