"""A record on its way into the producer: what interceptors see and may replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """Key and value are what the application gave, before serialization. A record cannot be changed, its headers
    included; an interceptor that wants another one makes it with ``dataclasses.replace``."""

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        if self.timestamp_ms is not None and self.timestamp_ms < 0:
            raise ValueError(f"Invalid timestamp: {self.timestamp_ms}. Timestamp should always be non-negative.")
        if self.partition is not None and self.partition < 0:
            raise ValueError(
                f"Invalid partition: {self.partition}. Partition number should always be non-negative or None."
            )
