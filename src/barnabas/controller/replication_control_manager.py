"""Topics and partitions: their state, and how records change it.

Separate modules validate each kind of request and generate its records:
:mod:`~barnabas.controller.topic_creation`, :mod:`~barnabas.controller.topic_deletion`,
:mod:`~barnabas.controller.isr_changes`, :mod:`~barnabas.controller.leader_elections`,
:mod:`~barnabas.controller.reassignments`, :mod:`~barnabas.controller.broker_lifecycle`,
:mod:`~barnabas.controller.replica_directories`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from barnabas.common.errors import UnknownTopicIdError, UnknownTopicOrPartitionError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap, TimelineHashSet
from barnabas.common.topic_names import collision_key, has_collision_characters
from barnabas.controller.cluster_control_manager import ClusterControlManager
from barnabas.controller.configuration_control_manager import ConfigurationControlManager
from barnabas.controller.feature_control_manager import FeatureControlManager
from barnabas.controller.partition_change_builder import PartitionChangeBuilder
from barnabas.controller.partition_index import PartitionIndex, TopicIdPartition
from barnabas.metadata.directory_id import is_reserved
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.partition_registration import NO_LEADER, PartitionRegistration
from barnabas.protocol.internal.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

log = logging.getLogger(__name__)


class TopicControlInfo:
    """A topic and its partitions, numbered consecutively from 0."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: Uuid, registry: SnapshotRegistry) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: TimelineHashMap[int, PartitionRegistration] = TimelineHashMap(registry, nested=True)

    def __repr__(self) -> str:
        return f"TopicControlInfo({self.name!r}, {uuid_to_string(self.id)}, {len(self.partitions)} partitions)"


