"""The accumulator's settings."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.records.batch import CompressionType


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """The settings of a producer that concern batches while they wait."""

    batch_size: int = 16_384
    """The size from which a batch is ready to be sent."""
    batch_max_size: int | None = None
    """The size to which a ready batch may grow while it waits to be drained; None: it does not grow."""
    max_request_size: int = 1_048_576
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    compression: CompressionType = CompressionType.NONE
    compression_level: int | None = None
    adaptive_partitioning: bool = True
    partition_availability_timeout_ms: int = 0
    rack: str | None = None
    """The rack to prefer; None: not rack aware."""
