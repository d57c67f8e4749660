"""The effect of changed topics on one broker."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.partition_registration import PartitionRegistration


class PartitionInfo(NamedTuple):
    """A partition, and the ID of its topic."""

    topic_id: Uuid
    partition: PartitionRegistration


@dataclass(slots=True)
class LocalReplicaChanges:
    """The partitions that a broker has to change, by kind of change.

    ``deletes`` come first: a topic that was deleted and created again within one delta is in there with its old
    partitions, and among the leaders or followers with its new ones, under the same name.
    """

    deletes: set[TopicPartition] = field(default_factory=set)
    """The broker is no longer a replica, or the topic is deleted."""
    elected_leaders: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """The broker was elected leader in a new leader epoch. All of these are in ``leaders``, too."""
    leaders: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """The broker leads a changed partition: an election, or other replicas or ISR."""
    followers: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """The broker is a follower of a changed partition, possibly with another leader."""
    directory_ids: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """The metadata names a new log directory for this replica."""

    def __bool__(self) -> bool:
        return bool(self.deletes or self.leaders or self.followers or self.directory_ids)

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """The IDs of the topics with new leaders or followers, by name."""
        return {
            topic_partition.topic: info.topic_id
            for infos in (self.leaders, self.followers)
            for topic_partition, info in infos.items()
        }

    def add(
        self,
        broker_id: int,
        topic_partition: TopicPartition,
        info: PartitionInfo,
        previous: PartitionRegistration | None,
    ) -> None:
        """Adds a changed partition to the right sets."""
        partition = info.partition
        if broker_id not in partition.replicas:
            if previous is not None and broker_id in previous.replicas:
                self.deletes.add(topic_partition)
            return
        if previous is None or previous.partition_epoch != partition.partition_epoch:
            if partition.leader == broker_id:
                self.leaders[topic_partition] = info
                if previous is None or previous.leader_epoch != partition.leader_epoch:
                    self.elected_leaders[topic_partition] = info
            else:
                self.followers[topic_partition] = info
        if previous is None or previous.directory(broker_id) != partition.directory(broker_id):
            self.directory_ids[topic_partition] = info
