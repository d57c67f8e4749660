"""What tests of groups share: a coordinator on a bench, and clients that speak to it without a network."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.java_hash import partition_for
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.assignor.partition_assignor import PartitionAssignor
from barnabas.coordinator.group.assignor.range_assignor import RangeAssignor
from barnabas.coordinator.group.assignor.uniform_assignor import UniformAssignor
from barnabas.coordinator.group.consumer.regex_resolution import TopicFilter, all_topics_visible
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_settings import GroupSettings
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.protocol.internal.topics import CONSUMER_OFFSETS
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.records.control import ControlRecordType
from coordinator_fixtures import InMemoryWriter, RuntimeBench
from unit.metadata.samples import broker, delta_of, metadata_version, provenance, topic, uid

SERDE = CoordinatorRecordSerde(CONSUMER_OFFSETS)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
LATEST_JOIN = 9


def subscription(
    topics: Iterable[str], owned: dict[str, Sequence[int]] | None = None, version: int = 3, generation: int = -1
) -> bytes:
    """What a classic consumer says when it joins."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=name, partitions=list(numbers))
            for name, numbers in (owned or {}).items()
        ],
        generation_id=generation,
    )
    return struct.pack(">h", version) + message.encode(version)


@dataclass
class GroupBox:
    """A group coordinator with one partition, on a bench."""

    config: dict[str, Any] = field(default_factory=dict)
    writer: InMemoryWriter | None = None
    clock: MockClock | None = None
    image: MetadataImage = EMPTY_IMAGE
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    topic_filter: TopicFilter = all_topics_visible
    num_partitions: int = 1
    metrics: GroupMetrics = field(default_factory=GroupMetrics)

    def __post_init__(self) -> None:
        settings = {
            "classic_initial_rebalance_delay_ms": 0,
            "consumer_assignment_interval_ms": 0,
            "offsets_topic_num_partitions": self.num_partitions,
            **self.config,
        }
        config = GroupCoordinatorConfig(**settings)
        assignors: list[PartitionAssignor] = [UniformAssignor(), RangeAssignor()]
        by_name = {assignor.name: assignor for assignor in assignors}
        group_settings = GroupSettings(config, lambda group_id: self.overrides.get(group_id, {}))
        self.bench: RuntimeBench[GroupCoordinatorShard] = RuntimeBench(
            lambda context: GroupCoordinatorShard(
                context, config, group_settings, self.metrics, by_name, self.topic_filter
            ),
            SERDE,
            writer=self.writer,
            clock=self.clock,
        )
        self.service = GroupCoordinatorService(config, self.bench.runtime, self.metrics, assignors)
        self.service.startup()
        if self.image is not EMPTY_IMAGE:
            self.bench.runtime.on_new_metadata_image(self.image, delta_of([], EMPTY_IMAGE))
        for number in range(self.num_partitions):
            self.bench.load(self.partition(number))

    @staticmethod
    def partition(number: int = 0) -> TopicPartition:
        return TopicPartition("__consumer_offsets", number)

    def restarted(self) -> GroupBox:
        """Another broker that finds the same log: what is in memory is gone."""
        return GroupBox(
            self.config,
            self.bench.writer,
            self.bench.clock,
            self.image,
            self.overrides,
            self.topic_filter,
            self.num_partitions,
            self.metrics,
        )

    # -- metadata

    def create_topic(self, name: str, partitions: int, topic_id: Uuid | None = None) -> Uuid:
        made = uid(1000 + len(self.image.topics.by_id)) if topic_id is None else topic_id
        records = list(topic(name, made, partitions))
        if self.image is EMPTY_IMAGE:
            records = [metadata_version(), broker(1), *records]
        self.learn(records)
        return made

    def learn(self, records: Iterable[Any]) -> None:
        delta = delta_of(records, self.image)
        self.image = delta.apply(provenance(self.image.offset + 1))
        self.bench.runtime.on_new_metadata_image(self.image, delta)

    # -- time and state

    def advance(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)

    def shard(self, number: int = 0) -> GroupCoordinatorShard:
        return self.bench.runtime.schedule_read_operation(
            "look", self.partition(number), lambda shard, _: shard
        ).result(0)

    def group(self, group_id: str = "g") -> Any:
        return self.shard(partition_for(group_id, self.num_partitions)).store.groups[group_id]

    def state(self, group_id: str = "g") -> str:
        state: str = self.group(group_id).state_at((1 << 63) - 1)
        return state

    def records(self, number: int = 0) -> list[CoordinatorRecord]:
        return self.bench.records(self.partition(number))

    # -- classic groups

    def join(
        self,
        member_id: str = "",
        group_id: str = "g",
        *,
        topics: Sequence[str] = ("t",),
        protocols: Sequence[tuple[str, bytes]] | None = None,
        instance_id: str | None = None,
        version: int = LATEST_JOIN,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        client_id: str = "client",
        owned: dict[str, Sequence[int]] | None = None,
    ) -> Future[JoinGroupResponse]:
        given = [("range", subscription(topics, owned))] if protocols is None else protocols
        return self.service.join_group(
            MemberContext(client_id, "/127.0.0.1", version),
            JoinGroupRequest(
                group_id=group_id,
                member_id=member_id,
                group_instance_id=instance_id,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in given],
            ),
        )

    def new_member(self, group_id: str = "g", **options: Any) -> tuple[str, Future[JoinGroupResponse]]:
        """Joins in two steps, as clients do."""
        if options.get("instance_id") is not None:
            future = self.join(group_id=group_id, **options)
            return "", future
        first = self.join(group_id=group_id, **options).result(0)
        assert first.error_code == Errors.MEMBER_ID_REQUIRED, Errors.for_code(first.error_code)
        return first.member_id, self.join(first.member_id, group_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        group_id: str = "g",
        **fields: Any,
    ) -> Future[SyncGroupResponse]:
        return self.service.sync_group(
            SyncGroupRequest(
                group_id=group_id,
                member_id=member_id,
                generation_id=generation,
                assignments=[
                    SyncGroupRequestAssignment(member_id=one, assignment=assignment)
                    for one, assignment in (assignments or {}).items()
                ],
                **fields,
            )
        )

    def heartbeat(self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None) -> Errors:
        request = HeartbeatRequest(
            group_id=group_id, member_id=member_id, generation_id=generation, group_instance_id=instance_id
        )
        return Errors.for_code(self.service.heartbeat(request).result(0).error_code)

    def leave(self, member_id: str, group_id: str = "g", instance_id: str | None = None) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=group_id, members=[MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
        )
        return self.service.leave_group(request).result(0)

    def stable_group(
        self, size: int = 1, group_id: str = "g", assignment: bytes = b"assigned", **options: Any
    ) -> list[str]:
        """A classic group that has been through its first rebalances; the ids of its members, the leader first."""
        members: list[str] = []
        for _ in range(size):
            _, future = self.new_member(group_id, **options)
            others = [(member_id, self.join(member_id, group_id, **options)) for member_id in members]
            self.advance(0)
            if not future.done():
                self.advance(1)
            joined = future.result(0)
            members.append(joined.member_id)
            leader = joined.leader
            for _member_id, other in others:
                other.result(0)
            given = dict.fromkeys(members, assignment)
            syncs = [
                self.sync(one, joined.generation_id, given if one == leader else None, group_id) for one in members
            ]
            for sync in syncs:
                assert sync.result(0).error_code == 0
        assert self.state(group_id) == "Stable"
        return members

    # -- consumer groups

    def consumer_heartbeat(
        self,
        member_id: str = "m1",
        epoch: int = 0,
        group_id: str = "g",
        *,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Mapping[Uuid, Sequence[int]] | None = None,
        version: int = 1,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        if epoch == 0:
            fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
            owned = {} if owned is None else owned
            if topics is None and regex is None:
                topics = ("t",)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            topic_partitions=(
                None
                if owned is None
                else [TopicPartitions(topic_id=one, partitions=list(numbers)) for one, numbers in owned.items()]
            ),
            **fields,
        )
        context = MemberContext("client", "/127.0.0.1", version)
        return self.service.consumer_group_heartbeat(context, request).result(0)

    # -- offsets

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        group_id: str = "g",
        member_id: str = "",
        generation: int = -1,
        *,
        version: int = 9,
        metadata: str | None = "",
        **fields: Any,
    ) -> dict[tuple[str, int], Errors]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, number), offset in offsets.items():
            entry = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
            entry.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=list(topics.values()),
            **fields,
        )
        context = MemberContext("client", "/127.0.0.1", version)
        return errors_of(self.service.commit_offsets(context, request).result(0))

    def fetch(
        self,
        partitions: Sequence[tuple[str, int]] | None = None,
        group_id: str = "g",
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> OffsetFetchResponseGroup:
        topics = None
        if partitions is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[number]) for name, number in partitions]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=topics, member_id=member_id, member_epoch=epoch)
        return self.service.fetch_offsets(request, require_stable=require_stable).result(0)

    def offsets(self, group_id: str = "g", **options: Any) -> dict[tuple[str, int], int]:
        return {
            (entry.name, one.partition_index): one.committed_offset
            for entry in self.fetch(None, group_id, **options).topics
            for one in entry.partitions
        }

    def end_transaction(self, producer_id: int, result: ControlRecordType, epoch: int = 0) -> None:
        end = TransactionEnd(producer_id, epoch, 0, result, 2)
        self.service.complete_transaction(self.partition(), end).result(0)


def errors_of(response: OffsetCommitResponse) -> dict[tuple[str, int], Errors]:
    return {
        (entry.name, one.partition_index): Errors.for_code(one.error_code)
        for entry in response.topics
        for one in entry.partitions
    }


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[Uuid, list[int]] | None:
    """What a heartbeat gave to a member; None for "as before"."""
    if response.assignment is None:
        return None
    return {entry.topic_id: entry.partitions for entry in response.assignment.topic_partitions}
