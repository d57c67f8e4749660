"""The settings of a consumer that concern its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from barnabas.clients.consumer.consumer_config import ConsumerConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What members and commits go by."""

    group_id: str
    group_instance_id: str | None = None
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also how long a member may take for a rebalance: it has to poll for that."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    leave_group_on_close: bool = True

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self:
        assert config.group_id is not None
        return cls(
            group_id=config.group_id,
            group_instance_id=config.group_instance_id,
            group_remote_assignor=config.group_remote_assignor,
            client_rack=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            enable_auto_commit=config.enable_auto_commit,
            auto_commit_interval_ms=config.auto_commit_interval_ms,
            leave_group_on_close=config.leave_group_on_close,
        )
