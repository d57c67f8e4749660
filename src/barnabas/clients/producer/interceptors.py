"""Interceptors: plug-ins that see every record before it is sent, and its outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.clients.producer.producer_record import ProducerRecord
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class ProducerInterceptor:
    """Base class of interceptors. Exceptions of an interceptor are logged and not propagated."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Called once with the settings of the producer, for an interceptor that was given as a class."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before serialization, on the sending thread; returns the record to send."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when the outcome is known, mostly on the I/O thread."""

    def close(self) -> None: ...


class ProducerInterceptors:
    """A chain of interceptors. A failing one is skipped: the next gets the result of the one before it."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                log.exception("Interceptor %r failed in on_send, for a record of topic %s", interceptor, record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                log.exception("Interceptor %r failed in on_acknowledgement", interceptor)

    def on_send_error(self, partition: TopicPartition, error: Exception) -> None:
        """Reports a record that failed before it reached the accumulator."""
        self.on_acknowledgement(RecordMetadata(*partition, -1, -1, -1, -1), error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("Interceptor %r failed in close", interceptor)
