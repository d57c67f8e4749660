"""Changes of topics that are not applied yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.metadata.topics import TopicImage, TopicsImage
from barnabas.protocol.internal.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from barnabas.metadata.local_replica_changes import LocalReplicaChanges

_NO_PARTITIONS: Mapping[int, PartitionRegistration] = {}


class TopicDelta:
    """The changed and new partitions of one topic.

    ``image`` is the topic before; without partitions if it is new.
    """

    __slots__ = ("_restated", "elr_elections", "image", "partition_changes", "unclean_elections")

    def __init__(self, image: TopicImage, restated: bool = False) -> None:
        self.image = image
        self.partition_changes: dict[int, PartitionRegistration] = {}
        self.unclean_elections: dict[int, int] = {}
        """The number of unclean leader elections by partition."""
        self.elr_elections: dict[int, int] = {}
        """The number of leaders elected from the ELR, by partition."""
        self._restated = restated
        """Whether a TopicRecord has restarted the topic, so that its earlier partitions are ignored."""

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def id(self) -> Uuid:
        return self.image.id

    @property
    def new_partitions(self) -> dict[int, PartitionRegistration]:
        before = self.image.partitions
        return {number: partition for number, partition in self.partition_changes.items() if number not in before}

    @property
    def removed_partitions(self) -> dict[int, PartitionRegistration]:
        """Partitions that a snapshot no longer has. In the log partitions are only removed with their topic."""
        if not self._restated:
            return {}
        changes = self.partition_changes
        return {number: partition for number, partition in self.image.partitions.items() if number not in changes}

    def partition(self, number: int) -> PartitionRegistration | None:
        """Returns a partition as it would be after :meth:`apply`."""
        found = self.partition_changes.get(number)
        return found if found is not None or self._restated else self.image.partitions.get(number)

    def create_partition(self, record: PartitionRecord) -> None:
        number = record.partition_id
        before = self.partition_changes.get(number)
        if before is not None:
            self._count_election(number, before, record.leader, record.leader_recovery_state)
        self.partition_changes[number] = PartitionRegistration.from_record(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        number = record.partition_id
        before = self.partition(number)
        if before is None:
            raise MetadataReplayError(f"cannot change partition {self.name}-{number}: it does not exist")
        changed = before.merge(record)
        self._count_election(number, before, record.leader, record.leader_recovery_state)
        self.partition_changes[number] = changed

    def clear_elr(self) -> None:
        for number in {*self.partition_changes, *(() if self._restated else self.image.partitions)}:
            before = self.partition(number)
            assert before is not None
            after = before.without_elr()
            if after is not before:
                self.partition_changes[number] = after

    def drop_repetitions(self) -> bool:
        """Drops unchanged partitions after a snapshot. Returns whether anything is left."""
        before = self.image.partitions
        if not self.removed_partitions:
            self._restated = False
            self.partition_changes = {
                number: partition
                for number, partition in self.partition_changes.items()
                if before.get(number) != partition
            }
        return self._restated or bool(self.partition_changes)

    def apply(self) -> TopicImage:
        if self._restated:
            return TopicImage(self.name, self.id, dict(sorted(self.partition_changes.items())))
        return self.image.with_partitions(self.partition_changes) if self.partition_changes else self.image

    def collect_local_changes(self, broker_id: int, changes: LocalReplicaChanges) -> None:
        from barnabas.metadata.local_replica_changes import PartitionInfo

        before = self.image.partitions
        for number, partition in self.partition_changes.items():
            info = PartitionInfo(self.id, partition)
            changes.add(broker_id, TopicPartition(self.name, number), info, before.get(number))
        for number, partition in self.removed_partitions.items():
            if broker_id in partition.replicas:
                changes.deletes.add(TopicPartition(self.name, number))

    def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        from barnabas.metadata.local_replica_changes import LocalReplicaChanges

        changes = LocalReplicaChanges()
        self.collect_local_changes(broker_id, changes)
        return changes

    def _count_election(self, number: int, before: PartitionRegistration, leader: int, recovery_state: int) -> None:
        if recovery_state == LeaderRecoveryState.RECOVERING:
            self.unclean_elections[number] = self.unclean_elections.get(number, 0) + 1
        if leader in before.elr:
            self.elr_elections[number] = self.elr_elections.get(number, 0) + 1

    def __repr__(self) -> str:
        return f"TopicDelta({self.name!r}, {self.partition_changes!r})"


class TopicsDelta:
    """New, changed and deleted topics.

    A topic that was created and deleted between two images leaves no trace. One that was deleted and created again is
    two topics of the same name: the old ID is in ``deleted_topic_ids``, the new one in ``created_topic_ids``.
    """

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed_topics: dict[Uuid, TopicDelta] = {}
        """Changes by topic ID; including new topics, without deleted ones."""
        self.deleted_topic_ids: set[Uuid] = set()
        self._created_names: dict[str, Uuid] = {}
        """The new topics by name."""

    @classmethod
    def of_everything(cls, image: TopicsImage) -> TopicsDelta:
        delta = cls(TopicsImage())
        for topic in image.by_id.values():
            created = TopicDelta(TopicImage(topic.name, topic.id, _NO_PARTITIONS))
            created.partition_changes = dict(topic.partitions)
            delta.changed_topics[topic.id] = created
            delta._created_names[topic.name] = topic.id
        return delta

    @property
    def created_topic_ids(self) -> set[Uuid]:
        return set(self._created_names.values())

    @property
    def deleted_topics(self) -> Iterator[TopicImage]:
        """The deleted topics, as they were."""
        return (self.image.by_id[topic_id] for topic_id in self.deleted_topic_ids)

    def changed_topic(self, topic_id: Uuid) -> TopicDelta | None:
        return self.changed_topics.get(topic_id)

    def topic_was_deleted(self, name: str) -> bool:
        """Returns whether the previous topic of this name is deleted, even if a new one has the name now."""
        topic = self.image.by_name.get(name)
        return topic is not None and topic.id in self.deleted_topic_ids

    # -- replay

    def create_topic(self, record: TopicRecord) -> None:
        """Creates a topic; in a snapshot, replaces a known topic as a whole."""
        topic_id, name = record.topic_id, record.name
        known = self.image.by_id.get(topic_id)
        if known is None and topic_id in self.changed_topics:
            known = self.changed_topics[topic_id].image
        if known is not None:
            if known.name != name or topic_id in self.deleted_topic_ids:
                raise MetadataReplayError(
                    f"topic {name} cannot have the ID {uuid_to_string(topic_id)}, which topic {known.name} has or had"
                )
            self.changed_topics[topic_id] = TopicDelta(known, restated=True)
            return
        other = self._created_names.get(name)
        if other is not None:
            raise MetadataReplayError(f"topic {name} already exists with the ID {uuid_to_string(other)}")
        self.changed_topics[topic_id] = TopicDelta(TopicImage(name, topic_id, _NO_PARTITIONS))
        self._created_names[name] = topic_id

    def create_partition(self, record: PartitionRecord) -> None:
        self._changing(record.topic_id).create_partition(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        self._changing(record.topic_id).change_partition(record)

    def remove_topic(self, record: RemoveTopicRecord) -> str:
        """Deletes a topic and returns its name, whose configuration has to be removed too."""
        topic_id = record.topic_id
        name = self._existing(topic_id).name
        self.changed_topics.pop(topic_id, None)
        if topic_id in self.image.by_id:
            self.deleted_topic_ids.add(topic_id)
        else:
            del self._created_names[name]
        return name

    def clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self._id_of(record.topic_name)
            if topic_id is None:
                raise MetadataReplayError(f"cannot clear the ELR of topic {record.topic_name}: it does not exist")
            self._clear_elr(topic_id)
            return
        for topic_id in [*self.image.by_id, *self._created_names.values()]:
            if topic_id not in self.deleted_topic_ids:
                self._clear_elr(topic_id)

    def finish_snapshot(self) -> None:
        for topic_id in self.image.by_id:
            delta = self.changed_topics.get(topic_id)
            if delta is None:
                self.deleted_topic_ids.add(topic_id)
            elif not delta.drop_repetitions():
                del self.changed_topics[topic_id]

    def __bool__(self) -> bool:
        return bool(self.changed_topics or self.deleted_topic_ids)

    def apply(self) -> TopicsImage:
        image = self.image
        if not self:
            return image
        for name, topic_id in self._created_names.items():
            holder = image.by_name.get(name)
            if holder is not None and holder.id not in self.deleted_topic_ids:
                raise MetadataReplayError(
                    f"topic {name} cannot be created with the ID {uuid_to_string(topic_id)}: it exists with the ID "
                    f"{uuid_to_string(holder.id)}"
                )
        changed = [delta.apply() for delta in self.changed_topics.values()]
        same_names = not self._created_names and not self.deleted_topic_ids
        return TopicsImage(
            image.by_id.updated({topic.id: topic for topic in changed}, self.deleted_topic_ids),
            image.by_name.updated(
                {topic.name: topic for topic in changed}, [topic.name for topic in self.deleted_topics]
            ),
            image.known_sorted_names if same_names else None,
        )

    # -- for publishers

    def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        """Returns the changes for the replicas of one broker."""
        from barnabas.metadata.local_replica_changes import LocalReplicaChanges

        changes = LocalReplicaChanges()
        for delta in self.changed_topics.values():
            delta.collect_local_changes(broker_id, changes)
        for topic in self.deleted_topics:
            for number, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    changes.deletes.add(TopicPartition(topic.name, number))
        return changes

    # -- helpers

    def _existing(self, topic_id: Uuid) -> TopicImage:
        delta = self.changed_topics.get(topic_id)
        if delta is not None:
            return delta.image
        topic = self.image.by_id.get(topic_id)
        if topic is None or topic_id in self.deleted_topic_ids:
            raise MetadataReplayError(f"no topic has the ID {uuid_to_string(topic_id)}")
        return topic

    def _changing(self, topic_id: Uuid) -> TopicDelta:
        delta = self.changed_topics.get(topic_id)
        if delta is None:
            delta = self.changed_topics[topic_id] = TopicDelta(self._existing(topic_id))
        return delta

    def _id_of(self, name: str) -> Uuid | None:
        created = self._created_names.get(name)
        if created is not None:
            return created
        topic = self.image.by_name.get(name)
        return None if topic is None or topic.id in self.deleted_topic_ids else topic.id

    def _clear_elr(self, topic_id: Uuid) -> None:
        delta = self.changed_topics.get(topic_id)
        if delta is not None:
            delta.clear_elr()
            return
        delta = TopicDelta(self.image.by_id[topic_id])
        delta.clear_elr()
        if delta.partition_changes:
            self.changed_topics[topic_id] = delta

    def __repr__(self) -> str:
        return f"TopicsDelta(changed={list(self.changed_topics.values())!r}, deleted={self.deleted_topic_ids!r})"
