"""Committed offsets and lag of groups, and changing offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.clients.admin.groups import MemberDescription, describe_groups
from barnabas.clients.admin.internals.admin_api_driver import (
    GROUP_MOVED,
    Coordinators,
    CoordinatorType,
    Handler,
    Outcome,
    error_of,
    run_keyed,
)
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.offsets import OffsetSpec, list_offsets
from barnabas.clients.admin.results import Results
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.common.errors import ApiError, Errors, UnknownServerError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import offset_commit as commit_api
from barnabas.protocol.messages import offset_delete as delete_api
from barnabas.protocol.messages import offset_fetch as fetch_api
from barnabas.protocol.versions import VersionRange

_FETCH_BY_NAME: Final = VersionRange(8, 9)
"""Several groups in one request, and topics by name: an admin client need not know their ids."""
_COMMIT_BY_NAME: Final = VersionRange(2, 9)
_NOT_YET: Final = frozenset({Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.REBALANCE_IN_PROGRESS})


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None if the group has no committed offset there."""
    end_offset: int | None
    """None if it is unknown: the partition has no leader, or is gone."""
    member: MemberDescription | None
    """The member that reads it now."""

    @property
    def lag(self) -> int | None:
        """The records between the offset and the end; None if one of them is unknown."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed.offset, 0)


async def list_group_offsets(
    operation: Operation,
    groups: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
    partial: bool = False,
) -> Results[str, dict[TopicPartition, OffsetAndMetadata | None]]:
    """Returns the committed offsets of groups: of some partitions, or of all that have one.

    A requested partition without an offset has None. ``require_stable`` waits for the offsets of open transactions.
    """
    if isinstance(groups, str):
        groups = [groups]
    wanted: dict[str, list[TopicPartition] | None] = (
        {group: None if partitions is None else list(partitions) for group, partitions in groups.items()}
        if isinstance(groups, Mapping)
        else dict.fromkeys(groups)
    )

    def build(_broker: int, keys: Sequence[str]) -> fetch_api.OffsetFetchRequest:
        return fetch_api.OffsetFetchRequest(
            groups=[fetch_api.OffsetFetchRequestGroup(group_id=key, topics=_fetch_topics(wanted[key])) for key in keys],
            require_stable=require_stable,
        )

    def read(
        _broker: int, _keys: Sequence[str], response: fetch_api.OffsetFetchResponse
    ) -> Outcome[str, dict[TopicPartition, OffsetAndMetadata | None]]:
        outcome: Outcome[str, dict[TopicPartition, OffsetAndMetadata | None]] = Outcome()
        for group in response.groups:
            if not outcome.settle(group.group_id, group.error_code, moved=GROUP_MOVED):
                continue
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            for topic in group.topics:
                for row in topic.partitions:
                    if not outcome.settle(group.group_id, row.error_code):
                        continue
                    epoch = row.committed_leader_epoch
                    found[TopicPartition(topic.name, row.partition_index)] = (
                        OffsetAndMetadata(row.committed_offset, row.metadata or "", None if epoch < 0 else epoch)
                        if row.committed_offset >= 0
                        else None
                    )
            if group.group_id not in outcome.reasons and group.group_id not in outcome.failed:
                outcome.completed[group.group_id] = found
        return outcome

    handler = Handler(build, read, Coordinators(CoordinatorType.GROUP), allowed_versions=_FETCH_BY_NAME)
    return (await run_keyed(operation, wanted, handler)).checked(partial)


def _fetch_topics(partitions: list[TopicPartition] | None) -> list[fetch_api.OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [
        fetch_api.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Groups partition numbers by topic, as in requests."""
    grouped: dict[str, list[int]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition.partition)
    return grouped


