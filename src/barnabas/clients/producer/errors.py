"""Producer errors that have no code in the protocol."""

from __future__ import annotations

from barnabas.clients.common.errors import CommitFailedError, IllegalStateError, SerializationError
from barnabas.common.errors import ApiError, BarnabasError, KafkaTimeoutError

__all__ = [
    "BufferExhaustedError",
    "CommitFailedError",
    "IllegalStateError",
    "ProducerClosedError",
    "SerializationError",
    "TransactionAbortedError",
    "TransactionError",
]


class ProducerClosedError(BarnabasError):
    """The producer was closed before the record was sent."""


class BufferExhaustedError(KafkaTimeoutError):
    """There was no memory for a record within the time that a send may block."""


class TransactionAbortedError(ApiError):
    """The transaction that the record belonged to was aborted before the record was sent."""


class TransactionError(BarnabasError):
    """The producer is in an error state; the cause says why."""
