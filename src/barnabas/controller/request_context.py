"""What the controller knows about a request besides its body."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.dataclass import dataclass

ANONYMOUS = "User:ANONYMOUS"


def no_quota(_partitions: int) -> None:
    """Lets any number of partitions be created or deleted."""


@dataclass(frozen=True, slots=True)
class ControllerRequestContext:
    """Who asks, in which version, until when, and at whose expense.

    ``partition_change_quota`` is the controller mutation quota (KIP-599): it is called with the number of partitions
    that a topic is about to gain or lose, before a record for it exists, and raises ThrottlingQuotaExceededError to
    keep that from happening. The topic then fails with THROTTLING_QUOTA_EXCEEDED and the others of the request go on.
    For clients too old to know the error it never raises, and the client is slowed down afterwards.
    """

    principal: str = ANONYMOUS
    """Who asks, as ``type:name``; for a forwarded request the client, not the broker."""
    deadline_ns: int | None = None
    """On the steady clock. A request that is still in the queue then is answered with REQUEST_TIMED_OUT."""
    request_version: int = 0
    client_id: str = ""
    partition_change_quota: Callable[[int], None] = no_quota

    def apply_partition_change_quota(self, partitions: int) -> None:
        self.partition_change_quota(partitions)


ANONYMOUS_CONTEXT = ControllerRequestContext()
"""For what the controller's own node does."""
