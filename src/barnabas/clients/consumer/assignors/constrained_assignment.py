"""The sticky assignment if all members subscribe to the same topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.clients.consumer.assignors.partition_assignor import TopicPartitions
from barnabas.clients.consumer.assignors.rack_info import RackInfo
from barnabas.common.topic_partition import TopicPartition


class ConstrainedAssignmentBuilder:
    """Assigns in one pass: any member may have any partition, so the quotas are known beforehand.

    With 7 partitions and 3 members, each gets 2 (the minimum quota) and one member gets 3 (the maximum quota). First,
    members keep their partitions up to a quota and give up the rest. Then unassigned partitions go to members below the
    minimum, one each in turn, and finally to members at the minimum, until enough of them are above it.

    ``transferring`` collects partitions that move to another member while the old one may still have them: a
    cooperative group must delay those.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicPartitions],
        racks: RackInfo,
        owned: Mapping[str, Sequence[TopicPartition]],
        doubly_claimed: set[TopicPartition],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._doubly_claimed = doubly_claimed
        total = sum(map(len, topics.values()))
        self._min_quota, self._expected_over_min = divmod(total, len(owned))
        self._max_quota = self._min_quota + (1 if self._expected_over_min else 0)
        self._over_min = 0
        self._below_min: list[str] = []
        self._at_min: list[str] = []
        """Members that may get one more."""
        self._given_up: dict[TopicPartition, str] = {}
        self._assignment: dict[str, list[TopicPartition]] = {member: [] for member in owned}
        self.transferring: dict[TopicPartition, str] = {}

    def build(self) -> dict[str, list[TopicPartition]]:
        self._keep_owned()
        kept = {partition for partitions in self._assignment.values() for partition in partitions}
        unassigned = [
            partition for topic in sorted(self._topics) for partition in self._topics[topic] if partition not in kept
        ]
        self._below_min.sort()
        self._at_min.sort()
        unassigned = self._racks.hardest_first(unassigned)
        if self._racks.member_racks:
            unassigned = self._deal_nearby(unassigned)
        self._deal(unassigned)
        return self._assignment

    def _keep_owned(self) -> None:
        for member, claimed in self._owned.items():
            owned = []
            for partition in sorted(claimed, key=lambda one: (one.partition, one.topic)):
                if self._racks.racks_mismatch(member, partition):
                    self._given_up[partition] = member
                elif partition not in self._doubly_claimed:
                    owned.append(partition)
            if len(owned) < self._min_quota:
                keep = len(owned)
                self._below_min.append(member)
            elif len(owned) >= self._max_quota and self._over_min < self._expected_over_min:
                keep = self._max_quota
                self._over_min += 1
                if self._over_min == self._expected_over_min:
                    self._at_min.clear()
            else:
                keep = self._min_quota
                if self._over_min < self._expected_over_min:
                    self._at_min.append(member)
            self._assignment[member] += owned[:keep]
            self._given_up.update(dict.fromkeys(owned[keep:], member))

    def _deal_nearby(self, unassigned: list[TopicPartition]) -> list[TopicPartition]:
        """Assigns partitions to members in their racks; returns those for which that is not possible."""
        rest = []
        turn = 0
        for partition in unassigned:
            at = self._racks.next_nearby(partition, self._below_min, turn)
            if at >= 0:
                member = self._below_min[at]
                count = len(self._assignment[member]) + 1
                if count >= self._min_quota:
                    del self._below_min[at]
                    if count < self._max_quota and self._over_min < self._expected_over_min:
                        self._at_min.append(member)
                else:
                    at += 1
                turn = at % len(self._below_min) if self._below_min else 0
            else:
                at = self._racks.next_nearby(partition, self._at_min, 0)
                if at < 0:
                    rest.append(partition)
                    continue
                member = self._at_min[at]
                if len(self._assignment[member]) + 1 == self._max_quota:
                    del self._at_min[at]
                    self._over_min += 1
                    if self._over_min == self._expected_over_min:
                        self._at_min.clear()
            self._give(partition, member)
        return rest

    def _deal(self, unassigned: list[TopicPartition]) -> None:
        turn = 0
        for partition in unassigned:
            if self._below_min:
                turn %= len(self._below_min)
                member = self._below_min[turn]
                turn += 1
            else:
                member = self._at_min.pop(0)
            count = self._give(partition, member)
            if count == self._min_quota:
                turn -= 1
                del self._below_min[turn]
                self._at_min.append(member)

    def _give(self, partition: TopicPartition, member: str) -> int:
        self._assignment[member].append(partition)
        former = self._given_up.get(partition, member)
        if former != member or partition in self._doubly_claimed:
            self.transferring[partition] = member
        return len(self._assignment[member])
