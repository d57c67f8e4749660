"""What a start does not need, loaded a little at a time while the first requests are served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.scheduler import Scheduler

LOAD_DELAY_MS: Final = 100
"""A client that has waited for the broker gets its first answers before the rest is loaded."""
LOAD_PERIOD_MS: Final = 10
"""Between two steps, each of which takes a few milliseconds: requests go in between."""


class BackgroundLoading:
    """Steps that are done one after the other, until all are done or the broker stops.

    A broker may be stopped when it has hardly started, because a part of it could not. `stop` then waits for the step
    that is under way, so that none of them finds half of the broker gone.
    """

    def __init__(self, scheduler: Scheduler, steps: Iterable[Callable[[], None]]) -> None:
        self._left = iter(steps)
        self._stopped = False
        self._lock = threading.Lock()
        """Held during a step, which takes the locks of what it makes inside, and guards both fields above."""
        self._task = scheduler.schedule("load-handlers", self._load_next, LOAD_DELAY_MS, LOAD_PERIOD_MS)

    def _load_next(self) -> None:
        with self._lock:
            step = None if self._stopped else next(self._left, None)
            if step is None:
                self._task.cancel()
            else:
                step()

    def stop(self) -> None:
        """No step begins after this, and none is under way."""
        with self._lock:
            self._stopped = True
        self._task.cancel()
