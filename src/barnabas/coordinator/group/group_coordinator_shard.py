"""The groups of one partition of ``__consumer_offsets``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

from barnabas.common.errors import ApiError, Errors, GroupIdNotFoundError, UnknownMemberIdError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.snapshot_registry import LATEST_EPOCH
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group import group_timers
from barnabas.coordinator.group.assignor.partition_assignor import PartitionAssignor
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_group_manager import ClassicGroupManager
from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.classic_members import ClassicMembers
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_manager import ConsumerGroupManager
from barnabas.coordinator.group.consumer.consumer_group_replay import ConsumerGroupReplay
from barnabas.coordinator.group.consumer.describe import describe_consumer_group
from barnabas.coordinator.group.consumer.regex_resolution import RegexResolution, TopicFilter, all_topics_visible
from barnabas.coordinator.group.group import UNKNOWN_MEMBER_ID, GroupProgress, GroupType
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_metrics import REFRESH_INTERVAL_MS, GroupCounts, GroupMetrics
from barnabas.coordinator.group.group_migration import GroupMigration
from barnabas.coordinator.group.group_settings import GroupSettings
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.group.offset_metadata_manager import OffsetMetadataManager, heartbeats_by_commit
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.internal import consumer_groups as group_schema
from barnabas.protocol.internal import consumer_offsets as offset_schema
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.control import ControlRecordType

logger = LimitedLogger(logging.getLogger(__name__))

Replay = Callable[[int, int, Any, Any], None]


class GroupCoordinatorShard:
    """The state machine of one partition: passes requests and records to the responsible managers."""

    def __init__(
        self,
        context: ShardContext,
        config: GroupCoordinatorConfig,
        settings: GroupSettings,
        metrics: GroupMetrics,
        assignors: dict[str, PartitionAssignor],
        topic_filter: TopicFilter = all_topics_visible,
    ) -> None:
        self.partition = context.partition
        self._config = config
        self._timer = context.timer
        self._metrics = metrics
        self.store = store = GroupStore(context.registry, context.clock.milliseconds)
        self._classic = ClassicGroupManager(store, context.timer, config, metrics)
        self._regexes = RegexResolution(
            store, context.executor, config.consumer_regex_refresh_interval_ms, metrics, context.clock, topic_filter
        )
        self._consumer = ConsumerGroupManager(store, context.timer, config, settings, metrics, assignors, self._regexes)
        migration = self._consumer.migration = GroupMigration(store, config, self._classic, self._consumer)
        self._classic_members = ClassicMembers(store, context.timer, self._consumer, migration)
        self.offsets = OffsetMetadataManager(context.registry, store, config, metrics)
        self._replays = self._make_replays()

    # -- classic groups

    def join_group(
        self, context: MemberContext, request: JoinGroupRequest, response_future: Future[JoinGroupResponse]
    ) -> CoordinatorResult[None]:
        group = self.store.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._classic.join(context, request, response_future)
        if not group.is_empty:
            return self._classic_members.join(context, group, request, response_future)
        if request.member_id != UNKNOWN_MEMBER_ID:
            # It is refused, and writes nothing, so it must not remove the group: offsets without a group are invisible.
            return self._classic.join(context, request, response_future)
        records: list[CoordinatorRecord] = []
        group.create_group_tombstone_records(records)
        self.store.remove(request.group_id)
        return self._classic.join(context, request, response_future, records)

    def sync_group(
        self, request: SyncGroupRequest, response_future: Future[SyncGroupResponse]
    ) -> CoordinatorResult[None]:
        group = self._group_with_members(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(group, request, response_future)
        return self._classic.sync(group, request, response_future)

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        group = self._group_with_members(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, request)
        return self._classic.heartbeat(group, request)

    def leave_group(self, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        try:
            group = self.store.group(request.group_id)
        except GroupIdNotFoundError as error:
            raise UnknownMemberIdError(str(error)) from None
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, request)
        return self._classic.leave(group, request)

    def _group_with_members(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = self.store.groups.get(group_id)
        if group is None or group.is_empty:
            raise UnknownMemberIdError(f"Group {group_id} has no members.")
        return group

    # -- consumer groups

    def consumer_group_heartbeat(
        self, context: MemberContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        return self._consumer.heartbeat(context, request)

    # -- offsets

    def commit_offset(
        self, context: MemberContext, request: OffsetCommitRequest
    ) -> CoordinatorResult[OffsetCommitResponse]:
        result = self.offsets.commit(context, request)
        group = self.store.groups.get(request.group_id)
        if isinstance(group, ClassicGroup) and heartbeats_by_commit(group):
            self._classic.reschedule_heartbeat(group, request.member_id)
        return result

    def commit_transactional_offset(
        self, context: MemberContext, request: TxnOffsetCommitRequest
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        return self.offsets.commit_transactional(context, request)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, epoch: int) -> OffsetFetchResponseGroup:
        return self.offsets.fetch(request, epoch, require_stable=False)

    def fetch_stable_offsets(self, request: OffsetFetchRequestGroup) -> CoordinatorResult[OffsetFetchResponseGroup]:
        """Returns the latest offsets; the response waits until they are committed."""
        return CoordinatorResult((), self.offsets.fetch(request, LATEST_EPOCH, require_stable=True))

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        return self.offsets.delete(request)

    # -- administration

    def list_groups(self, states: Collection[str], types: Collection[str], epoch: int) -> list[ListedGroup]:
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {GroupType.parse(name) for name in types}
        listed = []
        for group_id, group in self.store.groups.items_at(epoch):
            state = group.state_at(epoch)
            if wanted_states and state.lower() not in wanted_states:
                continue
            if wanted_types and group.type not in wanted_types:
                continue
            listed.append(
                ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type_at(epoch),
                    group_state=state,
                    group_type=group.type.value,
                )
            )
        return listed

    def progress(self, wanted: Callable[[str], bool], epoch: int) -> list[GroupProgress]:
        """Returns members and committed offsets of the groups whose id `wanted` accepts."""
        return [
            GroupProgress(group_id, group.num_members_at(epoch), self.offsets.committed(group_id, epoch))
            for group_id, group in self.store.groups.items_at(epoch)
            if wanted(group_id)
        ]

    def describe_groups(self, group_ids: Sequence[str], epoch: int) -> list[DescribedGroup]:
        return [self._describe(group_id, epoch) for group_id in group_ids]

    def _describe(self, group_id: str, epoch: int) -> DescribedGroup:
        try:
            group = self.store.classic_group(group_id, epoch)
        except GroupIdNotFoundError as error:
            return DescribedGroup(
                group_id=group_id,
                group_state=ClassicGroupState.DEAD.value,
                error_code=Errors.GROUP_ID_NOT_FOUND,
                error_message=str(error),
            )
        protocol = group.protocol_name if group.is_in_state(ClassicGroupState.STABLE) else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[member.describe(protocol) for member in group.members.values()],
        )

    def describe_consumer_groups(self, group_ids: Sequence[str], epoch: int) -> list[DescribedConsumerGroup]:
        described = []
        for group_id in group_ids:
            if not group_id:
                described.append(DescribedConsumerGroup(group_id=group_id, error_code=Errors.INVALID_GROUP_ID))
                continue
            try:
                group = self.store.consumer_group(group_id, epoch)
            except GroupIdNotFoundError as error:
                described.append(
                    DescribedConsumerGroup(
                        group_id=group_id, error_code=Errors.GROUP_ID_NOT_FOUND, error_message=str(error)
                    )
                )
            else:
                described.append(
                    describe_consumer_group(group, epoch, self._consumer.default_assignor, self.store.image.topics)
                )
        return described

    def delete_groups(self, group_ids: Sequence[str]) -> CoordinatorResult[list[DeletableGroupResult]]:
        records: list[CoordinatorRecord] = []
        results = []
        deleted: set[str] = set()
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                if group_id in deleted:
                    raise GroupIdNotFoundError(f"Group {group_id} not found.")
                group = self.store.group(group_id)
                group.validate_delete_group()
            except ApiError as error:
                result.error_code = Errors.for_exception(error)
                continue
            count = self.offsets.delete_all(group_id, records)
            group.create_group_tombstone_records(records)
            deleted.add(group_id)
            logger.info("Group %s: deleted with %d offsets", group_id, count)
        return CoordinatorResult(records, results)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> CoordinatorResult[None]:
        return CoordinatorResult(self.offsets.on_partitions_deleted(partitions), is_atomic=False)

    # -- expiry

    def _schedule_expiry(self) -> None:
        self._timer.schedule(
            group_timers.EXPIRE_OFFSETS, self._config.offsets_retention_check_interval_ms, self._expire, retry=False
        )

    def _expire(self) -> CoordinatorResult[None]:
        """Removes expired offsets, and groups that have nothing left."""
        self._schedule_expiry()
        return self.cleanup_group_metadata()

    def cleanup_group_metadata(self) -> CoordinatorResult[None]:
        records: list[CoordinatorRecord] = []
        for group_id, group in list(self.store.groups.items()):
            if self.offsets.cleanup_expired_offsets(group_id, records) and group.is_empty:
                group.create_group_tombstone_records(records)
        return CoordinatorResult(records, is_atomic=False)

    # -- the log

    def _make_replays(self) -> dict[type, Replay]:
        consumer, classic = ConsumerGroupReplay(self.store), self._classic
        return {
            offset_schema.OffsetCommitKey: self.offsets.replay,
            offset_schema.LegacyOffsetCommitKey: self._replay_legacy_offset,
            offset_schema.GroupMetadataKey: lambda _at, _producer, key, value: classic.replay(key.group, value),
            group_schema.ConsumerGroupMetadataKey: lambda _at, _producer, key, value: consumer.group(
                key.group_id, value
            ),
            group_schema.ConsumerGroupPartitionMetadataKey: lambda _at, _producer, key, value: (
                consumer.partition_metadata(key.group_id, value is not None)
            ),
            group_schema.ConsumerGroupMemberMetadataKey: lambda _at, _producer, key, value: consumer.member(
                key.group_id, key.member_id, value
            ),
            group_schema.ConsumerGroupTargetAssignmentMetadataKey: lambda _at, _producer, key, value: (
                consumer.target_epoch(key.group_id, value)
            ),
            group_schema.ConsumerGroupTargetAssignmentMemberKey: lambda _at, _producer, key, value: (
                consumer.target_member(key.group_id, key.member_id, value)
            ),
            group_schema.ConsumerGroupCurrentMemberAssignmentKey: lambda _at, _producer, key, value: (
                consumer.current_assignment(key.group_id, key.member_id, value)
            ),
            group_schema.ConsumerGroupRegularExpressionKey: lambda _at, _producer, key, value: (
                consumer.regular_expression(key.group_id, key.regular_expression, value)
            ),
        }

    def _replay_legacy_offset(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Replays records of the first Kafka that stored offsets in a topic."""
        self.offsets.replay(
            offset,
            producer_id,
            offset_schema.OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition),
            None
            if value is None
            else offset_schema.OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            ),
        )

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:  # noqa: ARG002 - the interface
        replay = self._replays.get(type(record.key))
        if replay is None:
            # Records of share and streams groups, which this broker does not serve.
            logger.debug("Ignoring a %s at offset %d", type(record.key).__name__, offset)
            return
        replay(offset, producer_id, record.key, record.value)

    def replay_end_transaction_marker(
        self,
        producer_id: int,
        producer_epoch: int,  # noqa: ARG002 - the interface
        result: ControlRecordType,
    ) -> None:
        self.offsets.replay_end_transaction_marker(producer_id, result)

    # -- loading and metadata

    def on_loaded(self, image: MetadataImage) -> None:
        self.store.image = image
        self._regexes.last_image_with_new_topics = image.offset
        for group in list(self.store.groups.values()):
            if isinstance(group, ClassicGroup):
                self._classic.on_loaded(group)
            else:
                self._consumer.on_loaded(group)
        self._schedule_expiry()
        self._metrics.publish(self.partition.partition, self.counts())
        self._schedule_counting()

    def on_unloaded(self) -> None:
        self._metrics.withdraw(self.partition.partition)
        for group in list(self.store.groups.values()):
            if isinstance(group, ClassicGroup):
                self._classic.on_unloaded(group)

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.store.image = image
        topics = delta.topics
        if topics is None:
            return
        names = {one.name for one in topics.changed_topics.values()}
        for topic_id in topics.deleted_topic_ids:
            before = topics.image.topic_by_id(topic_id)
            if before is not None:
                names.add(before.name)
        if any(topics.image.topic(name) is None or image.topics.topic(name) is None for name in names):
            self._regexes.last_image_with_new_topics = image.offset
        for name in names:
            for group_id in self.store.groups_subscribed_to(name):
                group = self.store.groups.get(group_id)
                if isinstance(group, ConsumerGroup):
                    group.request_metadata_refresh()

    # -- metrics

    def _schedule_counting(self) -> None:
        if self._metrics.are_read:
            self._timer.schedule(group_timers.REFRESH_METRICS, REFRESH_INTERVAL_MS, self._count_again, retry=False)

    def _count_again(self) -> CoordinatorResult[None]:
        self._schedule_counting()
        self._metrics.publish(self.partition.partition, self.counts())
        return CoordinatorResult(())

    def counts(self) -> GroupCounts:
        """Returns the current counts."""
        groups = Counter((group.type, group.state_at(LATEST_EPOCH)) for group in self.store.groups.values())
        return GroupCounts(groups, self.offsets.num_offsets)
