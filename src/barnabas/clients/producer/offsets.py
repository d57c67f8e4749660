"""Offsets of a consumer group, as a producer commits them in a transaction."""

from __future__ import annotations

from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata

__all__ = ["ConsumerGroupMetadata", "OffsetAndMetadata"]
