"""The partition and offset of a written record."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.topic_partition import TopicPartition

UNKNOWN_PARTITION: Final = -1
"""Means "not chosen yet"."""


class RecordMetadata(NamedTuple):
    """A record's place in its topic, as the broker has confirmed it.

    ``offset`` is -1 if it is unknown: with ``acks=0`` there is no response, and the broker may no longer remember the
    offset of a duplicate batch. ``timestamp_ms`` is the record's own, or the broker's if the topic uses append time.
    Sizes are -1 for a key or value that is None.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the offset is known; with ``acks=0`` it is not."""
        return self.offset != -1

    @property
    def has_timestamp(self) -> bool:
        """Whether the timestamp is known."""
        return self.timestamp_ms != -1

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"
