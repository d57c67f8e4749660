"""What a change of topics means for one broker."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.partition_registration import PartitionRegistration


class PartitionInfo(NamedTuple):
    """A partition, and the id of the topic it belongs to."""

    topic_id: Uuid
    partition: PartitionRegistration


@dataclass(slots=True)
class LocalReplicaChanges:
    """The partitions for which a broker has to do something, by what there is to do.

    ``deletes`` come first: a topic deleted and created again within one delta is in there with its old partitions and
    among the leaders or followers with its new ones, under the same name.
    """

    deletes: set[TopicPartition] = field(default_factory=set)
    """The broker was a replica and is none any more, or the topic is gone."""
    elected_leaders: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """It was elected: there is a new leader epoch, and the broker leads in it. All of these are in ``leaders``, too."""
    leaders: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """It leads, and something about the partition is new: an election, or other replicas or in-sync replicas."""
    followers: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """It is a replica that does not lead, and something is new: perhaps whom to follow."""
    directory_ids: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    """The metadata names another log directory for this replica than before, or names one for the first time."""

    def __bool__(self) -> bool:
        return bool(self.deletes or self.leaders or self.followers or self.directory_ids)

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """The ids of the topics that the broker leads or follows something new in, by name."""
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
        """Sorts one changed partition in."""
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
