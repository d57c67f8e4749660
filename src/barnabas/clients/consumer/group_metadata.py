"""Who a consumer is in its group, and how it goes when it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from barnabas.clients.common.offsets import ConsumerGroupMetadata

__all__ = ["CloseOptions", "ConsumerGroupMetadata", "GroupMembershipOperation"]


class GroupMembershipOperation(Enum):
    """What becomes of the membership when a consumer is closed (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves, and its partitions go to others at once. A static member stays: it is expected back
    before its session ends, and nobody else gets its partitions until then."""
    LEAVE_GROUP = "leave"
    """Leave, static or not."""
    REMAIN_IN_GROUP = "remain"
    """Stay, static or not; the partitions are free when the session has timed out."""


@dataclass(frozen=True, slots=True)
class CloseOptions:
    """How to close a consumer. Without a timeout it is 30 seconds."""

    timeout_ms: int | None = None
    group_membership_operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT
