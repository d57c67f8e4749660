"""Matches members and partitions by rack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.clients.consumer.assignors.partition_assignor import (
    Subscription,
    TopicPartitions,
    use_rack_aware_assignment,
)
from barnabas.common.topic_partition import TopicPartition


class RackInfo:
    """The racks of members and partitions; empty where racks make no difference."""

    def __init__(self, topics: Iterable[TopicPartitions], subscriptions: Mapping[str, Subscription]) -> None:
        members_by_rack: dict[str, int] = {}
        for subscription in subscriptions.values():
            if subscription.rack_id:
                members_by_rack[subscription.rack_id] = members_by_rack.get(subscription.rack_id, 0) + 1
        racks: dict[TopicPartition, frozenset[str]] = {}
        if members_by_rack:
            for topic in topics:
                racks.update(zip(topic, topic.racks, strict=True))
        self._members_nearby = {
            partition: sum(members_by_rack.get(rack, 0) for rack in one) for partition, one in racks.items()
        }
        self.member_racks: dict[str, str] = {}
        self.partition_racks: dict[TopicPartition, frozenset[str]] = {}
        if use_rack_aware_assignment(set(members_by_rack), set().union(*racks.values()), tuple(racks.values())):
            self.member_racks = {member: one.rack_id for member, one in subscriptions.items() if one.rack_id}
            self.partition_racks = racks

    def racks_mismatch(self, member: str, partition: TopicPartition) -> bool:
        rack = self.member_racks.get(member)
        return rack is not None and rack not in self.partition_racks.get(partition, frozenset())

    def hardest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sorts partitions by the number of members nearby, the fewest first: the others can wait for a match."""
        if not self._members_nearby:
            return partitions
        return sorted(partitions, key=lambda partition: self._members_nearby.get(partition, 0))

    def next_nearby(self, partition: TopicPartition, members: Sequence[str], first: int) -> int:
        """Returns the index of the first member near the partition, from ``first`` on and around; -1: none."""
        racks = self.partition_racks.get(partition)
        if racks:
            for step in range(len(members)):
                at = (first + step) % len(members)
                if self.member_racks.get(members[at]) in racks:
                    return at
        return -1
