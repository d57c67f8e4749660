"""Lists offsets of partitions, and deletes records before an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.clients.admin.internals.admin_api_driver import (
    Handler,
    Outcome,
    PartitionLeaders,
    run_keyed,
)
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.clients.common.list_offsets import OffsetToList, list_offsets_request
from barnabas.clients.common.partition_errors import LEADER_MOVED
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import delete_records as delete_api
from barnabas.protocol.messages import list_offsets as list_api
from barnabas.protocol.versions import VersionRange

_NEWEST: Final = 11
_SINCE: Final = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of ListOffsets for each special timestamp."""
_FIRST_ISOLATION: Final = 2


class IsolationLevel(IntEnum):
    """Whether the end is the high watermark, or the last stable offset: before the first open transaction."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Selects an offset of a partition."""

    timestamp: int
    """Milliseconds since 1970; negative values are special."""

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The offset of the first record."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The offset after the last record."""
        return cls(-1)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The offset of the record with the newest timestamp, which need not be the last."""
        return cls(-3)

    @classmethod
    def earliest_local(cls) -> OffsetSpec:
        """The offset of the first record on the broker's own disk."""
        return cls(-4)

    @classmethod
    def latest_tiered(cls) -> OffsetSpec:
        """The offset of the last record in remote storage."""
        return cls(-5)

    @classmethod
    def earliest_pending_upload(cls) -> OffsetSpec:
        """The offset of the first record that is not in remote storage yet."""
        return cls(-6)

    @classmethod
    def for_timestamp(cls, timestamp_ms: int) -> OffsetSpec:
        """The offset of the first record that is not older than this."""
        return cls(timestamp_ms)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The result of an offset lookup."""

    offset: int
    """-1 if there is none: all records are older."""
    timestamp: int
    """The record's timestamp; -1 if the offset was not found by a record."""
    leader_epoch: int | None


async def list_offsets(
    operation: Operation,
    partitions: Mapping[TopicPartition, OffsetSpec],
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patient: bool = True,
    partial: bool = False,
) -> Results[TopicPartition, OffsetAndTimestamp]:
    """Returns an offset of each partition, from its leader.

    Waits for missing topics and leaders, which may be about to appear, unless ``patient`` is false.
    """

    def build(_broker: int, keys: Sequence[TopicPartition]) -> list_api.ListOffsetsRequest:
        rows = [OffsetToList(key, partitions[key].timestamp) for key in keys]
        return list_offsets_request(rows, isolation_level, operation.remaining_ms)

    def read(
        _broker: int, _keys: Sequence[TopicPartition], response: list_api.ListOffsetsResponse
    ) -> Outcome[TopicPartition, OffsetAndTimestamp]:
        outcome: Outcome[TopicPartition, OffsetAndTimestamp] = Outcome()
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if outcome.settle(key, row.error_code, moved=LEADER_MOVED):
                    epoch = None if row.leader_epoch < 0 else row.leader_epoch
                    outcome.completed[key] = OffsetAndTimestamp(row.offset, row.timestamp, epoch)
        return outcome

    # Each special offset has its own request, so that an unsupported one does not fail the others.
    merged: Results[TopicPartition, OffsetAndTimestamp] = Results({})
    by_version: dict[int, list[TopicPartition]] = {}
    for key, spec in partitions.items():
        least = max(_SINCE.get(spec.timestamp, 1), _FIRST_ISOLATION if isolation_level else 1)
        by_version.setdefault(least, []).append(key)
    for least, keys in by_version.items():
        handler = Handler(build, read, PartitionLeaders(patient=patient), allowed_versions=VersionRange(least, _NEWEST))
        found = await run_keyed(operation, keys, handler)
        merged = Results({**merged, **found}, {**merged.errors, **found.errors})
    return merged.checked(partial)


async def delete_records(
    operation: Operation, before: Mapping[TopicPartition, int], *, patient: bool = True, partial: bool = False
) -> Results[TopicPartition, int]:
    """Deletes records before offsets (-1: all); returns the new log start offsets."""

    def build(_broker: int, keys: Sequence[TopicPartition]) -> delete_api.DeleteRecordsRequest:
        topics: dict[str, list[delete_api.DeleteRecordsPartition]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(
                delete_api.DeleteRecordsPartition(partition_index=key.partition, offset=before[key])
            )
        return delete_api.DeleteRecordsRequest(
            topics=[delete_api.DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=operation.remaining_ms,
        )

    def read(
        _broker: int, _keys: Sequence[TopicPartition], response: delete_api.DeleteRecordsResponse
    ) -> Outcome[TopicPartition, int]:
        outcome: Outcome[TopicPartition, int] = Outcome()
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if outcome.settle(key, row.error_code, moved=LEADER_MOVED):
                    outcome.completed[key] = row.low_watermark
        return outcome

    keys: Iterable[TopicPartition] = before
    return (await run_keyed(operation, keys, Handler(build, read, PartitionLeaders(patient=patient)))).checked(partial)
