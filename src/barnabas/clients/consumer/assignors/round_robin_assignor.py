"""The round-robin assignor: deals the partitions of all topics to members in turn."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.clients.consumer.assignors.partition_assignor import (
    AbstractPartitionAssignor,
    Subscription,
    TopicPartitions,
    in_order,
)
from barnabas.common.topic_partition import TopicPartition


class RoundRobinAssignor(AbstractPartitionAssignor):
    """Deals partitions in the order of topics and numbers; skips members that do not subscribe to the topic.

    With equal subscriptions, members differ by at most one partition. Otherwise it can be uneven: a skipped member
    loses its turn.
    """

    @property
    def name(self) -> str:
        return "roundrobin"

    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        members = in_order(subscriptions)
        wanted = {member: set(one.topics) for member, one in subscriptions.items()}
        turn = 0
        for topic in sorted(topics):
            if not any(topic in topics_of_one for topics_of_one in wanted.values()):
                continue
            for partition in topics[topic]:
                while topic not in wanted[members[turn]]:
                    turn = (turn + 1) % len(members)
                assignment[members[turn]].append(partition)
                turn = (turn + 1) % len(members)
        return assignment
