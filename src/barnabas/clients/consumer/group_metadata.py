"""A consumer's identity in its group, and its options for closing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from barnabas.clients.common.offsets import ConsumerGroupMetadata

__all__ = ["CloseOptions", "ConsumerGroupMetadata", "GroupMembershipOperation"]


class GroupMembershipOperation(Enum):
    """What happens to the membership when a consumer is closed (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves, and its partitions are reassigned at once. A static member stays: it may return before
    its session times out, and keeps its partitions until then."""
    LEAVE_GROUP = "leave"
    """Leave, whether static or dynamic."""
    REMAIN_IN_GROUP = "remain"
    """Stay, whether static or dynamic; the partitions are reassigned after the session timeout."""


@dataclass(frozen=True, slots=True)
class CloseOptions:
    """How to close a consumer. The default timeout is 30 seconds."""

    timeout_ms: int | None = None
    group_membership_operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT
