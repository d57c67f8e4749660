"""A member of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from barnabas.common.dataclass import dataclass, field, replace
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.consumer.assignment import EpochAssignment
from barnabas.protocol.internal.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol

LEAVE_GROUP_MEMBER_EPOCH: Final = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH: Final = -2


class MemberState(Enum):
    """The progress of a member in a rebalance; the values are those of its record."""

    STABLE = 0
    """It has its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions, and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still own."""
    UNKNOWN = 127
    """Written by a later version; the member must rejoin."""

    @classmethod
    def from_value(cls, value: int) -> MemberState:
        return _STATES.get(value, cls.UNKNOWN)


_STATES = {state.value: state for state in MemberState}


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """The state of a member. Immutable: each step creates a new one, and a record of it.

    *Epochs* keep member and coordinator in agreement. The member epoch increases when the member has revoked its
    partitions. The previous epoch is also accepted, in case the response with the new one was lost.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor_name: str | None = None
    state: MemberState = MemberState.STABLE
    assigned_partitions: EpochAssignment = field(default_factory=dict)
    """Partitions that it owns and keeps."""
    partitions_pending_revocation: EpochAssignment = field(default_factory=dict)
    """Partitions that it owns and must revoke; they are not assigned to others before that."""
    classic_member_metadata: ClassicMemberMetadata | None = None
    """Set while it uses the classic protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic_member_metadata is not None

    @property
    def classic_session_timeout_ms(self) -> int:
        assert self.classic_member_metadata is not None
        return self.classic_member_metadata.session_timeout_ms

    @property
    def classic_protocols(self) -> list[ClassicProtocol]:
        return [] if self.classic_member_metadata is None else self.classic_member_metadata.supported_protocols

    @property
    def join_group_protocols(self) -> list[JoinGroupRequestProtocol]:
        return [JoinGroupRequestProtocol(name=one.name, metadata=one.metadata) for one in self.classic_protocols]

    def is_reconciled_to(self, target_assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_assignment_epoch

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Returns the epoch since which it owns a partition, including one that it must revoke, or None."""
        epoch = self.assigned_partitions.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.partitions_pending_revocation.get(topic_id, {}).get(partition)
        return epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerGroupMember:
        """Returns the member after a subscription record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            server_assignor_name=value.server_assignor,
            classic_member_metadata=value.classic_member_metadata,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerGroupMember:
        """Returns the member after an assignment record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.from_value(value.state),
            assigned_partitions=_with_epochs(value.assigned_partitions, value.member_epoch),
            partitions_pending_revocation=_with_epochs(value.partitions_pending_revocation, value.member_epoch),
        )

    def with_next_epoch(
        self, epoch: int, state: MemberState, assigned: EpochAssignment, pending: EpochAssignment
    ) -> ConsumerGroupMember:
        """Returns the member after a step of a rebalance. The previous epoch becomes the one it had, even if equal."""
        return replace(
            self,
            state=state,
            previous_member_epoch=self.member_epoch,
            member_epoch=epoch,
            assigned_partitions=assigned,
            partitions_pending_revocation=pending,
        )


def _with_epochs(topic_partitions: Sequence[TopicPartitions], member_epoch: int) -> dict[Uuid, dict[int, int]]:
    """Adds epochs. Records of Kafka before 4.2 have none: then a partition is assigned since the record's epoch."""
    made: dict[Uuid, dict[int, int]] = {}
    for entry in topic_partitions:
        epochs = entry.assignment_epochs
        if not epochs or len(epochs) != len(entry.partitions):
            epochs = [member_epoch] * len(entry.partitions)
        made[entry.topic_id] = dict(zip(entry.partitions, epochs, strict=True))
    return made
