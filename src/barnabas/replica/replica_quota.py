"""How much replication traffic a broker may have, from the point of view of those who read for followers."""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.common.topic_partition import TopicPartition


class ReplicaQuota(Protocol):
    """A limit on bytes that go to followers, for the partitions that it has been set for."""

    def record(self, value: int) -> None:
        """So many bytes have been sent."""
        ...

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Whether the limit counts for this partition."""
        ...

    @property
    def is_quota_exceeded(self) -> bool: ...


class UnboundedQuota:
    """No limit."""

    __slots__ = ()

    is_quota_exceeded: Final = False

    def record(self, value: int) -> None:
        """Nobody counts."""

    def is_throttled(self, partition: TopicPartition) -> bool:  # noqa: ARG002 - no partition is
        return False


UNBOUNDED_QUOTA: Final = UnboundedQuota()
