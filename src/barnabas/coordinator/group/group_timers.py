"""The keys of group timers: one per group or member, so that scheduling a timer again replaces it."""

from __future__ import annotations


def classic_heartbeat(group_id: str, member_id: str) -> str:
    return f"heartbeat-{group_id}-{member_id}"


def classic_join(group_id: str) -> str:
    return f"join-{group_id}"


def classic_sync(group_id: str) -> str:
    return f"sync-{group_id}"


def session_timeout(group_id: str, member_id: str) -> str:
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_timeout(group_id: str, member_id: str) -> str:
    return f"rebalance-timeout-{group_id}-{member_id}"


def consumer_join(group_id: str, member_id: str) -> str:
    return f"join-{group_id}-{member_id}"


def consumer_sync(group_id: str, member_id: str) -> str:
    return f"sync-{group_id}-{member_id}"


EXPIRE_OFFSETS = "expire-group-metadata"
REFRESH_METRICS = "refresh-group-metrics"
