"""The assignor interface of classic groups.

In a classic group the broker does not know what is assigned. Every member sends its subscription in JoinGroup; one of
them, the leader, receives all subscriptions, calls its *assignor*, and distributes the assignment through the broker.
All members must agree on the assignor: each sends a list, and the broker picks one that everybody has. (In KIP-848
groups the broker assigns, and none of this is used.)

A custom assignor is a subclass of `ConsumerPartitionAssignor`, and goes into ``partition.assignment.strategy`` as a
class or an object.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.common.offsets import ConsumerGroupMetadata
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

DEFAULT_GENERATION = -1


class RebalanceProtocol(IntEnum):
    """What members do with their partitions in a rebalance; the higher, the better.

    EAGER: a member gives up everything before it joins again, so any assignment is safe, and nobody reads meanwhile.
    COOPERATIVE (KIP-429): a member keeps its partitions, and reads on. The leader must not assign a partition that
    another member still has: it revokes it in one rebalance, and assigns it in the next.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription, as the leader sees it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    """The generation in which it got its owned partitions; unknown for members before version 2 (KIP-792)."""
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's assignment by the leader."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class ConsumerPartitionAssignor(ABC):
    """Assigns partitions. It runs on the background thread of the consumer that leads the group."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which members agree on the assignor: it must mean the same in all of them."""

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - for subclasses
        """Returns custom data of this member's assignor for the leader's."""
        return None

    @abstractmethod
    def assign(self, cluster: MetadataSnapshot, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Returns the assignment by member id. Members without an entry get nothing."""

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027 - optional
        """Called when this member, leader or not, has received its assignment."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """A topic for assignors: the replica racks of each partition, by its number."""

    topic: str
    racks: tuple[frozenset[str], ...]

    def __len__(self) -> int:
        return len(self.racks)

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.topic, number) for number in range(len(self.racks)))


def in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Returns the members in assignment order: static ones first, by instance id, so that they get the same partitions
    after a restart."""

    def key(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(subscriptions, key=key)


class AbstractPartitionAssignor(ConsumerPartitionAssignor):
    """An assignor that needs only the number of partitions, and their racks."""

    @abstractmethod
    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Returns the partitions of each member. ``topics`` has only existing topics."""

    def assign(self, cluster: MetadataSnapshot, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        subscribed = sorted({topic for subscription in subscriptions.values() for topic in subscription.topics})
        topics: dict[str, TopicPartitions] = {}
        for name in subscribed:
            known = cluster.topics.get(name)
            if known is None or not known.partitions:
                log.debug("No metadata for topic %s; it is left out", name)
                continue
            racks = []
            for info in known.partitions:
                nodes = (cluster.nodes.get(replica) for replica in info.replicas)
                racks.append(frozenset(node.rack for node in nodes if node is not None and node.rack))
            topics[name] = TopicPartitions(name, tuple(racks))
        return {
            member: Assignment(tuple(partitions))
            for member, partitions in self.assign_partitions(topics, subscriptions).items()
        }


def use_rack_aware_assignment(
    consumer_racks: set[str], partition_racks: set[str], racks_per_partition: Sequence[frozenset[str]]
) -> bool:
    """Whether racks matter: not if no consumer is in a rack with a replica, or if every partition is in every rack."""
    if not consumer_racks or consumer_racks.isdisjoint(partition_racks):
        return False
    return not all(racks == partition_racks for racks in racks_per_partition)
