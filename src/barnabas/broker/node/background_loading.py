"""Loads the parts not needed at startup, in small steps while the first requests are served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.scheduler import Scheduler

LOAD_DELAY_MS: Final = 100
"""Clients that waited for the broker get their first responses before loading begins."""
LOAD_PERIOD_MS: Final = 10
"""The pause between two steps of a few milliseconds each, in which requests are served."""


class BackgroundLoading:
    """Runs steps one after the other, until all are done or the broker stops.

    A broker may stop right after startup, because a part of it failed. `stop` waits for the running step, so that no
    step runs while the broker is being taken apart.
    """

    def __init__(self, scheduler: Scheduler, steps: Iterable[Callable[[], None]]) -> None:
        self._left = iter(steps)
        self._stopped = False
        self._lock = threading.Lock()
        """Guards both fields above. Held during a step, which may take the locks of the parts that it makes."""
        self._task = scheduler.schedule("load-handlers", self._load_next, LOAD_DELAY_MS, LOAD_PERIOD_MS)

    def _load_next(self) -> None:
        with self._lock:
            step = None if self._stopped else next(self._left, None)
            if step is None:
                self._task.cancel()
            else:
                step()

    def stop(self) -> None:
        """Waits for the running step; no step begins after this."""
        with self._lock:
            self._stopped = True
        self._task.cancel()
