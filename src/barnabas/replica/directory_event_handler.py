"""Reports of log directory assignments and failures to the controller (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.identifiers import Uuid
from barnabas.replica.fetch.fetch_session import TopicIdPartition


class DirectoryEventHandler(Protocol):
    """Reports events of log directories to the controller."""

    def handle_assignment(
        self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Callable[[], object]
    ) -> None:
        """Reports the current or future directory of a replica; calls `callback` once the controller has stored it."""
        ...

    def handle_failure(self, directory_id: Uuid) -> None:
        """Reports that a directory has failed."""
        ...


class NoDirectoryEvents:
    """Reports nothing, and calls back at once."""

    def handle_assignment(
        self,
        partition: TopicIdPartition,  # noqa: ARG002
        directory_id: Uuid,  # noqa: ARG002
        reason: str,  # noqa: ARG002
        callback: Callable[[], object],
    ) -> None:
        callback()

    def handle_failure(self, directory_id: Uuid) -> None: ...
