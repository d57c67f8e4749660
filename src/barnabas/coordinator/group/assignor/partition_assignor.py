"""What an assignor gets to know, and what it has to find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.consumer.assignment import Assignment


class PartitionAssignorError(Exception):
    """There is no assignment: something about the group makes no sense."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member, as far as an assignor is concerned."""

    subscribed_topic_ids: frozenset[Uuid]
    assignment: Assignment
    """The one it is to have so far, which a good assignor changes as little as possible."""
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group, as far as an assignor is concerned."""

    members: Mapping[str, MemberSubscription]
    num_partitions: Mapping[Uuid, int]
    """Of all topics that somebody is subscribed to."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all are subscribed to the same topics."""
        members = iter(self.members.values())
        first = next(members, None)
        return first is None or all(one.subscribed_topic_ids == first.subscribed_topic_ids for one in members)

    def partitions_of(self, topic_id: Uuid) -> int:
        found = self.num_partitions.get(topic_id)
        if found is None:
            raise PartitionAssignorError("A member subscribes to a topic that does not exist")
        return found


class PartitionAssignor(Protocol):
    """Decides who gets which partitions."""

    @property
    def name(self) -> str:
        """Under which members ask for it."""
        ...

    def assign(self, spec: GroupSpec) -> dict[str, Assignment]:
        """An assignment for each member. A function of `spec` alone: the same group must get the same."""
        ...
