"""A record passed to the producer, which interceptors see and may replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record before serialization of its key and value. It is immutable, its headers included; an interceptor makes
    another one with ``dataclasses.replace``."""

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        check_record(self.partition, self.timestamp_ms)


def check_topic(topic: Any) -> None:
    """Raises `TypeError` or `ValueError` for a topic that no request can name.

    Metadata would request it again and again, and none of these requests could be sent."""
    if not isinstance(topic, str):
        raise TypeError(f"A topic must be a str, not {type(topic).__name__}")
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise ValueError(f"Invalid topic: {topic!r} cannot be encoded as UTF-8.") from None


def check_record(partition: int | None, timestamp_ms: int | None) -> None:
    """Raises `ValueError` for a negative partition or timestamp."""
    if timestamp_ms is not None and timestamp_ms < 0:
        raise ValueError(f"Invalid timestamp: {timestamp_ms}. Timestamp should always be non-negative.")
    if partition is not None and partition < 0:
        raise ValueError(f"Invalid partition: {partition}. Partition number should always be non-negative or None.")
