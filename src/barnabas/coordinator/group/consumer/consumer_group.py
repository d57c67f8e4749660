"""A consumer group (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from barnabas.common.errors import (
    FencedInstanceIdError,
    GroupNotEmptyError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.snapshot_registry import LATEST_EPOCH, SnapshotRegistry, TimelineHashMap, TimelineObject
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.consumer.assignment import (
    NO_ASSIGNMENT,
    Assignment,
    EpochAssignment,
    ResolvedRegularExpression,
)
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState
from barnabas.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, GroupType, OffsetExpirationCondition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.metadata.topics import TopicsImage

INITIAL_EPOCH: Final = 1
"""The epoch of a new group and of its empty target assignment. A member that joins without changing anything, because
it subscribes to no topic yet, gets it; with 0 it would join again and again."""

NO_TARGET: Final = -1
"""The assignment epoch of a group that is being deleted."""

METADATA_REFRESH_INTERVAL_MS: Final = 3_600_000
"""How often a group checks its topics even without a metadata change."""

MEMBER_EPOCH_SINCE: Final = 9
"""The first version of OffsetCommit that has a member epoch instead of a generation."""


class ConsumerGroupState(Enum):
    """The state of a group, derived from its epochs; the values are the names in the protocol."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """Members or topics have changed, and the target assignment has not been computed yet."""
    RECONCILING = "Reconciling"
    """Some members have not received or revoked partitions of their target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """The members of a group, their target assignments, and their current assignments.

    Three epochs show its progress::

        group epoch         increases with each change of members, subscriptions or topics
        assignment epoch    the group epoch that the target assignment was computed for
        member epochs       the assignment epoch that each member has reached

    All are equal when nothing is left to do. Everything here results from replaying records, and is kept in timeline
    structures.
    """

    type = GroupType.CONSUMER

    def __init__(self, registry: SnapshotRegistry, group_id: str) -> None:
        self.group_id = group_id
        self._registry = registry
        self.group_epoch: TimelineObject[int] = TimelineObject(registry, INITIAL_EPOCH, nested=True)
        self.metadata_hash: TimelineObject[int] = TimelineObject(registry, 0, nested=True)
        """The hash of the subscribed topics, as of the group epoch."""
        self.assignment_epoch: TimelineObject[int] = TimelineObject(registry, INITIAL_EPOCH, nested=True)
        self.assignment_timestamp_ms: TimelineObject[int] = TimelineObject(registry, 0, nested=True)
        self.members: TimelineHashMap[str, ConsumerGroupMember] = TimelineHashMap(registry, nested=True)
        self.static_members: TimelineHashMap[str, str] = TimelineHashMap(registry, nested=True)
        self.target_assignment: TimelineHashMap[str, Assignment] = TimelineHashMap(registry, nested=True)
        self.resolved_regular_expressions: TimelineHashMap[str, ResolvedRegularExpression] = TimelineHashMap(
            registry, nested=True
        )
        self.has_subscription_metadata_record: TimelineObject[bool] = TimelineObject(registry, False, nested=True)
        """Whether an older Kafka has left a record that must be removed with the group."""
        self._subscribed_topics: TimelineHashMap[str, int] = TimelineHashMap(registry, nested=True)
        """The number of subscribed members by topic name."""
        self._regexes: TimelineHashMap[str, int] = TimelineHashMap(registry, nested=True)
        self._assignors: TimelineHashMap[str, int] = TimelineHashMap(registry, nested=True)
        self._classic_protocols: TimelineHashMap[str, int] = TimelineHashMap(registry, nested=True)
        self._num_classic_members: TimelineObject[int] = TimelineObject(registry, 0, nested=True)
        self._partition_epochs: TimelineHashMap[tuple[Uuid, int], int] = TimelineHashMap(registry, nested=True)
        """The epoch of the owning member, for each partition that has an owner."""
        self.metadata_refresh_deadline_ms = 0
        """When to check its topics again. Not in the log: a new coordinator checks at once."""
        self.metadata_refresh_epoch = -1

    # -- states

    def state(self, epoch: int = LATEST_EPOCH) -> ConsumerGroupState:
        members = self.members.items_at(epoch) if epoch != LATEST_EPOCH else self.members.items()
        if not members:
            return ConsumerGroupState.EMPTY
        assignment_epoch = self.assignment_epoch.get(epoch)
        if self.group_epoch.get(epoch) > assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(assignment_epoch) for _, member in members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def num_members_at(self, epoch: int) -> int:
        return len(self.members.items_at(epoch))

    def state_at(self, epoch: int) -> str:
        return self.state(epoch).value

    def protocol_type_at(self, epoch: int) -> str:  # noqa: ARG002 - the interface
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not len(self.members)

    @property
    def num_members(self) -> int:
        return len(self.members)

    @property
    def num_classic_protocol_members(self) -> int:
        return self._num_classic_members.get()

    # -- members

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def member(self, member_id: str) -> ConsumerGroupMember:
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member_id(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self.static_members.get(instance_id)

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def update_member(self, member: ConsumerGroupMember) -> None:
        """Adds or replaces a member."""
        before = self.members.get(member.member_id)
        self._count(before, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._remove_partition_epochs(before)
        self._add_partition_epochs(member.assigned_partitions, member.member_epoch)
        self._add_partition_epochs(member.partitions_pending_revocation, member.member_epoch)
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        before = self.members.pop(member_id)
        if before is None:
            return
        self._count(before, None)
        self._remove_partition_epochs(before)
        # Another member may have taken its instance ID.
        if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
            self.static_members.pop(before.instance_id)

    def _count(self, before: ConsumerGroupMember | None, after: ConsumerGroupMember | None) -> None:
        for counts, names in (
            (self._subscribed_topics, _topics_of),
            (self._regexes, _regex_of),
            (self._assignors, _assignor_of),
            (self._classic_protocols, _protocols_of),
        ):
            old = () if before is None else names(before)
            new = () if after is None else names(after)
            if old != new:
                for name in old:
                    _add(counts, name, -1)
                for name in new:
                    _add(counts, name, 1)
        change = (after is not None and after.uses_classic_protocol) - (
            before is not None and before.uses_classic_protocol
        )
        if change:
            self._num_classic_members.set(self._num_classic_members.get() + change)

    # -- partition ownership

    def current_partition_epoch(self, topic_id: Uuid, partition: int) -> int:
        """Returns the epoch of the member that owns a partition, or -1."""
        epoch = self._partition_epochs.get((topic_id, partition))
        return -1 if epoch is None else epoch

    def _add_partition_epochs(self, assignment: EpochAssignment, epoch: int) -> None:
        epochs = self._partition_epochs
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                key = (topic_id, partition)
                if key in epochs:
                    raise RuntimeError(f"partition {partition} of {topic_id!r} already has an owner in {self.group_id}")
                epochs[key] = epoch

    def _remove_partition_epochs(self, member: ConsumerGroupMember | None) -> None:
        if member is None:
            return
        for assignment in (member.assigned_partitions, member.partitions_pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    self._partition_epochs.pop((topic_id, partition))

    def target_of(self, member_id: str, instance_id: str | None = None) -> Assignment:
        """Returns the target assignment of a member. A just replaced static member is found by instance ID."""
        found = self.target_assignment.get(member_id)
        if found is None and instance_id is not None:
            previous = self.static_members.get(instance_id)
            found = None if previous is None else self.target_assignment.get(previous)
        return NO_ASSIGNMENT if found is None else found

    def waits_for_unreleased_partition(self, member: ConsumerGroupMember) -> bool:
        """Returns whether another step is impossible now, because other members still own its target partitions."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned_partitions.get(topic_id, {})
            and self.current_partition_epoch(topic_id, partition) != -1
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    # -- subscriptions

    @property
    def subscribed_regexes(self) -> list[str]:
        return list(self._regexes)

    def num_members_with_regex(self, regex: str) -> int:
        return self._regexes.get(regex, LATEST_EPOCH, 0)

    @property
    def subscribed_topic_names(self) -> set[str]:
        """All subscribed topics, by name or by pattern."""
        return self.subscribed_topic_names_if({})

    def subscribed_topic_names_if(self, found: Mapping[str, ResolvedRegularExpression]) -> set[str]:
        """Returns `subscribed_topic_names` as if the patterns matched these topics."""
        names = set(self._subscribed_topics)
        for regex in self._regexes:
            resolved = found.get(regex) or self.resolved_regular_expressions.get(regex)
            if resolved is not None:
                names |= resolved.topics
        return names

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Returns the topics that a member subscribes to, by name or by pattern."""
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        resolved = self.resolved_regular_expressions.get(member.subscribed_topic_regex)
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def subscribed_topic_names_with(
        self, before: Iterable[ConsumerGroupMember], after: ConsumerGroupMember | None
    ) -> set[str]:
        """Returns `subscribed_topic_names` with some members removed and another one added."""
        counts: Counter[str] = Counter(dict(self._subscribed_topics.items()))
        regexes: Counter[str] = Counter(dict(self._regexes.items()))
        for member in before:
            if member.member_id in self.members:
                counts.subtract(member.subscribed_topic_names)
                regexes.subtract(_regex_of(member))
        if after is not None:
            counts.update(after.subscribed_topic_names)
            regexes.update(_regex_of(after))
        names = {name for name, count in counts.items() if count > 0}
        for regex, count in regexes.items():
            resolved = self.resolved_regular_expressions.get(regex)
            if count > 0 and resolved is not None:
                names |= resolved.topics
        return names

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self._subscribed_topics or any(
            resolved is not None and topic in resolved.topics
            for resolved in map(self.resolved_regular_expressions.get, self._regexes)
        )

    def preferred_assignor(
        self,
        before: ConsumerGroupMember | None = None,
        after: ConsumerGroupMember | None = None,
        epoch: int = LATEST_EPOCH,
    ) -> str | None:
        """Returns the assignor that most members request; None if none do."""
        counts: Counter[str] = Counter(dict(self._assignors.items_at(epoch)))
        if before is not None and before.member_id in self.members:
            counts.subtract(_assignor_of(before))
        if after is not None:
            counts.update(_assignor_of(after))
        best = [(count, name) for name, count in counts.items() if count > 0]
        return max(best)[1] if best else None

    # -- the classic protocol

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a member of the classic protocol with these protocols could join."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        names = list(names)
        if self.is_empty:
            return bool(names)
        count = self.num_classic_protocol_members
        return any(self._classic_protocols.get(name, LATEST_EPOCH, 0) == count for name in names)

    def all_members_use_classic_protocol_except(self, members: Collection[ConsumerGroupMember]) -> bool:
        classic = sum(member.uses_classic_protocol for member in members)
        return self.num_classic_protocol_members - classic == len(self.members) - len(members)

    # -- refreshing

    def has_metadata_expired(self, now_ms: int) -> bool:
        """Returns whether its topics have to be checked again.

        A deadline of a failed operation has an epoch that never came into force, and is ignored.
        """
        return now_ms >= self.metadata_refresh_deadline_ms or self.group_epoch.get() < self.metadata_refresh_epoch

    def set_metadata_refresh_deadline(self, deadline_ms: int, epoch: int) -> None:
        self.metadata_refresh_deadline_ms = deadline_ms
        self.metadata_refresh_epoch = epoch

    def request_metadata_refresh(self) -> None:
        self.metadata_refresh_deadline_ms = 0
        self.metadata_refresh_epoch = -1

    # -- offsets

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        if generation_or_epoch < 0 and self.is_empty:
            return  # an administrator, or a consumer that assigns its partitions itself
        if generation_or_epoch < 0 and is_transactional and not member_id and instance_id is None:
            return  # a producer that does not send group metadata
        member = self.member(member_id)
        if instance_id is not None and self.static_members.get(instance_id) not in (None, member_id):
            raise FencedInstanceIdError
        if not is_transactional and api_version < MEMBER_EPOCH_SINCE and not member.uses_classic_protocol:
            raise UnsupportedVersionError(
                f"OffsetCommit v{MEMBER_EPOCH_SINCE} or later must be used by members of the consumer protocol."
            )
        epoch = generation_or_epoch
        if epoch == member.member_epoch:
            return
        if member.uses_classic_protocol:
            raise IllegalGenerationError(f"The current generation is {member.member_epoch}, not {epoch}.")
        if epoch > member.member_epoch or epoch < 0:
            raise StaleMemberEpochError(f"The current member epoch is {member.member_epoch}, not {epoch}.")

    def validate_partition_commit(
        self, member_id: str, epoch: int, topic_id: Uuid, topic: str, partition: int, topics: TopicsImage
    ) -> None:
        """Allows a member with an outdated epoch to commit for a partition that it has owned since then.

        No other member can have committed for it (KIP-1251).
        """
        member = self.members.get(member_id)
        if member is None or epoch < 0 or epoch >= member.member_epoch:
            return
        if topic_id == ZERO_UUID:
            image = topics.topic(topic)
            topic_id = ZERO_UUID if image is None else image.id
        since = member.assignment_epoch(topic_id, partition)
        if since is None or epoch < since:
            raise StaleMemberEpochError(
                f"The current member epoch is {member.member_epoch}; {topic}-{partition} was assigned after {epoch}."
            )

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return  # not a member, and does not claim to be
        member = self.members.get(member_id or "", epoch)
        if member is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        if member_epoch != member.member_epoch:
            if member.uses_classic_protocol:
                raise IllegalGenerationError(f"The current generation is {member.member_epoch}, not {member_epoch}.")
            raise StaleMemberEpochError(f"The current member epoch is {member.member_epoch}, not {member_epoch}.")

    def validate_offset_delete(self) -> None:
        """Allows it; subscribed topics are rejected one by one."""

    def validate_delete_group(self) -> None:
        if not self.is_empty:
            raise GroupNotEmptyError

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        return OffsetExpirationCondition(lambda offset: offset.commit_timestamp_ms)

    # -- records

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        self.create_tombstones_with_replaced_member(records, None, None)

    def create_tombstones_with_replaced_member(
        self, records: list[CoordinatorRecord], replaced: str | None, by: str | None
    ) -> None:
        """Writes tombstones for all records of the group, including those of a replaced member.

        The records of the replacement are in the same batch.
        """
        group_id = self.group_id
        ids = [by if member_id == replaced and by is not None else member_id for member_id in self.members]
        records.extend(group_records.consumer_group_current_assignment_tombstone(group_id, one) for one in ids)
        targets = [by if one == replaced and by is not None else one for one in self.target_assignment]
        records.extend(group_records.consumer_group_target_assignment_tombstone(group_id, one) for one in targets)
        records.append(group_records.consumer_group_target_assignment_epoch_tombstone(group_id))
        records.extend(group_records.consumer_group_member_subscription_tombstone(group_id, one) for one in ids)
        if self.has_subscription_metadata_record.get():
            records.append(group_records.consumer_group_subscription_metadata_tombstone(group_id))
        records.extend(
            group_records.consumer_group_regular_expression_tombstone(group_id, regex)
            for regex in self.resolved_regular_expressions
        )
        records.append(group_records.consumer_group_epoch_tombstone(group_id))

    def validate_no_longer_there(self) -> None:
        """Checks, while its last tombstone is replayed, that the others were replayed before."""
        if len(self.members) or len(self.target_assignment) or self.assignment_epoch.get() != NO_TARGET:
            raise RuntimeError(f"group {self.group_id} is deleted but not empty")

    def as_mapping(self) -> Mapping[str, object]:
        """Returns everything as ordinary values, for tests of a replay."""
        return {
            "epoch": self.group_epoch.get(),
            "hash": self.metadata_hash.get(),
            "assignment epoch": self.assignment_epoch.get(),
            "members": dict(self.members.items()),
            "static": dict(self.static_members.items()),
            "target": dict(self.target_assignment.items()),
            "regexes": dict(self.resolved_regular_expressions.items()),
            "partitions": dict(self._partition_epochs.items()),
        }

    def __repr__(self) -> str:
        return (
            f"ConsumerGroup({self.group_id!r}, {self.state().value}, epoch={self.group_epoch.get()}, "
            f"assignment_epoch={self.assignment_epoch.get()}, members={list(self.members)})"
        )


def _topics_of(member: ConsumerGroupMember) -> Iterable[str]:
    return member.subscribed_topic_names


def _regex_of(member: ConsumerGroupMember) -> Iterable[str]:
    return (member.subscribed_topic_regex,) if member.subscribed_topic_regex else ()


def _assignor_of(member: ConsumerGroupMember) -> Iterable[str]:
    return () if member.server_assignor_name is None else (member.server_assignor_name,)


def _protocols_of(member: ConsumerGroupMember) -> Iterable[str]:
    # Without duplicates: a member counts once per protocol.
    return tuple(dict.fromkeys(protocol.name for protocol in member.classic_protocols))


def _add(counts: TimelineHashMap[str, int], name: str, change: int) -> None:
    count = counts.get(name, LATEST_EPOCH, 0) + change
    if count > 0:
        counts[name] = count
    else:
        counts.pop(name)
