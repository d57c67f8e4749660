"""The ``uniform`` assignor, the default."""

from __future__ import annotations

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec
from barnabas.coordinator.group.assignor.uniform_heterogeneous import UniformHeterogeneousAssignment
from barnabas.coordinator.group.consumer.assignment import Assignment


class UniformAssignor:
    """Assigns the same number of partitions to all members, plus or minus one, and moves as few as possible.

    If all members subscribe to the same topics, `_assign_homogeneous` computes a quota for each member. A member gives
    up what exceeds its quota, and gets free partitions until the quota is filled. If the number is not divisible, some
    members get one more, preferably those that already have it. Otherwise partitions have to be moved between members:
    see `UniformHeterogeneousAssignment`.
    """

    name = "uniform"

    def assign(self, spec: GroupSpec) -> dict[str, Assignment]:
        if not spec.members:
            return {}
        if spec.is_homogeneous:
            return _assign_homogeneous(spec)
        return UniformHeterogeneousAssignment(spec).build()


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    topic_ids = next(iter(spec.members.values())).subscribed_topic_ids
    if not topic_ids:
        return {member_id: {} for member_id in spec.members}
    sizes = {topic_id: spec.partitions_of(topic_id) for topic_id in topic_ids}
    total = sum(sizes.values())
    quota, extra = divmod(total, len(spec.members))
    kept: dict[str, dict[Uuid, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    taken: set[tuple[Uuid, int]] = set()
    for index, (member_id, member) in enumerate(spec.members.items()):
        room = quota + (extra > 0)
        mine: dict[Uuid, set[int]] = {}
        for topic_id, partitions in member.assignment.items():
            if topic_id not in topic_ids:
                continue
            size = sizes[topic_id]
            valid = sorted(
                partition for partition in partitions if partition < size and (topic_id, partition) not in taken
            )
            keep = valid[:room]
            if keep:
                mine[topic_id] = set(keep)
                taken.update((topic_id, partition) for partition in keep)
                room -= len(keep)
        kept[member_id] = mine
        if extra > 0:
            if room > 0 and len(spec.members) - index > extra:
                room -= 1  # it has fewer, and a later member may have one to keep
            else:
                extra -= 1
        if room > 0:
            unfilled.append((member_id, room))
    free = (
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(sizes[topic_id])
        if (topic_id, partition) not in taken
    )
    for member_id, room in unfilled:
        mine = kept[member_id]
        for _ in range(room):
            found = next(free, None)
            if found is None:
                break
            mine.setdefault(found[0], set()).add(found[1])
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in mine.items()}
        for member_id, mine in kept.items()
    }
