"""The sticky assignment if members subscribe to different topics."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from barnabas.clients.consumer.assignors.partition_assignor import DEFAULT_GENERATION, Subscription, TopicPartitions
from barnabas.clients.consumer.assignors.partition_movements import PartitionMovements
from barnabas.clients.consumer.assignors.rack_info import RackInfo
from barnabas.common.topic_partition import TopicPartition


class _BySize:
    """Members ordered by their number of partitions. Remove a member before changing its partitions."""

    def __init__(self, assignment: Mapping[str, list[TopicPartition]]) -> None:
        self._assignment = assignment
        self._rows: list[tuple[int, str]] = []

    def add(self, member: str) -> None:
        bisect.insort(self._rows, (len(self._assignment[member]), member))

    def remove(self, member: str) -> None:
        self._rows.remove((len(self._assignment[member]), member))

    def members(self) -> list[str]:
        return [member for _, member in self._rows]

    @property
    def smallest(self) -> int:
        return self._rows[0][0]

    @property
    def largest(self) -> int:
        return self._rows[-1][0]


class GeneralAssignmentBuilder:
    """Balances step by step, because a fair share depends on the subscriptions.

    Members keep the partitions that they own and still subscribe to. Unassigned partitions go, those with the fewest
    subscribers first, to the subscriber with the fewest partitions. Then partitions move from members with more to
    members with fewer, as long as that narrows a gap of two or more. New partitions are tried first, and if the moves
    did not improve the overall balance, they are all undone.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicPartitions],
        racks: RackInfo,
        owned: dict[str, list[TopicPartition]],
        subscriptions: Mapping[str, Subscription],
        previous: Mapping[TopicPartition, str],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._assignment = owned
        self._subscriptions = subscriptions
        self._previous = previous
        """The owner of a partition in an earlier generation, which is preferred."""
        self._wanted = {
            member: [topic for topic in one.topics if topic in topics] for member, one in sorted(subscriptions.items())
        }
        self._wanted_by: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, wanted in self._wanted.items():
            for topic in wanted:
                self._wanted_by[topic].append(member)
        self._owner = {partition: member for member, partitions in owned.items() for partition in partitions}
        in_turn = sorted(topics, key=lambda topic: (len(self._wanted_by[topic]), topic))
        self._all = [partition for topic in in_turn for partition in topics[topic]]
        self._by_size = _BySize(owned)
        self._movements = PartitionMovements()
        self._revocation_required = False

    def build(self) -> dict[str, list[TopicPartition]]:
        kept = self._keep_owned()
        unassigned = [partition for partition in self._all if partition not in kept]
        for member in self._assignment:
            self._by_size.add(member)
        self._balance(unassigned)
        return self._assignment

    def _keep_owned(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for member, partitions in self._assignment.items():
            wanted = set(self._wanted[member])
            keep = []
            for partition in partitions:
                if partition.topic in wanted and not self._racks.racks_mismatch(member, partition):
                    keep.append(partition)
                else:
                    self._revocation_required = True
                    del self._owner[partition]
            partitions[:] = keep
            kept.update(keep)
        return kept

    def _balance(self, unassigned: list[TopicPartition]) -> None:
        initializing = self._by_size.largest == 0
        to_assign = unassigned
        if self._racks.member_racks:
            to_assign = [partition for partition in unassigned if not self._assign(partition, nearby=True)]
        for partition in to_assign:
            self._assign(partition, nearby=False)

        # Only partitions with several subscribers can move, and only the members concerned take part.
        movable = [partition for partition in self._all if len(self._wanted_by[partition.topic]) >= 2]
        new = [partition for partition in unassigned if len(self._wanted_by[partition.topic]) >= 2]
        fixed: dict[str, list[TopicPartition]] = {}
        for member in list(self._assignment):
            if not self._can_take_part(member):
                self._by_size.remove(member)
                fixed[member] = self._assignment.pop(member)
        before = {member: list(partitions) for member, partitions in self._assignment.items()}
        if self._assignment:
            if not self._revocation_required:
                self._move(new)
            moved = self._move(movable)
            if not initializing and moved and _unevenness(self._assignment) >= _unevenness(before):
                self._assignment.clear()
                self._assignment.update(before)
        self._assignment.update(fixed)

    def _assign(self, partition: TopicPartition, *, nearby: bool) -> bool:
        for member in self._by_size.members():
            if partition.topic not in self._wanted[member]:
                continue
            if nearby and self._racks.racks_mismatch(member, partition):
                continue
            self._by_size.remove(member)
            self._assignment[member].append(partition)
            self._owner[partition] = member
            self._by_size.add(member)
            return True
        return False

    def _capacity(self, member: str) -> int:
        return sum(len(self._topics[topic]) for topic in self._wanted[member])

    def _can_take_part(self, member: str) -> bool:
        partitions = self._assignment[member]
        if len(partitions) < self._capacity(member):
            return True
        return any(len(self._wanted_by[partition.topic]) >= 2 for partition in partitions)

    def _is_balanced(self) -> bool:
        """Whether no member could take a partition from one that has at least two more."""
        if self._by_size.smallest >= self._by_size.largest - 1:
            return True
        for member in self._by_size.members():
            count = len(self._assignment[member])
            if count == self._capacity(member):
                continue
            for topic in self._wanted[member]:
                for partition in self._topics[topic]:
                    owner = self._owner.get(partition)
                    if owner is None or owner == member or owner not in self._assignment:
                        continue
                    if count + 1 < len(self._assignment[owner]):
                        return False
        return True

    def _move(self, partitions: Iterable[TopicPartition]) -> bool:
        """Moves partitions until it is balanced or no move is left; returns whether any was moved."""
        performed = False
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                if self._is_balanced():
                    break
                if self._move_if_better(partition):
                    performed = modified = True
        return performed

    def _move_if_better(self, partition: TopicPartition) -> bool:
        owner = self._owner[partition]
        count = len(self._assignment[owner])
        former = self._previous.get(partition)
        if (
            former in self._assignment
            and partition.topic in self._wanted[former]
            and count > len(self._assignment[former]) + 1
        ):
            self._reassign(partition, former)
            return True
        if not any(count > len(self._assignment[other]) + 1 for other in self._wanted_by[partition.topic]):
            return False
        for member in self._by_size.members():
            if partition.topic in self._wanted[member]:
                self._reassign(partition, member)
                return True
        return False

    def _reassign(self, partition: TopicPartition, target: str) -> None:
        partition = self._movements.actual_partition(partition, self._owner[partition], target)
        source = self._owner[partition]
        self._by_size.remove(source)
        if target != source:
            self._by_size.remove(target)
        self._movements.move(partition, source, target)
        self._assignment[source].remove(partition)
        self._assignment[target].append(partition)
        self._owner[partition] = target
        self._by_size.add(target)
        if target != source:
            self._by_size.add(source)


def _unevenness(assignment: Mapping[str, list[TopicPartition]]) -> int:
    """Returns the sum of the differences between all pairs of members."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * at - len(sizes) + 1) for at, size in enumerate(sizes))


def previous_owners(
    claims: Mapping[str, tuple[Iterable[TopicPartition], int | None]], max_generation: int
) -> dict[TopicPartition, str]:
    """Returns the owners in a generation before the latest one that a member reports."""
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, (partitions, told) in claims.items():
        generation = DEFAULT_GENERATION if told is None else told
        if generation >= max_generation:
            continue
        for partition in partitions:
            if partition not in found or generation > found[partition][0]:
                found[partition] = (generation, member)
    return {partition: member for partition, (_, member) in found.items()}
