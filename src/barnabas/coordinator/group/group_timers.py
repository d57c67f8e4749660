"""The keys of group timers: one per group or member, so that scheduling a timer again replaces it.

Clients choose the names of groups, and many of their member IDs. The key of a member has the length of the group's
name, because ``g`` and ``a-b`` would otherwise be ``g-a`` and ``b``. Kinds of timers have different prefixes, none of
which continues another.
"""

from __future__ import annotations


def classic_heartbeat(group_id: str, member_id: str) -> str:
    return f"heartbeat-{len(group_id)}-{group_id}-{member_id}"


def classic_join(group_id: str) -> str:
    return f"join-{group_id}"


def classic_sync(group_id: str) -> str:
    return f"sync-{group_id}"


def session_timeout(group_id: str, member_id: str) -> str:
    return f"session-timeout-{len(group_id)}-{group_id}-{member_id}"


def rebalance_timeout(group_id: str, member_id: str) -> str:
    return f"rebalance-timeout-{len(group_id)}-{group_id}-{member_id}"


def consumer_join(group_id: str, member_id: str) -> str:
    return f"member-join-{len(group_id)}-{group_id}-{member_id}"


def consumer_sync(group_id: str, member_id: str) -> str:
    return f"member-sync-{len(group_id)}-{group_id}-{member_id}"


EXPIRE_OFFSETS = "expire-group-metadata"
REFRESH_METRICS = "refresh-group-metrics"
