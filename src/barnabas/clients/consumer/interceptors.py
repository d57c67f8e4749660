"""Interceptors: plug-ins that see records before the application does, and committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Base class of interceptors. Exceptions of an interceptor are logged and not propagated."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Called once with the settings of the consumer, for an interceptor that was given as a class."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Called before poll() returns; returns the records to return."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after offsets were committed."""

    def close(self) -> None:
        """Called when the consumer closes."""


class ConsumerInterceptors:
    """A chain of interceptors. A failing one is skipped: the next gets the result of the one before it."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                log.exception("Interceptor %r failed in on_consume", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.exception("Interceptor %r failed in on_commit", interceptor)

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("Interceptor %r failed to close", interceptor)
