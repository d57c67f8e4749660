"""The round-robin assignor: all partitions of all topics, dealt out like cards."""

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
    """Deals partitions out in the order of topics and numbers; a member that does not want a topic is passed over.

    If all want the same, nobody has more than one partition more than another. If not, it can be lopsided: passing over
    a member costs it its turn.
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