class ReplicationControlManager:
    """Holds all topics and partitions, and indexes that find the partitions affected by a change of a broker.

    Only replaying records changes the state, so a standby that reads the log has the same state.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        features: FeatureControlManager,
        cluster: ClusterControlManager,
        configs: ConfigurationControlManager,
    ) -> None:
        self._registry = registry
        self.features = features
        self.cluster = cluster
        self.configs = configs
        self._topics: TimelineHashMap[Uuid, TopicControlInfo] = TimelineHashMap(registry)
        self._topics_by_name: TimelineHashMap[str, Uuid] = TimelineHashMap(registry)
        self._collisions: TimelineHashMap[str, TimelineHashSet[str]] = TimelineHashMap(registry)
        """Topic names with periods or underscores, by their form in metrics."""
        self.leaders: PartitionIndex[int] = PartitionIndex(registry)
        """Partitions by leader; partitions without a leader are under NO_LEADER."""
        self.isr_members: PartitionIndex[int] = PartitionIndex(registry)
        self.elr_members: PartitionIndex[int] = PartitionIndex(registry)
        self.directories: PartitionIndex[Uuid] = PartitionIndex(registry)
        self.reassigning: TimelineHashSet[TopicIdPartition] = TimelineHashSet(registry)
        self.imbalanced: TimelineHashSet[TopicIdPartition] = TimelineHashSet(registry)
        """Partitions whose leader is not the preferred (first) replica."""
        self.on_unclean_election: Callable[[], None] = lambda: None
        """Called when the new leader of a replayed change may lack records: it was in neither ISR nor ELR."""

    # -- looking up

    @property
    def topics(self) -> Mapping[Uuid, TopicControlInfo]:
        return self._topics.present

    @property
    def topic_ids(self) -> Mapping[str, Uuid]:
        return self._topics_by_name.present

    def topic(self, topic_id: Uuid) -> TopicControlInfo | None:
        return self._topics.get(topic_id)

    def topic_named(self, name: str) -> TopicControlInfo | None:
        topic_id = self._topics_by_name.get(name)
        return None if topic_id is None else self._topics.get(topic_id)

    def partition(self, topic_id: Uuid, partition: int) -> PartitionRegistration | None:
        topic = self._topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def existing_topic(self, name: str) -> TopicControlInfo:
        topic = self.topic_named(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic {name!r} does not exist.")
        return topic

    def existing_partition(self, topic: TopicControlInfo, partition: int) -> PartitionRegistration:
        found = topic.partitions.get(partition)
        if found is None:
            raise UnknownTopicOrPartitionError(f"Topic {topic.name!r} has no partition {partition}.")
        return found

    def colliding_topic(self, name: str) -> str | None:
        """Returns a topic whose name would look the same as `name` in metrics."""
        if has_collision_characters(name):
            for other in self._collisions.get(collision_key(name)) or ():
                if other != name:
                    return other
        return None

    def find_topic_ids(self, names: Iterable[str], epoch: int) -> dict[str, Uuid | UnknownTopicOrPartitionError]:
        return {
            name: self._topics_by_name.get(name, epoch)
            or UnknownTopicOrPartitionError(f"Topic {name!r} does not exist.")
            for name in names
        }

    def find_topic_names(self, ids: Iterable[Uuid], epoch: int) -> dict[Uuid, str | UnknownTopicIdError]:
        found: dict[Uuid, str | UnknownTopicIdError] = {}
        for topic_id in ids:
            topic = self._topics.get(topic_id, epoch)
            found[topic_id] = UnknownTopicIdError() if topic is None else topic.name
        return found

    def find_all_topic_ids(self, epoch: int) -> dict[str, Uuid]:
        return dict(self._topics_by_name.items_at(epoch))

    def topic_at(self, topic_id: Uuid, epoch: int) -> TopicControlInfo | None:
        return self._topics.get(topic_id, epoch)

    def effective_min_isr(self, topic: TopicControlInfo) -> int:
        """Returns ``min.insync.replicas``, capped at the number of replicas: the ISR cannot be larger."""
        first = topic.partitions.get(0)
        replicas = 1 if first is None else len(first.replicas)
        return min(self.configs.min_insync_replicas(topic.name), replicas)

    # -- changing partitions

    def change_builder(
        self,
        topic: TopicControlInfo,
        partition_id: int,
        partition: PartitionRegistration,
        *,
        min_isr: int | None = None,
        is_alive: Callable[[int], bool] | None = None,
    ) -> PartitionChangeBuilder:
        """Returns a builder for a change to a partition.

        `is_alive` says which brokers may lead; the default is the active brokers. In both cases the broker's directory
        for the replica must be online.
        """
        alive = self.cluster.is_active if is_alive is None else is_alive
        has_online_directory = self.cluster.has_online_directory

        def is_acceptable_leader(broker_id: int) -> bool:
            if not alive(broker_id):
                return False
            directory = partition.directory(broker_id)
            return directory is not None and has_online_directory(broker_id, directory)

        return PartitionChangeBuilder(
            partition,
            topic.id,
            partition_id,
            is_acceptable_leader=is_acceptable_leader,
            metadata_version=self.features.metadata_version,
            min_isr=self.effective_min_isr(topic) if min_isr is None else min_isr,
            elr_enabled=self.features.is_elr_enabled,
            default_directory=self.cluster.default_directory,
        )

    # -- replay

    def replay_topic(self, record: TopicRecord) -> None:
        existing = self._topics_by_name.get(record.name)
        if existing is not None:
            raise MetadataReplayError(
                f"topic {record.name} is created with id {uuid_to_string(record.topic_id)}, but exists with id "
                f"{uuid_to_string(existing)}"
            )
        self._topics_by_name[record.name] = record.topic_id
        self._topics[record.topic_id] = TopicControlInfo(record.name, record.topic_id, self._registry)
        if has_collision_characters(record.name):
            unified = collision_key(record.name)
            names = self._collisions.get(unified)
            if names is None:
                names = self._collisions[unified] = TimelineHashSet(self._registry, nested=True)
            names.add(record.name)
        log.debug("Created topic %s with ID %s", record.name, uuid_to_string(record.topic_id))

    def replay_partition(self, record: PartitionRecord) -> None:
        topic = self._replayed_topic(record.topic_id, record)
        before = topic.partitions.get(record.partition_id)
        self._store(topic, record.partition_id, before, PartitionRegistration.from_record(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._replayed_topic(record.topic_id, record)
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise MetadataReplayError(f"topic {topic.name} has no partition {record.partition_id} to change")
        after = before.merge(record)
        if after.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr):
            self.on_unclean_election()
        self._store(topic, record.partition_id, before, after)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._replayed_topic(record.topic_id, record)
        for number, partition in topic.partitions.items():
            self._forget(TopicIdPartition(topic.id, number), partition)
        self._topics.pop(topic.id)
        self._topics_by_name.pop(topic.name)
        names = self._collisions.get(collision_key(topic.name))
        if names is not None:
            names.discard(topic.name)
            if not names:
                self._collisions.pop(collision_key(topic.name))
        self.configs.delete_topic_configs(topic.name)
        log.info("Deleted topic %s with ID %s", topic.name, uuid_to_string(topic.id))

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic = self.topic_named(record.topic_name)
            if topic is None:
                raise MetadataReplayError(f"cannot clear the ELR of topic {record.topic_name}: it does not exist")
            topics = [topic]
        else:
            topics = list(self._topics.values())
        for topic in topics:
            for number, partition in list(topic.partitions.items()):
                cleared = partition.without_elr()
                if cleared is not partition:
                    self._store(topic, number, partition, cleared)

    def _replayed_topic(self, topic_id: Uuid, record: object) -> TopicControlInfo:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise MetadataReplayError(f"no topic has the ID {uuid_to_string(topic_id)} of a {type(record).__name__}")
        return topic

    def _store(
        self, topic: TopicControlInfo, number: int, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        """Stores a partition in its topic and updates all indexes."""
        key = TopicIdPartition(topic.id, number)
        topic.partitions[number] = after
        if before is None:
            self.leaders.add(after.leader, key)
            self.isr_members.move(key, (), after.isr)
            if after.elr:
                self.elr_members.move(key, (), after.elr)
            for directory in after.directories:
                if not is_reserved(directory):
                    self.directories.add(directory, key)
        else:
            if after.leader != before.leader:
                self.leaders.remove(before.leader, key)
                self.leaders.add(after.leader, key)
            self.isr_members.move(key, before.isr, after.isr)
            self.elr_members.move(key, before.elr, after.elr)
            if after.directories != before.directories:
                self.directories.move(key, _real(before.directories), _real(after.directories))
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s-%d: %s", topic.name, number, after.describe_change(before))
        if after.is_reassigning:
            self.reassigning.add(key)
        elif before is not None and before.is_reassigning:
            self.reassigning.discard(key)
        if after.has_preferred_leader:
            if before is not None:
                self.imbalanced.discard(key)
        else:
            self.imbalanced.add(key)

    def _forget(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        self.leaders.remove(partition.leader, key)
        self.isr_members.move(key, partition.isr, ())
        self.elr_members.move(key, partition.elr, ())
        self.directories.move(key, _real(partition.directories), ())
        self.reassigning.discard(key)
        self.imbalanced.discard(key)


def _real(directories: Iterable[Uuid]) -> tuple[Uuid, ...]:
    """Drops reserved directory ids, which stand for a state such as "unknown": such a directory cannot fail."""
    return tuple(directory for directory in directories if not is_reserved(directory))
