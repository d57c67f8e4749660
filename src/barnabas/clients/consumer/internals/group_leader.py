"""The leader of a classic group: computes the assignment from all subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.consumer.assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
    RebalanceProtocol,
    Subscription,
)
from barnabas.clients.consumer.errors import IllegalStateError
from barnabas.clients.consumer.internals.consumer_protocol import deserialize_subscription, serialize_assignment
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.join_group import JoinGroupResponseMember

log = logging.getLogger(__name__)


class WatchedTopics(NamedTuple):
    """The input of an assignment: the partitions of topics, and their racks if the leader is rack aware. When it
    changes, the leader triggers a rebalance."""

    partitions: tuple[tuple[str, tuple[frozenset[str], ...]], ...]

    @classmethod
    def of(cls, snapshot: MetadataSnapshot, topics: Iterable[str], *, racks: bool) -> WatchedTopics:
        rows = []
        for topic in sorted(topics):
            known = snapshot.topics.get(topic)
            if known is None:
                continue
            places = []
            for info in known.partitions:
                nodes = [snapshot.nodes.get(replica) for replica in info.replicas] if racks else []
                places.append(frozenset(node.rack for node in nodes if node is not None and node.rack))
            rows.append((topic, tuple(places)))
        return cls(tuple(rows))


def read_members(members: Iterable[JoinGroupResponseMember]) -> dict[str, Subscription]:
    return {member.member_id: deserialize_subscription(member.metadata, member.group_instance_id) for member in members}


def divide(
    assignor: ConsumerPartitionAssignor,
    protocol: RebalanceProtocol,
    snapshot: MetadataSnapshot,
    subscriptions: Mapping[str, Subscription],
) -> dict[str, Assignment]:
    """Returns each member's assignment.

    Checks that a cooperative assignor does not assign partitions that another member still has. The built-in one is
    exempt: it compares generations, and may rightly ignore an old claim."""
    assignments = dict(assignor.assign(snapshot, subscriptions))
    if protocol is RebalanceProtocol.COOPERATIVE and not isinstance(assignor, CooperativeStickyAssignor):
        _validate_cooperative(assignments, subscriptions)
    subscribed = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    assigned = {partition.topic for assignment in assignments.values() for partition in assignment.partitions}
    if missing := subscribed - assigned:
        log.info("Subscribed topics of which nothing is assigned: %s", ", ".join(sorted(missing)))
    log.info("Finished assignment: %s", assignments)
    return assignments


def _validate_cooperative(assignments: Mapping[str, Assignment], subscriptions: Mapping[str, Subscription]) -> None:
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, assignment in assignments.items():
        owned = set(subscriptions[member].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned - set(assignment.partitions)
    if both := added & revoked:
        raise IllegalStateError(
            "An assignor of a cooperative group has given partitions away that are still owned by others: "
            f"{', '.join(sorted(map(str, both)))}"
        )


def to_bytes(assignments: Mapping[str, Assignment]) -> dict[str, bytes]:
    return {member: serialize_assignment(assignment) for member, assignment in assignments.items()}
