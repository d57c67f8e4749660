"""A consumer's position in a partition."""

from __future__ import annotations

from operator import length_hint
from typing import Final, NamedTuple

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node


class LeaderAndEpoch(NamedTuple):
    """The known leader of a partition, and its epoch."""

    leader: Node | None = None
    epoch: int | None = None


NO_LEADER_OR_EPOCH: Final = LeaderAndEpoch()


class FetchPosition(NamedTuple):
    """The offset to read next, the epoch of the record before it, and the leader to read it from."""

    offset: int
    offset_epoch: int | None = None
    current_leader: LeaderAndEpoch = NO_LEADER_OR_EPOCH


class LogTruncation(NamedTuple):
    """A truncated log: the position, and the offset up to which consumer and leader agree, if known."""

    partition: TopicPartition
    position: FetchPosition
    divergent_offset: OffsetAndMetadata | None


class RecordsInHand:
    """Records that an application iterates over: collected, but yielded one at a time.

    The consumer's own position is behind all of them, so that the next fetch is already in flight. `commit` and
    `position` use what the application has *consumed*: a loop that commits after each record must not commit records
    that it has not seen. The progress is read from the list's iterator, so that yielding a record has no extra cost.
    """

    __slots__ = ("_records", "iterator", "leader", "partition")

    def __init__(self, partition: TopicPartition, records: list[ConsumerRecord], leader: LeaderAndEpoch) -> None:
        self.partition = partition
        self.leader = leader
        self._records = records
        self.iterator = iter(records)

    def position(self) -> FetchPosition | None:
        """The position of the next record to yield; None when there is none left."""
        left = length_hint(self.iterator)
        if not left:
            return None
        records = self._records
        epoch = records[-left - 1].leader_epoch if left < len(records) else records[-left].leader_epoch
        return FetchPosition(records[-left].offset, epoch, self.leader)

    def take(self) -> list[ConsumerRecord]:
        """Removes and returns the remaining records."""
        left = list(self.iterator)
        self._records.clear()
        return left

    def drop(self) -> None:
        self._records.clear()