async def alter_group_offsets(
    operation: Operation,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    *,
    partial: bool = False,
) -> Results[TopicPartition, None]:
    """Sets the committed offsets of a group without members."""
    wanted = {
        partition: OffsetAndMetadata(value) if isinstance(value, int) else value for partition, value in offsets.items()
    }

    def build(_broker: int, _keys: Sequence[str]) -> commit_api.OffsetCommitRequest:
        return commit_api.OffsetCommitRequest(
            group_id=group_id,
            topics=[
                commit_api.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_committed(index, wanted[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in by_topic(wanted).items()
            ],
        )

    def read(
        _broker: int, _keys: Sequence[str], response: commit_api.OffsetCommitResponse
    ) -> Outcome[str, Results[TopicPartition, None]]:
        rows = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        return _for_group(group_id, list(wanted), rows)

    handler = Handler(build, read, Coordinators(CoordinatorType.GROUP), allowed_versions=_COMMIT_BY_NAME)
    return (await run_keyed(operation, [group_id], handler)).checked()[group_id].checked(partial)


def _committed(index: int, value: OffsetAndMetadata) -> commit_api.OffsetCommitRequestPartition:
    epoch = value.leader_epoch
    return commit_api.OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=-1 if epoch is None else epoch,
        committed_metadata=value.metadata,
    )


def _for_group(
    group_id: str, asked: list[TopicPartition], rows: Mapping[TopicPartition, int]
) -> Outcome[str, Results[TopicPartition, None]]:
    """Returns the outcome for a group from a response about its partitions. Coordinator errors concern all of them;
    others, such as a missing partition, only one."""
    outcome: Outcome[str, Results[TopicPartition, None]] = Outcome()
    failed: dict[TopicPartition, ApiError] = {}
    for partition in asked:
        code = rows.get(partition)
        if code in GROUP_MOVED:
            outcome.settle(group_id, code, moved=GROUP_MOVED)
            return outcome
        if code in _NOT_YET:
            outcome.reasons[group_id] = Errors.for_code(code).to_exception() or UnknownServerError()
            return outcome
        error = UnknownServerError(f"The response does not include {partition}.") if code is None else error_of(code)
        if error is not None:
            failed[partition] = error
    outcome.completed[group_id] = Results({one: None for one in asked if one not in failed}, failed)
    return outcome


async def delete_group_offsets(
    operation: Operation, group_id: str, partitions: Iterable[TopicPartition], *, partial: bool = False
) -> Results[TopicPartition, None]:
    """Deletes the committed offsets of partitions; not of topics that the group is subscribed to."""
    wanted = list(dict.fromkeys(partitions))

    def build(_broker: int, _keys: Sequence[str]) -> delete_api.OffsetDeleteRequest:
        return delete_api.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                delete_api.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[delete_api.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for topic, indexes in by_topic(wanted).items()
            ],
        )

    def read(
        _broker: int, _keys: Sequence[str], response: delete_api.OffsetDeleteResponse
    ) -> Outcome[str, Results[TopicPartition, None]]:
        outcome: Outcome[str, Results[TopicPartition, None]] = Outcome()
        if not outcome.settle(group_id, response.error_code, moved=GROUP_MOVED):
            return outcome
        rows = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        return _for_group(group_id, wanted, rows)

    handler = Handler(build, read, Coordinators(CoordinatorType.GROUP))
    return (await run_keyed(operation, [group_id], handler)).checked()[group_id].checked(partial)


async def describe_group_lag(operation: Operation, group_id: str) -> dict[TopicPartition, PartitionLag]:
    """Returns the lag of a group in each partition that has an offset or is being read.

    The lag is not stored: it is the difference of two values that are requested one after the other, from the
    coordinator and from the leaders. So for an active group it is slightly stale.
    """
    described = (await describe_groups(operation, [group_id]))[group_id]
    committed = (await list_group_offsets(operation, [group_id]))[group_id]
    readers = {partition: member for member in described.members for partition in member.assignment}
    wanted = sorted(committed.keys() | readers.keys())
    ends = await list_offsets(operation, dict.fromkeys(wanted, OffsetSpec.latest()), patient=False, partial=True)
    return {
        partition: PartitionLag(
            partition,
            committed.get(partition),
            ends[partition].offset if partition in ends else None,
            readers.get(partition),
        )
        for partition in wanted
    }
