"""The interface of replication quotas."""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.common.topic_partition import TopicPartition


class ReplicaQuota(Protocol):
    """A limit on the bytes of replication, for the partitions that it is configured for."""

    def record(self, value: int) -> None:
        """Counts replicated bytes."""
        ...

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Whether the limit applies to this partition."""
        ...

    @property
    def is_quota_exceeded(self) -> bool: ...


class UnboundedQuota:
    """No limit."""

    __slots__ = ()

    is_quota_exceeded: Final = False

    def record(self, value: int) -> None:
        """Does nothing."""

    def is_throttled(self, partition: TopicPartition) -> bool:  # noqa: ARG002 - no partition is
        return False


UNBOUNDED_QUOTA: Final = UnboundedQuota()
