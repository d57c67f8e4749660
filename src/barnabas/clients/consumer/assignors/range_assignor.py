"""The range assignor: assigns each topic separately, in consecutive ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from barnabas.clients.consumer.assignors.partition_assignor import (
    AbstractPartitionAssignor,
    Subscription,
    TopicPartitions,
    in_order,
    use_rack_aware_assignment,
)
from barnabas.common.topic_partition import TopicPartition


class RangeAssignor(AbstractPartitionAssignor):
    """Splits the ordered partitions of a topic into one range per member, in member order.

    With members A and B and topics of three partitions each, A gets 0 and 1 of every topic, and B gets 2. That is not
    balanced over many topics, by design: topics with the same keys and the same number of partitions are
    *co-partitioned*, so that the member that reads partition 1 of the orders also reads partition 1 of the payments.

    **Racks** (KIP-881). If members have racks, partitions first go to members in a rack with a replica, as far as equal
    numbers allow; co-partitioned topics stay so. The rest is then assigned as usual.
    """

    @property
    def name(self) -> str:
        return "range"

    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        states = [_TopicState(topic, subscriptions) for topic in topics.values() if len(topic)]
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        rack_aware = any(state.needs_rack_aware_assignment for state in states)
        if rack_aware:
            _assign_with_rack_matching(states, assignment)
        for state in states:
            state.assign_ranges(lambda _member, _partition: True, assignment)
        if rack_aware:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


class _TopicState:
    """One topic during assignment."""

    def __init__(self, partitions: TopicPartitions, subscriptions: Mapping[str, Subscription]) -> None:
        self.topic = partitions.topic
        wanting = {member: one for member, one in subscriptions.items() if self.topic in one.topics}
        self.members = {member: wanting[member].rack_id or None for member in in_order(wanting)}
        """The members in order, with their racks."""
        self.partition_racks = partitions.racks
        self.unassigned = dict.fromkeys(partitions)
        self._counts = dict.fromkeys(self.members, 0)
        self._quota, self._extra = divmod(len(partitions), len(self.members)) if self.members else (0, 0)
        member_racks = {rack for rack in self.members.values() if rack is not None}
        all_racks = set().union(*partitions.racks)
        self.needs_rack_aware_assignment = use_rack_aware_assignment(member_racks, all_racks, partitions.racks)

    @property
    def knows_racks(self) -> bool:
        return any(rack is not None for rack in self.members.values())

    def racks_match(self, member: str, partition: TopicPartition) -> bool:
        rack = self.members[member]
        return rack is None or (self.knows_racks and rack in self.partition_racks[partition.partition])

    def max_assignable(self, member: str) -> int:
        return max(0, self._quota + (1 if self._extra > 0 else 0) - self._counts[member])

    def assign(self, member: str, partitions: Iterable[TopicPartition], to: dict[str, list[TopicPartition]]) -> None:
        for partition in partitions:
            to[member].append(partition)
            self._counts[member] += 1
            del self.unassigned[partition]
        if self._counts[member] > self._quota:
            self._extra -= 1

    def assign_ranges(
        self, may_assign: Callable[[str, TopicPartition], bool], to: dict[str, list[TopicPartition]]
    ) -> None:
        for member in self.members:
            if not self.unassigned:
                break
            possible = [partition for partition in self.unassigned if may_assign(member, partition)]
            chosen = possible[: self.max_assignable(member)]
            if chosen:
                self.assign(member, chosen, to)


def _assign_with_rack_matching(states: Iterable[_TopicState], to: dict[str, list[TopicPartition]]) -> None:
    alike: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_TopicState]] = {}
    for state in states:
        # A topic whose members have no racks counts as one without partitions here.
        count = len(state.partition_racks) if state.knows_racks else 0
        alike.setdefault((tuple(state.members.items()), count), []).append(state)
    for (members, count), group in alike.items():
        if len(group) > 1:
            _assign_co_partitioned([member for member, _ in members], count, group, to)
        elif group[0].needs_rack_aware_assignment:
            group[0].assign_ranges(group[0].racks_match, to)


def _assign_co_partitioned(
    members: list[str], count: int, states: list[_TopicState], to: dict[str, list[TopicPartition]]
) -> None:
    """Assigns the same partition number of every topic to one member, if it is near all of them."""
    remaining = list(members)
    for number in range(count):
        for member in remaining:
            if all(
                state.racks_match(member, TopicPartition(state.topic, number)) and state.max_assignable(member) > 0
                for state in states
            ):
                for state in states:
                    state.assign(member, [TopicPartition(state.topic, number)], to)
                if not any(state.max_assignable(member) > 0 for state in states):
                    remaining.remove(member)
                break
        if not remaining:
            break
