"""Computes one step of a member from its current toward its target assignment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.common.dataclass import replace
from barnabas.common.errors import FencedMemberEpochError
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.consumer.assignment import Assignment, EpochAssignment
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState

NOT_OWNED = -1


class CurrentAssignmentBuilder:
    """Reconciles a member with its target assignment.

    A partition must never belong to two members. So a member first revokes, *then* others get::

        A owns 0 1 2, target 0           A: UNREVOKED 1 2, at its old epoch, until it reports that it owns only 0;
        B owns nothing, target 1 2       then STABLE at the new epoch
                                         B: UNRELEASED, at the new epoch; gets 1 2 as soon as A has revoked them

    A member waits only for those members that own its target partitions.
    """

    __slots__ = (
        "_current_partition_epoch",
        "_has_subscription_changed",
        "_member",
        "_owned",
        "_subscribed_topic_ids",
        "_target",
        "_target_epoch",
    )

    def __init__(
        self,
        member: ConsumerGroupMember,
        target_epoch: int,
        target: Assignment,
        current_partition_epoch: Callable[[Uuid, int], int],
        owned: Mapping[Uuid, Collection[int]] | None,
        subscribed_topic_ids: frozenset[Uuid],
        has_subscription_changed: bool = False,
    ) -> None:
        """`current_partition_epoch` returns the epoch of the owner of a partition, or -1.

        `owned` are the partitions that the member reports; None if it reports none, which means no change.
        """
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._current_partition_epoch = current_partition_epoch
        self._owned = owned
        self._subscribed_topic_ids = subscribed_topic_ids
        self._has_subscription_changed = has_subscription_changed

    def build(self) -> ConsumerGroupMember:
        member = self._member
        if member.state is MemberState.STABLE:
            if member.member_epoch != self._target_epoch:
                return self._next_assignment(member.member_epoch)
            return self._without_unsubscribed() if self._has_subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._owns_any_of(member.partitions_pending_revocation):
                return self._without_unsubscribed() if self._has_subscription_changed else member
            # It has revoked everything it had to, and advances to the next epoch. If that is not the last one, it may
            # have to revoke more, because others have joined meanwhile.
            return self._next_assignment(member.member_epoch + 1)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._next_assignment(member.member_epoch)
        if self._owned is None or any(self._owned.values()):
            raise FencedMemberEpochError(
                "The coordinator does not know the state of the member. It must abandon its partitions and rejoin."
            )
        return self._next_assignment(self._target_epoch)

    def _owns_any_of(self, assignment: EpochAssignment) -> bool:
        if self._owned is None:
            return True
        return any(
            not assignment.get(topic_id, {}).keys().isdisjoint(partitions)
            for topic_id, partitions in self._owned.items()
        )

    def _without_unsubscribed(self) -> ConsumerGroupMember:
        """Revokes topics that are no longer subscribed at once, before a new target exists."""
        member = self._member
        kept: dict[Uuid, Mapping[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {
            topic_id: dict(partitions) for topic_id, partitions in member.partitions_pending_revocation.items()
        }
        for topic_id, partitions in member.assigned_partitions.items():
            if topic_id in self._subscribed_topic_ids:
                kept[topic_id] = partitions
            else:
                revoked.setdefault(topic_id, {}).update(partitions)
        if len(kept) == len(member.assigned_partitions):
            return member
        if self._owns_any_of(revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned_partitions=kept,
                partitions_pending_revocation=revoked,
            )
        return replace(member, assigned_partitions=kept, partitions_pending_revocation={})

    def _next_assignment(self, member_epoch: int) -> ConsumerGroupMember:
        has_unreleased = False
        kept: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        gained: dict[Uuid, list[int]] = {}
        current = self._member.assigned_partitions
        for topic_id in {**self._target, **current}:
            # The target may be older than the subscription, and have topics that are no longer subscribed.
            target = self._target.get(topic_id, frozenset()) if topic_id in self._subscribed_topic_ids else frozenset()
            have = current.get(topic_id, {})
            keep = {partition: epoch for partition, epoch in have.items() if partition in target}
            lose = {partition: epoch for partition, epoch in have.items() if partition not in target}
            gain = []
            for partition in target:
                if partition in have:
                    continue
                if self._current_partition_epoch(topic_id, partition) != NOT_OWNED:
                    has_unreleased = True
                else:
                    gain.append(partition)
            if keep:
                kept[topic_id] = keep
            if lose:
                revoked[topic_id] = lose
            if gain:
                gained[topic_id] = gain
        member = self._member
        if revoked and self._owns_any_of(revoked):
            return member.with_next_epoch(member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        for topic_id, partitions in gained.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self._target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.with_next_epoch(self._target_epoch, state, kept, {})
