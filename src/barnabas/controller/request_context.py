"""The context of a controller request."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.dataclass import dataclass

ANONYMOUS = "User:ANONYMOUS"


def no_quota(_partitions: int) -> None:
    """Allows any number of partitions to be created or deleted."""


@dataclass(frozen=True, slots=True)
class ControllerRequestContext:
    """The principal, version, deadline and quota of a request.

    ``partition_change_quota`` is the controller mutation quota (KIP-599). It is called with the number of partitions
    that a topic is about to gain or lose, before its records are generated, and raises ThrottlingQuotaExceededError to
    refuse the change. That topic fails with THROTTLING_QUOTA_EXCEEDED; the other topics of the request continue. For
    clients too old to know the error it never raises; the client is throttled afterwards.
    """

    principal: str = ANONYMOUS
    """The requester, as ``type:name``; for a forwarded request the client, not the broker."""
    deadline_ns: int | None = None
    """On the steady clock. A request that is still queued at this time fails with REQUEST_TIMED_OUT."""
    request_version: int = 0
    client_id: str = ""
    partition_change_quota: Callable[[int], None] = no_quota

    def apply_partition_change_quota(self, partitions: int) -> None:
        self.partition_change_quota(partitions)
