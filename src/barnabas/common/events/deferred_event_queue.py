"""Defers responses until their records are committed."""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

log = logging.getLogger(__name__)


class DeferredEvent(Protocol):
    """An event that completes when the log is committed up to an offset."""

    def complete(self, error: Exception | None) -> None:
        """Completes the event: with None if committed, with an error if it failed or the outcome is unknown."""
        ...


class DeferredEventQueue:
    """A purgatory of responses: a queue ordered by offset, whose head completes as the log is committed.

    It belongs to one thread at a time, that of the controller's or the coordinator's event loop.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[tuple[int, DeferredEvent]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def highest_pending_offset(self) -> int | None:
        return self._pending[-1][0] if self._pending else None

    def add(self, offset: int, event: DeferredEvent) -> None:
        highest = self.highest_pending_offset
        if highest is not None and offset < highest:
            raise ValueError(f"cannot wait for offset {offset}: the last event waits for {highest}")
        self._pending.append((offset, event))

    def complete_up_to(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            self._complete(self._pending.popleft()[1], None)

    def fail_all(self, error: Exception) -> None:
        while self._pending:
            self._complete(self._pending.popleft()[1], error)

    def _complete(self, event: DeferredEvent, error: Exception | None) -> None:
        try:
            event.complete(error)
        except Exception:
            log.exception("Completing %s failed", event)
