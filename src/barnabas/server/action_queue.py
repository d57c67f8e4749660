"""Things to do at the end of a request, when its locks are free."""

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
    """Where the code of a request leaves what its changes make possible for others."""

    def add(self, action: Action) -> None: ...

    def try_complete_actions(self) -> int:
        """Runs what this thread has left to run; returns how many actions that were."""
        ...


class DelayedActionQueue:
    """Actions wait until the request that added them is done.

    An append to a partition may complete the fetches that wait for its data. The append runs under the partition's
    lock, though, and completing a fetch takes the fetch's lock and then the partition's, so doing it on the spot would
    take the two in the wrong order. So the append just notes it, and the dispatcher does it when it holds no lock any
    more::

        try:
            handle(request)  # ... actions.add(lambda: fetches.check_and_complete(partition))
        finally:
            actions.try_complete_actions()

    Each thread has a queue of its own, so an action is run by the thread that added it, at the end of the request that
    added it, and no lock is needed. (Kafka's one queue for all lets any handler that happens to finish run the actions
    of requests that still hold their locks, and wait for them.) A thread that has no such end of a request is given a
    :class:`DirectActionQueue` instead.

    An action that adds another has that run, too, before the call returns. One that fails is logged, and the rest run:
    they belong to other people's requests.
    """

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = _Actions()

    def add(self, action: Action) -> None:
        self._local.pending.append(action)

    def try_complete_actions(self) -> int:
        local = self._local
        if not local.pending or local.running:
            return 0  # nothing to do; or called by an action: the loop that runs it gets to the others as well
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
        """How many actions this thread has not run yet."""
        return len(self._local.pending)


class _Actions(threading.local):
    def __init__(self) -> None:
        self.pending: deque[Action] = deque()
        self.running = False


class DirectActionQueue:
    """Actions are run on the spot, for callers that hold no lock when they add one."""

    __slots__ = ()

    def add(self, action: Action) -> None:
        _run(action)

    def try_complete_actions(self) -> int:
        return 0


def _run(action: Action) -> None:
    try:
        action()
    except Exception:
        log.exception("an action at the end of a request failed: %r", action)
