"""ListOffsets requests, as every client makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
_CONSUMER: Final = -1


class OffsetToList(NamedTuple):
    """A partition, and the timestamp whose offset to look up: milliseconds, or one of the special values."""

    partition: TopicPartition
    timestamp: int
    current_leader_epoch: int | None = None


def list_offsets_request(rows: Iterable[OffsetToList], isolation_level: int, timeout_ms: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, number), timestamp, epoch in rows:
        topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=number, current_leader_epoch=-1 if epoch is None else epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=isolation_level, topics=list(topics.values()), timeout_ms=timeout_ms
    )
