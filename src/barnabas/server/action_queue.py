"""Queues of actions that run at the end of a request, when its locks are free."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas.common.log_safety import LimitedLogger

log = LimitedLogger(logging.getLogger(__name__))

Action = Callable[[], object]


class ActionQueue(Protocol):
    """Collects the follow-up actions of a request, such as completing operations of other requests."""

    def add(self, action: Action) -> None: ...

    def try_complete_actions(self) -> int:
        """Runs the pending actions of this thread; returns how many there were."""
        ...


class DelayedActionQueue:
    """Defers actions until the request that added them is done.

    An append to a partition may complete the fetches that wait for its data. But the append runs under the partition's
    lock, and completing a fetch takes the fetch's lock and then the partition's. Doing it immediately would take the
    two in the wrong order. So the append only adds an action, and the dispatcher runs it when it holds no lock::

        try:
            handle(request)  # ... actions.add(lambda: fetches.check_and_complete(partition))
        finally:
            actions.try_complete_actions()

    Each thread has its own queue, so the thread that added an action runs it, at the end of the same request, and no
    lock is needed. (With Kafka's single queue, a handler that finishes may run the actions of requests that still hold
    their locks, and wait for them.)

    Actions that are added by an action run before the call returns, too. If an action fails, the error is logged and
    the others run: they belong to other requests.
    """

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = _Actions()

    def add(self, action: Action) -> None:
        self._local.pending.append(action)

    def try_complete_actions(self) -> int:
        local = self._local
        if not local.pending or local.running:
            return 0  # nothing to do; or called by an action, whose loop runs the others as well
        done = 0
        local.running = True
        try:
            while local.pending:
                done += 1
                _run(local.pending.popleft())
        finally:
            local.running = False
        return done

    def pending(self) -> int:
        """Returns the number of pending actions of this thread."""
        return len(self._local.pending)


class _Actions(threading.local):
    def __init__(self) -> None:
        self.pending: deque[Action] = deque()
        self.running = False


def _run(action: Action) -> None:
    try:
        action()
    except Exception:
        log.exception("an action at the end of a request failed: %r", action)
