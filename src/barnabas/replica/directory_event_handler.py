"""What the controller has to be told about log directories (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.identifiers import Uuid
from barnabas.replica.fetch_session import TopicIdPartition


class DirectoryEventHandler(Protocol):
    """Who tells the controller."""

    def handle_assignment(
        self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Callable[[], object]
    ) -> None:
        """A replica is in this directory, or is about to be; `callback` is called once the controller has noted it."""
        ...

    def handle_failure(self, directory_id: Uuid) -> None:
        """A directory has failed."""
        ...


class NoDirectoryEvents:
    """Nobody wants to know."""

    def handle_assignment(
        self,
        partition: TopicIdPartition,  # noqa: ARG002
        directory_id: Uuid,  # noqa: ARG002
        reason: str,  # noqa: ARG002
        callback: Callable[[], object],
    ) -> None:
        callback()

    def handle_failure(self, directory_id: Uuid) -> None: ...
