"""Committed offsets: commit, fetch, delete, expire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from barnabas.common.errors import (
    Errors,
    GroupIdNotFoundError,
    IllegalGenerationError,
    StaleMemberEpochError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.snapshot_registry import LATEST_EPOCH, SnapshotRegistry, TimelineHashMap, TimelineHashSet
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_store import AnyGroup, GroupStore
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.group.offset_and_metadata import OffsetAndMetadata
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.internal.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.records.control import ControlRecordType

INVALID_OFFSET: Final = -1
NO_RETENTION: Final = -1
"""The retention time of a commit that uses the broker's setting."""
_NEVER_MS: Final = 2**63 - 1
"""The maximum time of a record. In Kafka a larger one overflows, and the offset expires at once."""

GROUP_NOT_FOUND_SINCE: Final = 9
"""The first version of OffsetCommit whose clients understand GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""
TXN_GROUP_NOT_FOUND_SINCE: Final = 6
"""The first such version of TxnOffsetCommit."""

GroupOffsets = TimelineHashMap[TopicPartition, OffsetAndMetadata]

AnyCommit: TypeAlias = OffsetCommitRequest | TxnOffsetCommitRequest


class Offsets:
    """Offsets by group and partition."""

    __slots__ = ("_registry", "by_group")

    def __init__(self, registry: SnapshotRegistry, *, nested: bool = False) -> None:
        self._registry = registry
        self.by_group: TimelineHashMap[str, GroupOffsets] = TimelineHashMap(registry, nested=nested)

    def get(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        offsets = self.by_group.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def put(self, group_id: str, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is None:
            offsets = self.by_group[group_id] = TimelineHashMap(self._registry, nested=True)
        offsets[partition] = offset

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None:
            offsets.pop(partition)
            if not len(offsets):
                self.by_group.pop(group_id)


class OffsetMetadataManager:
    """The offsets of all groups of a partition.

    **Transactions.** Offsets that a producer commits within a transaction are *pending* until the transaction ends:
    they are stored by producer, and not visible. The end is a marker in this partition's log, which makes pending
    offsets committed, or drops them. If another commit for the same partition happens meanwhile, the later record in
    the log wins. A fetch of stable offsets gets an error for a partition with pending ones, and retries.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        store: GroupStore,
        config: GroupCoordinatorConfig,
        metrics: GroupMetrics,
    ) -> None:
        self._registry = registry
        self._store = store
        self._config = config
        self._metrics = metrics
        self._offsets = Offsets(registry)
        self._pending: TimelineHashMap[int, Offsets] = TimelineHashMap(registry)
        """By producer ID."""
        self._open_transactions: TimelineHashMap[str, TimelineHashSet[int]] = TimelineHashMap(registry)
        """Producer IDs by group."""

    @property
    def num_offsets(self) -> int:
        return sum(map(len, self._offsets.by_group.values()))

    # -- OffsetCommit

    def commit(self, context: MemberContext, request: OffsetCommitRequest) -> CoordinatorResult[OffsetCommitResponse]:
        """Commits offsets. The topics of the request have names, whatever its version."""
        group = self._group_for_commit(context, request, GROUP_NOT_FOUND_SINCE, is_transactional=False)
        now_ms = self._store.now_ms()
        expires_ms = (
            None if request.retention_time_ms == NO_RETENTION else min(now_ms + request.retention_time_ms, _NEVER_MS)
        )
        records, errors = self._written(request, group, now_ms, expires_ms)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=number, error_code=error) for number, error in found
                ],
            )
            for topic, found in zip(request.topics, errors, strict=True)
        ]
        return CoordinatorResult(records, OffsetCommitResponse(topics=topics))

    def commit_transactional(
        self, context: MemberContext, request: TxnOffsetCommitRequest
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """Commits offsets within the producer's transaction. Older clients do not know STALE_MEMBER_EPOCH."""
        try:
            return self._commit_transactional(context, request)
        except StaleMemberEpochError:
            if context.api_version >= TXN_GROUP_NOT_FOUND_SINCE:
                raise
            raise IllegalGenerationError from None

    def _commit_transactional(
        self, context: MemberContext, request: TxnOffsetCommitRequest
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        group = self._group_for_commit(context, request, TXN_GROUP_NOT_FOUND_SINCE, is_transactional=True)
        records, errors = self._written(request, group, self._store.now_ms(), None)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=number, error_code=error)
                    for number, error in found
                ],
            )
            for topic, found in zip(request.topics, errors, strict=True)
        ]
        return CoordinatorResult(records, TxnOffsetCommitResponse(topics=topics))

    def _group_for_commit(
        self, context: MemberContext, request: AnyCommit, not_found_since: int, *, is_transactional: bool
    ) -> AnyGroup:
        """Returns the group after its checks; creates one for a client that is not a member of any.

        Clients know GROUP_ID_NOT_FOUND from version ``not_found_since`` on.
        """
        epoch = request.generation_id_or_member_epoch
        group: AnyGroup
        try:
            group = self._store.group(request.group_id)
        except GroupIdNotFoundError:
            if epoch >= 0:
                if context.api_version >= not_found_since:
                    raise
                raise IllegalGenerationError from None
            group = self._store.get_or_create_classic_group(request.group_id)
        group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            epoch,
            is_transactional=is_transactional,
            api_version=context.api_version,
        )
        return group

    def _written(
        self, request: AnyCommit, group: AnyGroup, now_ms: int, expires_ms: int | None
    ) -> tuple[list[CoordinatorRecord], list[list[tuple[int, Errors]]]]:
        """Returns the records of a commit, and the error of each partition by topic."""
        records: list[CoordinatorRecord] = []
        epoch = request.generation_id_or_member_epoch
        errors = []
        for topic in request.topics:
            found = []
            for partition in topic.partitions:
                error = self._write_offset(
                    records, group, request.member_id, epoch, topic.name, topic.topic_id, partition, now_ms, expires_ms
                )
                found.append((partition.partition_index, error))
            errors.append(found)
        if records:
            self._metrics.offset_commits.record(len(records))
        return records, errors

    def _write_offset(
        self,
        records: list[CoordinatorRecord],
        group: AnyGroup,
        member_id: str,
        epoch: int,
        topic: str,
        topic_id: Uuid,
        partition: Any,
        now_ms: int,
        expires_ms: int | None,
    ) -> Errors:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._config.offset_metadata_max_size:
            return Errors.OFFSET_METADATA_TOO_LARGE
        number = partition.partition_index
        if isinstance(group, ConsumerGroup):
            group.validate_partition_commit(member_id, epoch, topic_id, topic, number, self._store.image.topics)
        records.append(
            group_records.offset_commit(
                group.group_id,
                topic,
                number,
                OffsetAndMetadata(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expires_ms,
                    topic_id,
                ),
            )
        )
        return Errors.NONE

    # -- OffsetFetch

    def fetch(self, request: OffsetFetchRequestGroup, epoch: int, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Returns committed offsets of a group, for the requested partitions or for all.

        `epoch` is the committed state to read. With `require_stable` it is the latest state, and the caller waits until
        it is committed.
        """
        group_id = request.group_id
        try:
            self._store.group(group_id, epoch).validate_offset_fetch(request.member_id, request.member_epoch, epoch)
            offsets = self._offsets.by_group.get(group_id, epoch)
        except GroupIdNotFoundError:
            # An unknown group has no offsets. That is not an error, because its first member sends this request, too.
            offsets = None
        unstable = self._partitions_with_pending_offsets(group_id) if require_stable else frozenset()
        response = OffsetFetchResponseGroup(group_id=group_id)
        if request.topics is None:
            response.topics = self._all_offsets(offsets, epoch, unstable)
            return response
        for topic in request.topics:
            partitions = []
            for number in topic.partition_indexes:
                key = TopicPartition(topic.name, number)
                found = None if offsets is None else offsets.get(key, epoch)
                if found is not None and _is_of_another_topic(found.topic_id, topic.topic_id):
                    found = None
                partitions.append(_fetched(number, found, key in unstable))
            response.topics.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return response

    def committed(self, group_id: str, epoch: int) -> dict[TopicPartition, int]:
        """Returns all committed offsets of a group."""
        offsets = self._offsets.by_group.get(group_id, epoch)
        return {} if offsets is None else {key: found.committed_offset for key, found in offsets.items_at(epoch)}

    def _all_offsets(
        self, offsets: GroupOffsets | None, epoch: int, unstable: frozenset[TopicPartition]
    ) -> list[OffsetFetchResponseTopics]:
        if offsets is None:
            return []
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for (name, number), found in offsets.items_at(epoch):
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = OffsetFetchResponseTopics(name=name)
            topic.partitions.append(_fetched(number, found, (name, number) in unstable))
        return list(topics.values())

    def _partitions_with_pending_offsets(self, group_id: str) -> frozenset[TopicPartition]:
        producers = self._open_transactions.get(group_id)
        if producers is None:
            return frozenset()
        found: set[TopicPartition] = set()
        for producer_id in producers:
            offsets = self._pending.get(producer_id)
            group_offsets = None if offsets is None else offsets.by_group.get(group_id)
            if group_offsets is not None:
                found.update(group_offsets)
        return frozenset(found)

    def has_pending_transactional_offsets(self, group_id: str, partition: TopicPartition) -> bool:
        producers = self._open_transactions.get(group_id)
        if producers is None:
            return False
        return any(
            offsets is not None and offsets.get(group_id, partition) is not None
            for offsets in map(self._pending.get, producers)
        )

    # -- deleting

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        group = self._store.group(request.group_id)
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to_topic(topic.name)
            error = Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE
            partitions = []
            for partition in topic.partitions:
                number = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=number, error_code=error))
                key = TopicPartition(topic.name, number)
                if not subscribed and (
                    self._offsets.get(request.group_id, key) is not None
                    or self.has_pending_transactional_offsets(request.group_id, key)
                ):
                    records.append(group_records.offset_commit_tombstone(request.group_id, *key))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        self._metrics.offset_deletions.record(len(records))
        return CoordinatorResult(records, OffsetDeleteResponse(topics=topics))

    def delete_all(self, group_id: str, records: list[CoordinatorRecord]) -> int:
        """Deletes all offsets of a group; returns their number."""
        doomed = dict.fromkeys(self._offsets.by_group.get(group_id) or ())
        doomed.update(dict.fromkeys(self._partitions_with_pending_offsets(group_id)))
        records.extend(group_records.offset_commit_tombstone(group_id, *partition) for partition in doomed)
        return len(doomed)

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> list[CoordinatorRecord]:
        """Deletes offsets of deleted partitions, or a later topic of the same name would get them."""
        gone = set(partitions)
        doomed: dict[tuple[str, TopicPartition], None] = {}
        for offsets in (self._offsets, *self._pending.values()):
            for group_id, group_offsets in offsets.by_group.items():
                few, many = (gone, group_offsets) if len(gone) < len(group_offsets) else (group_offsets, gone)
                doomed.update({(group_id, partition): None for partition in few if partition in many})
        return [group_records.offset_commit_tombstone(group_id, *partition) for group_id, partition in doomed]

    def cleanup_expired_offsets(self, group_id: str, records: list[CoordinatorRecord]) -> bool:
        """Removes expired offsets; returns whether the group has none left."""
        offsets = self._offsets.by_group.get(group_id)
        if offsets is None:
            return group_id not in self._open_transactions
        group = self._store.group(group_id)
        condition = group.offset_expiration_condition
        if condition is None:
            return False
        now_ms, retention_ms = self._store.now_ms(), self._config.offsets_retention_ms
        expired = 0
        for partition, offset in offsets.items():
            if (
                condition.is_expired(offset, now_ms, retention_ms)
                and not group.is_subscribed_to_topic(partition.topic)
                and not self.has_pending_transactional_offsets(group_id, partition)
            ):
                records.append(group_records.offset_commit_tombstone(group_id, *partition))
                expired += 1
        if expired:
            self._metrics.offset_expirations.record(expired)
        return expired == len(offsets) and group_id not in self._open_transactions

    # -- the log

    def replay(self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        group_id, partition = key.group, TopicPartition(key.topic, key.partition)
        if value is None:
            self._offsets.remove(group_id, partition)
            for open_producer_id in list(self._open_transactions.get(group_id) or ()):
                pending = self._pending.get(open_producer_id)
                if pending is not None:
                    pending.remove(group_id, partition)
            return
        if group_id not in self._store.groups:
            # Offsets without a group: a client only commits.
            self._store.get_or_create_classic_group(group_id)
        committed = OffsetAndMetadata.from_record(offset, value)
        if producer_id < 0:
            self._offsets.put(group_id, partition, committed)
            return
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = self._pending[producer_id] = Offsets(self._registry, nested=True)
        pending.put(group_id, partition, committed)
        producers = self._open_transactions.get(group_id)
        if producers is None:
            producers = self._open_transactions[group_id] = TimelineHashSet(self._registry, nested=True)
        producers.add(producer_id)

    def replay_end_transaction_marker(self, producer_id: int, result: ControlRecordType) -> None:
        pending = self._pending.pop(producer_id)
        if pending is None:
            return
        for group_id in [one for one, producers in self._open_transactions.items() if producer_id in producers]:
            producers = self._open_transactions[group_id]
            producers.discard(producer_id)
            if not len(producers):
                self._open_transactions.pop(group_id)
        if result is not ControlRecordType.COMMIT:
            return
        for group_id, offsets in pending.by_group.items():
            for partition, offset in offsets.items():
                existing = self._offsets.get(group_id, partition)
                if existing is None or offset.record_offset > existing.record_offset:
                    self._offsets.put(group_id, partition, offset)

    def snapshot(self) -> dict[str, Any]:
        """Returns everything as ordinary dictionaries, for tests of a replay."""
        return {
            "offsets": {group_id: dict(offsets.items()) for group_id, offsets in self._offsets.by_group.items()},
            "pending": {
                producer_id: {group_id: dict(offsets.items()) for group_id, offsets in pending.by_group.items()}
                for producer_id, pending in self._pending.items()
            },
            "open": {group_id: set(producers) for group_id, producers in self._open_transactions.items()},
        }


def heartbeats_by_commit(group: AnyGroup) -> bool:
    """Returns whether a commit to this group counts as a heartbeat of its member."""
    return isinstance(group, ClassicGroup) and group.state in {
        ClassicGroupState.STABLE,
        ClassicGroupState.PREPARING_REBALANCE,
    }


def _is_of_another_topic(committed: Uuid, asked: Uuid) -> bool:
    """Returns whether an offset belongs to a deleted topic of the same name."""
    return ZERO_UUID not in (committed, asked) and committed != asked


def _fetched(number: int, found: OffsetAndMetadata | None, unstable: bool) -> OffsetFetchResponsePartitions:
    if unstable:
        return OffsetFetchResponsePartitions(
            partition_index=number,
            committed_offset=INVALID_OFFSET,
            error_code=Errors.UNSTABLE_OFFSET_COMMIT,
        )
    if found is None:
        return OffsetFetchResponsePartitions(partition_index=number, committed_offset=INVALID_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


__all__ = ["LATEST_EPOCH", "OffsetMetadataManager", "Offsets", "heartbeats_by_commit"]
