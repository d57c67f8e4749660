"""The interface of assignors: their input and their result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.consumer.assignment import Assignment


class PartitionAssignorError(Exception):
    """No assignment can be computed, because the group's state is inconsistent."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member as input of an assignor."""

    subscribed_topic_ids: frozenset[Uuid]
    assignment: Assignment
    """Its current target assignment, which a good assignor changes as little as possible."""
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as input of an assignor."""

    members: Mapping[str, MemberSubscription]
    num_partitions: Mapping[Uuid, int]
    """The number of partitions of all subscribed topics."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        members = iter(self.members.values())
        first = next(members, None)
        return first is None or all(one.subscribed_topic_ids == first.subscribed_topic_ids for one in members)

    def partitions_of(self, topic_id: Uuid) -> int:
        found = self.num_partitions.get(topic_id)
        if found is None:
            raise PartitionAssignorError("A member subscribes to a topic that does not exist")
        return found


class PartitionAssignor(Protocol):
    """Assigns partitions to members."""

    @property
    def name(self) -> str:
        """The name by which members select it."""
        ...

    def assign(self, spec: GroupSpec) -> dict[str, Assignment]:
        """Returns an assignment for each member. It must depend on `spec` only, so that it is reproducible."""
        ...
