"""How a classic group divides partitions among its members: what an assignor is given, and what it answers.

In a classic group the broker does not know what is divided. Every member says in JoinGroup what it subscribes to; one
of them, the leader, gets to see all subscriptions, asks its *assignor* for a division, and hands that out through the
broker. All members have to agree on the assignor: each sends a list, and the broker picks one that everybody has. (In
KIP-848 groups the broker divides, and none of this is used.)

An assignor of your own is a subclass of `ConsumerPartitionAssignor`, and goes into ``partition.assignment.strategy`` as
a class or an object.
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
    """What members do with their partitions when the group rebalances; the higher, the better.

    EAGER: a member gives up everything before it joins again, so whatever the leader decides is safe, and nobody reads
    anything meanwhile. COOPERATIVE (KIP-429): a member keeps what it has, and reads on. The leader must not give a
    partition away that somebody still has: it takes it away in one rebalance, and gives it to another in the next.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member tells the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    """The generation in which it got the partitions that it owns; unknown of members before version 2 (KIP-792)."""
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader tells a member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class ConsumerPartitionAssignor(ABC):
    """Divides partitions. It runs on the background thread of whatever consumer leads the group."""

    @property
    @abstractmethod
    def name(self) -> str:
        """By which the members of a group agree on it: the same name has to mean the same in all of them."""

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - for subclasses
        """Anything that this member's assignor wants to tell the leader's."""
        return None

    @abstractmethod
    def assign(self, cluster: MetadataSnapshot, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """The division, by member id. Members without an entry get nothing."""

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: B027 - optional
        """This member, leader or not, has got its part."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """A topic as an assignor sees it: the racks in which each partition has replicas, by its number."""

    topic: str
    racks: tuple[frozenset[str], ...]

    def __len__(self) -> int:
        return len(self.racks)

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.topic, number) for number in range(len(self.racks)))


def in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """The members in the order in which they are served: static ones first, by the name that stays the same when they
    restart, so that they get the same again."""

    def key(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(subscriptions, key=key)


class AbstractPartitionAssignor(ConsumerPartitionAssignor):
    """An assignor that needs to know of the cluster only how many partitions there are, and in which racks."""

    @abstractmethod
    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """The partitions of each member. Topics that do not exist are not among ``topics``."""

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
    """Whether it makes a difference who gets which partition: not if no consumer is in a rack that has a replica, and
    not if every partition is in every rack."""
    if not consumer_racks or consumer_racks.isdisjoint(partition_racks):
        return False
    return not all(racks == partition_racks for racks in racks_per_partition)
