"""What can go wrong in a producer that has no code on the wire."""

from __future__ import annotations

from barnabas.common.errors import ApiError, BarnabasError, KafkaTimeoutError


class IllegalStateError(BarnabasError, RuntimeError):
    """A method was called that makes no sense now: the producer is closed, or there is no transaction."""


class SerializationError(BarnabasError):
    """A key or a value could not be made into bytes."""


class ProducerClosedError(BarnabasError):
    """The producer was closed before the record was sent."""


class BufferExhaustedError(KafkaTimeoutError):
    """There was no memory for a record within the time that a send may block."""


class TransactionAbortedError(ApiError):
    """The transaction that the record belonged to was aborted before the record was sent."""


class CommitFailedError(BarnabasError):
    """Offsets could not be committed, because the group has moved on without this member."""


class TransactionError(BarnabasError):
    """The producer is in an error state; the cause says why."""
