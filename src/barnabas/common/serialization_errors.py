"""Errors of serializers and deserializers."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError
from barnabas.common.topic_partition import TopicPartition


class SerializationError(BarnabasError):
    """A key or a value could not be serialized or deserialized."""


class RecordDeserializationError(SerializationError):
    """A deserializer failed. The position stays before the record: seek past it to continue (KIP-334)."""

    def __init__(self, partition: TopicPartition, offset: int, what: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"Error deserializing {what} for partition {partition} at offset {offset}. If needed, please seek past the "
            "record to continue consumption."
        )
