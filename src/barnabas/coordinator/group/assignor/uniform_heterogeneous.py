"""The uniform assignment of a group whose members subscribe to different topics."""

from __future__ import annotations

from typing import Final

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec
from barnabas.coordinator.group.consumer.assignment import Assignment

MAX_ITERATIONS: Final = 16
"""The maximum number of passes over all topics to improve the balance. Two or three are enough in practice."""


class UniformHeterogeneousAssignment:
    """Assigns partitions evenly to members with different subscriptions.

    It keeps current assignments where possible, assigns free partitions to the least loaded members, and then moves
    partitions from the most to the least loaded members, topic by topic, until the balance does not improve.

    Topics with many partitions per subscriber come first, because they leave the least choice.

    Example: A subscribes to t (4 partitions), B to t and u (2 partitions). Nothing is assigned yet. u has 2 partitions
    per subscriber and must go to B; of t, A gets 3 and B 1.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        self._sizes = [0] * len(self._member_ids)
        """The number of partitions of each member."""
        self._subscribers: dict[Uuid, list[int]] = {}
        for index, member in enumerate(spec.members.values()):
            for topic_id in member.subscribed_topic_ids:
                spec.partitions_of(topic_id)
                self._subscribers.setdefault(topic_id, []).append(index)
        self._owners: dict[Uuid, list[int | None]] = {
            topic_id: [None] * spec.partitions_of(topic_id) for topic_id in self._subscribers
        }
        self._topics = sorted(self._subscribers, key=self._priority)

    def _priority(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        count = len(self._subscribers[topic_id])
        return -self._spec.partitions_of(topic_id) / count, count, topic_id

    def build(self) -> dict[str, Assignment]:
        self._keep()
        self._assign_free()
        self._balance()
        made: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None
                made[self._member_ids[owner]].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items()}
            for member_id, assignment in made.items()
        }

    def _keep(self) -> None:
        for index, member in enumerate(self._spec.members.values()):
            for topic_id, partitions in member.assignment.items():
                if topic_id not in member.subscribed_topic_ids:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] is None:
                        owners[partition] = index
                        self._sizes[index] += 1

    def _assign_free(self) -> None:
        for topic_id in self._topics:
            subscribers, owners = self._subscribers[topic_id], self._owners[topic_id]
            for partition, owner in enumerate(owners):
                if owner is None:
                    least = self._least_loaded(subscribers)
                    owners[partition] = least
                    self._sizes[least] += 1

    def _balance(self) -> None:
        candidates = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        for _ in range(MAX_ITERATIONS):
            moved = [self._balance_topic(topic_id) for topic_id in candidates]
            if not any(moved):
                return

    def _balance_topic(self, topic_id: Uuid) -> bool:
        """Moves partitions of one topic to its least loaded subscribers; returns whether any was moved."""
        subscribers, owners = self._subscribers[topic_id], self._owners[topic_id]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            assert owner is not None
            held.setdefault(owner, []).append(partition)
        moved = False
        while True:
            least = self._least_loaded(subscribers)
            most = max((one for one in held if held[one]), key=lambda one: (self._sizes[one], one), default=least)
            # A difference of one cannot be improved: the partition would only change places.
            if self._sizes[most] - self._sizes[least] <= 1:
                return moved
            partition = held[most].pop()
            held.setdefault(least, []).append(partition)
            owners[partition] = least
            self._sizes[most] -= 1
            self._sizes[least] += 1
            moved = True

    def _least_loaded(self, subscribers: list[int]) -> int:
        return min(subscribers, key=lambda one: (self._sizes[one], one))
