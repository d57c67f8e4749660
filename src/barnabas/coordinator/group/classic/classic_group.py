"""A classic group."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final, TypeVar

from barnabas.common.errors import (
    CoordinatorNotAvailableError,
    Errors,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    IllegalGenerationError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.classic.classic_group_member import ClassicGroupMember
from barnabas.coordinator.group.classic.classic_group_state import VALID_PREVIOUS_STATES, ClassicGroupState
from barnabas.coordinator.group.consumer_protocol import read_subscribed_topics
from barnabas.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, GroupType, OffsetExpirationCondition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.protocol.messages.sync_group import SyncGroupResponse

logger = LimitedLogger(logging.getLogger(__name__))

MAX_PENDING_JOINS: Final = 1_000
"""How many assigned member IDs of a group may wait for their second JoinGroup, which a client sends at once."""

T = TypeVar("T")

_State = ClassicGroupState


class ClassicGroup:
    """The members of a classic group, and the state of its rebalance.

    Unlike everything else in a coordinator, this uses ordinary fields instead of timeline structures: most of it
    (pending requests) is never written to the log. Only the result of a rebalance is written, and the group becomes
    stable when that is committed; so no state ever has to be reverted. After a failover, members find the group in its
    last stable state and continue.
    """

    type = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        now_ms: Callable[[], int],
        state: ClassicGroupState = _State.EMPTY,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        current_state_timestamp_ms: int | None = None,
    ) -> None:
        self.group_id = group_id
        self._now_ms = now_ms
        self.state = state
        self.previous_state = _State.DEAD
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.current_state_timestamp_ms = current_state_timestamp_ms
        """The time of the last state change; offsets of an empty group expire from then on."""
        self.members: dict[str, ClassicGroupMember] = {}
        """In the order of joining."""
        self.static_members: dict[str, str] = {}
        """Member IDs by instance ID."""
        self.pending_join_members: dict[str, None] = {}
        """IDs that were assigned with MEMBER_ID_REQUIRED, and have not joined yet; the oldest first."""
        self.pending_sync_members: set[str] = set()
        self.num_awaiting_join = 0
        self.new_member_added = False
        """Whether a member has joined during the initial rebalance delay, which is extended then."""
        self.subscribed_topics: set[str] | None = None
        """The topics of all members; None if unknown, as for protocol types other than "consumer"."""
        self._supported_protocols: Counter[str] = Counter()

    # -- states

    def is_in_state(self, state: ClassicGroupState) -> bool:
        return self.state is state

    @property
    def is_empty(self) -> bool:
        return self.state is _State.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[_State.PREPARING_REBALANCE]

    def transition_to(self, target: ClassicGroupState) -> None:
        if not self.state.can_transition_to(target):
            raise RuntimeError(f"group {self.group_id} cannot change from {self.state.value} to {target.value}")
        self.previous_state = self.state
        self.state = target
        self.current_state_timestamp_ms = self._now_ms()

    @property
    def current_state_timestamp_or_default(self) -> int:
        return -1 if self.current_state_timestamp_ms is None else self.current_state_timestamp_ms

    # -- members

    @property
    def num_members(self) -> int:
        return len(self.members)

    def num_members_at(self, epoch: int) -> int:  # noqa: ARG002 - the interface
        return len(self.members)

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_pending_member(self, member_id: str) -> bool:
        return member_id in self.pending_join_members

    def generate_member_id(self, client_id: str, instance_id: str | None) -> str:
        from uuid import uuid4

        return f"{client_id if instance_id is None else instance_id}-{uuid4()}"

    def add(self, member: ClassicGroupMember, future: Future[JoinGroupResponse] | None = None) -> None:
        """Adds a member, whose JoinGroup waits for `future` if given."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise RuntimeError(f"group {self.group_id} already has the instance {member.group_instance_id}")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.protocol_type != member.protocol_type or not self.supports_protocols(
            member.protocol_type, member.protocol_names
        ):
            raise RuntimeError(f"group {self.group_id} does not support the protocols of {member}")
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported_protocols.update(member.protocol_names)
        member.awaiting_join_future = future
        if future is not None:
            self.num_awaiting_join += 1
        self.pending_join_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supported_protocols.subtract(member.protocol_names)
            if member.is_awaiting_join:
                self.num_awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.discard(member_id)

    def add_pending_member(self, member_id: str) -> str | None:
        """Adds an assigned ID. Removes and returns the oldest one if there are more than MAX_PENDING_JOINS."""
        if member_id in self.members:
            raise RuntimeError(f"group {self.group_id} already has the member {member_id}")
        self.pending_join_members[member_id] = None
        if len(self.pending_join_members) <= MAX_PENDING_JOINS:
            return None
        oldest = next(iter(self.pending_join_members))
        del self.pending_join_members[oldest]
        return oldest

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: Sequence[JoinGroupRequestProtocol],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        future: Future[JoinGroupResponse] | None,
    ) -> None:
        self._supported_protocols.subtract(member.protocol_names)
        member.supported_protocols = list(protocols)
        self._supported_protocols.update(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.num_awaiting_join += (future is not None) - member.is_awaiting_join
        member.awaiting_join_future = future

    def replace_static_member(self, instance_id: str, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Replaces the member ID of a static member. Pending requests of the old one fail with FENCED_INSTANCE_ID."""
        old = self.members[old_member_id]
        self.complete_join_future(
            old,
            JoinGroupResponse(member_id=old_member_id, protocol_name=None, error_code=Errors.FENCED_INSTANCE_ID),
        )
        self.complete_sync_future(old, SyncGroupResponse(error_code=Errors.FENCED_INSTANCE_ID))
        new = ClassicGroupMember(
            new_member_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.supported_protocols,
            old.assignment,
        )
        # Keeps its place, because the order of members decides about the next leader.
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): (
                new if member_id == old_member_id else member
            )
            for member_id, member in self.members.items()
        }
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return new

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise UnknownMemberIdError
            if existing != member_id:
                raise FencedInstanceIdError
        if member_id not in self.members:
            raise UnknownMemberIdError

    # -- rebalance

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.num_awaiting_join and not self.pending_join_members

    @property
    def not_yet_rejoined_members(self) -> list[ClassicGroupMember]:
        return [member for member in self.members.values() if not member.is_awaiting_join]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def maybe_elect_new_joined_leader(self) -> bool:
        """Elects a leader among the members that have joined; returns False if there are none."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                logger.info(
                    "Group %s: replacing the leader %s, which did not rejoin, by %s",
                    self.group_id,
                    self.leader_id,
                    member,
                )
                self.leader_id = member.member_id
                return True
        return False

    def complete_join_future(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        future = member.awaiting_join_future
        if future is None:
            return False
        member.awaiting_join_future = None
        self.num_awaiting_join -= 1
        _complete(future, response)
        return True

    def complete_sync_future(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        future = member.awaiting_sync_future
        if future is None:
            return False
        member.awaiting_sync_future = None
        _complete(future, response)
        return True

    def complete_all_futures(self, error: Errors) -> None:
        for member in list(self.members.values()):
            self.complete_join_future(member, JoinGroupResponse(member_id=member.member_id, error_code=error))
            self.complete_sync_future(member, SyncGroupResponse(error_code=error))

    def init_next_generation(self) -> None:
        """Starts the next generation, after the join phase."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(_State.COMPLETING_REBALANCE)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(_State.EMPTY)
        self.pending_sync_members.clear()

    @property
    def current_members(self) -> list[JoinGroupResponseMember]:
        """Returns the members as sent to the leader."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    @property
    def assignment(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    # -- protocols

    def supports_protocols(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Returns whether a member with these protocols could join."""
        if self.state is _State.EMPTY:
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported_protocols[name] == count for name in names)

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes, among those that all members support."""
        candidates = {name for name, count in self._supported_protocols.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def uses_consumer_group_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple_group(self) -> bool:
        """Whether no member ever joined: the group only has committed offsets."""
        return self.state is _State.EMPTY and self.protocol_type is None and not self.pending_join_members

    def compute_subscribed_topics(self) -> set[str] | None:
        if not self.uses_consumer_group_protocol:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics |= read_subscribed_topics(member.metadata(self.protocol_name))
        except ProtocolError as error:
            logger.warning("Group %s: cannot decode the subscription of a member: %s", self.group_id, error)
            return None
        return topics

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Returns True if the subscription is unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_group_protocol
        return topic in self.subscribed_topics

    # -- offsets

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,  # noqa: ARG002 - the interface
    ) -> None:
        if self.state is _State.DEAD:
            raise CoordinatorNotAvailableError
        if generation_or_epoch < 0 and self.state is _State.EMPTY:
            return  # an admin tool, or a consumer that assigns its partitions itself
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if generation_or_epoch != self.generation_id:
                raise IllegalGenerationError
        elif not is_transactional and self.state is not _State.EMPTY:
            raise UnknownMemberIdError
        if not is_transactional and self.state is _State.COMPLETING_REBALANCE:
            # It has not received its assignment, so it commits for the previous one.
            raise RebalanceInProgressError

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, epoch: int) -> None:  # noqa: ARG002 - the interface
        if self.state is _State.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is dead.")

    def validate_offset_delete(self) -> None:
        if self.state is _State.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is dead.")
        if self.state is not _State.EMPTY and not self.uses_consumer_group_protocol:
            raise GroupNotEmptyError

    def validate_delete_group(self) -> None:
        if self.state is _State.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is dead.")
        if self.state is not _State.EMPTY:
            raise GroupNotEmptyError

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        if self.protocol_type is None:
            # No member ever joined, so the group has no last activity: each offset expires by itself.
            return _SINCE_COMMIT
        if self.state is _State.EMPTY:
            since = self.current_state_timestamp_ms
            return OffsetExpirationCondition(lambda offset: offset.commit_timestamp_ms if since is None else since)
        if self.uses_consumer_group_protocol and self.subscribed_topics is not None and self.state is _State.STABLE:
            # Offsets of topics that are no longer subscribed.
            return _SINCE_COMMIT
        return None

    # -- description

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        records.append(group_records.group_metadata_tombstone(self.group_id))

    def state_at(self, epoch: int) -> str:  # noqa: ARG002 - the interface
        return self.state.value

    def protocol_type_at(self, epoch: int) -> str:  # noqa: ARG002 - the interface
        return self.protocol_type or ""

    def __repr__(self) -> str:
        return (
            f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation_id}, "
            f"leader={self.leader_id!r}, members={list(self.members.values())})"
        )


_SINCE_COMMIT = OffsetExpirationCondition(lambda offset: offset.commit_timestamp_ms)


def _complete(future: Future[T], response: T) -> None:
    # The request of a member may have failed with a shared write, while the member stays in the group.
    with suppress(InvalidStateError):
        future.set_result(response)
