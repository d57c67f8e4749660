"""The ``range`` assignor."""

from __future__ import annotations

from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec, MemberSubscription
from barnabas.coordinator.group.consumer.assignment import Assignment


class RangeAssignor:
    """Assigns consecutive partitions of each topic, in the order of the members.

    Ten partitions and three members: 0-3, 4-6, 7-9. Topics with the same number of partitions are *co-partitioned*: the
    member that has partition 2 of one topic has partition 2 of the other, so they can be joined. The price is that the
    same members get more partitions of each topic.

    Static members come first, by instance ID, so that the order survives their restarts.
    """

    name = "range"

    def assign(self, spec: GroupSpec) -> dict[str, Assignment]:
        ordered = sorted(spec.members.items(), key=_order)
        subscribers: dict[Uuid, int] = {}
        for _, member in ordered:
            for topic_id in member.subscribed_topic_ids:
                subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
        quotas = {topic_id: divmod(spec.partitions_of(topic_id), count) for topic_id, count in subscribers.items()}
        turns: dict[Uuid, int] = dict.fromkeys(subscribers, 0)
        made: dict[str, Assignment] = {}
        for member_id, member in ordered:
            assignment: dict[Uuid, frozenset[int]] = {}
            for topic_id in member.subscribed_topic_ids:
                each, extra = quotas[topic_id]
                turn = turns[topic_id]
                turns[topic_id] = turn + 1
                start = turn * each + min(turn, extra)
                end = start + each + (turn < extra)
                if start < end:
                    assignment[topic_id] = frozenset(range(start, end))
            made[member_id] = assignment
        return made


def _order(item: tuple[str, MemberSubscription]) -> tuple[bool, str]:
    member_id, member = item
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)
