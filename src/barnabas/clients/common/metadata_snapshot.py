"""An immutable view of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node


class PartitionInfo(NamedTuple):
    """A partition and where its replicas are; ``leader`` is None while there is none."""

    topic: str
    partition: int
    leader: Node | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """A topic: its id, if the brokers know ids, and its partitions by number."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool = False


class MetadataSnapshot:
    """The nodes, the topics and the partition leaders. Immutable; a change creates another one.

    So a thread uses one snapshot throughout, without a lock and with consistent data.
    """

    __slots__ = (
        "_available",
        "_by_id",
        "_by_node",
        "_leaders",
        "cluster_id",
        "controller",
        "invalid_topics",
        "is_bootstrap",
        "nodes",
        "topics",
        "unauthorized_topics",
    )

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        topics: Iterable[TopicInfo] = (),
        *,
        cluster_id: str | None = None,
        controller: Node | None = None,
        unauthorized_topics: Iterable[str] = (),
        invalid_topics: Iterable[str] = (),
        is_bootstrap: bool = False,
    ) -> None:
        self.nodes: Mapping[int, Node] = MappingProxyType({node.id: node for node in nodes})
        self.topics: Mapping[str, TopicInfo] = MappingProxyType({topic.name: topic for topic in topics})
        self.cluster_id = cluster_id
        self.controller = controller
        self.unauthorized_topics = frozenset(unauthorized_topics)
        self.invalid_topics = frozenset(invalid_topics)
        self.is_bootstrap = is_bootstrap
        """Whether it has only the bootstrap servers."""
        self._by_id = {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id != ZERO_UUID}
        self._leaders: dict[TopicPartition, PartitionInfo] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        self._available: dict[str, list[int]] = {}
        for topic in self.topics.values():
            available = self._available[topic.name] = []
            for info in topic.partitions:
                key = TopicPartition(info.topic, info.partition)
                self._leaders[key] = info
                if info.leader is not None:
                    by_node.setdefault(info.leader.id, []).append(key)
                    available.append(info.partition)
        self._by_node = by_node

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions of a topic; None if the topic is unknown."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        info = self.topics.get(topic)
        return () if info is None else info.partitions

    def available_partitions(self, topic: str) -> Sequence[int]:
        """Returns the partitions that have a leader."""
        return self._available.get(topic, ())

    def partitions_for_node(self, node_id: int) -> Sequence[TopicPartition]:
        """Returns the partitions that a node leads."""
        return self._by_node.get(node_id, ())

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        return self._leaders.get(partition)

    def leader_for(self, partition: TopicPartition) -> Node | None:
        info = self._leaders.get(partition)
        return None if info is None else info.leader

    def leader_of(self, topic: str, partition: int) -> Node | None:
        return self.leader_for(TopicPartition(topic, partition))

    def leader_epoch_for(self, partition: TopicPartition) -> int | None:
        info = self._leaders.get(partition)
        return None if info is None else info.leader_epoch

    def topic_id(self, topic: str) -> Uuid:
        """Returns the id of a topic; zeros if there is none, or it is unknown."""
        info = self.topics.get(topic)
        return ZERO_UUID if info is None else info.topic_id

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._by_id.get(topic_id)

    def __repr__(self) -> str:
        return f"MetadataSnapshot(cluster {self.cluster_id}, {len(self.nodes)} nodes, topics {sorted(self.topics)})"


EMPTY_SNAPSHOT = MetadataSnapshot()
