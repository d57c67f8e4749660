"""A clock for tests on which a wait runs a function instead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.common.clock import MockClock


class DrivingClock(MockClock):
    """A mock clock whose waits can run a function."""

    _turn: Callable[[float | None], None] | None = None

    @contextmanager
    def driving(self, turn: Callable[[float | None], None]) -> Iterator[None]:
        """Within this context, a wait calls ``turn`` once, with the maximum time of the wait."""
        self._turn = turn
        try:
            yield
        finally:
            self._turn = None

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        if self._turn is None:
            return super().wait(condition, timeout_ms)
        before = self.hi_res_milliseconds()
        condition.release()
        try:
            self._turn(timeout_ms)
        finally:
            condition.acquire()
        return timeout_ms is None or self.hi_res_milliseconds() - before < timeout_ms
