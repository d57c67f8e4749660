"""Consumer errors that have no code in the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.clients.common.errors import CommitFailedError, IllegalStateError
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.common.errors import BarnabasError, InvalidOffsetError, OffsetOutOfRangeError, RetriableError
from barnabas.common.serialization_errors import RecordDeserializationError, SerializationError
from barnabas.common.topic_partition import TopicPartition

__all__ = [
    "CommitFailedError",
    "ConcurrentModificationError",
    "FetchOffsetOutOfRangeError",
    "IllegalStateError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "RecordDeserializationError",
    "RetriableCommitFailedError",
    "SerializationError",
    "WakeupError",
]


class WakeupError(BarnabasError):
    """`KafkaConsumer.wakeup` ended a blocking call."""


class ConcurrentModificationError(BarnabasError, RuntimeError):
    """Two threads used one consumer at the same time. Only `KafkaConsumer.wakeup` is thread-safe."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """There is no committed offset, and ``auto.offset.reset`` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(sorted(map(str, self.partitions)))
        super().__init__(f"Undefined offset with no reset policy for partitions: [{names}]")


class FetchOffsetOutOfRangeError(OffsetOutOfRangeError):
    """A position is before the first or after the last record of its partition, and ``auto.offset.reset`` is none."""

    def __init__(self, offsets: Mapping[TopicPartition, int], detail: str = "") -> None:
        self.offset_out_of_range_partitions = dict(offsets)
        named = ", ".join(f"{partition}={offset}" for partition, offset in sorted(offsets.items()))
        super().__init__(f"{detail or 'Fetch position is out of range'} for partitions: {{{named}}}")


class LogTruncationError(FetchOffsetOutOfRangeError):
    """Records that were read are gone: the log was truncated after an unclean leader election (KIP-320).

    ``divergent_offsets`` holds the offsets up to which the consumer and the log agree, where known.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self.divergent_offsets = dict(divergent_offsets)
        super().__init__(offsets, "Detected log truncation with diverging offsets")


class RetriableCommitFailedError(RetriableError):
    """An offset commit failed with a transient error."""
