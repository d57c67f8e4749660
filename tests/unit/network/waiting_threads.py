"""For tests of threads that wait: a mock clock that sees them come back to wait, and threads to leave behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from barnabas.common.clock import MockClock


class WatchedClock(MockClock):
    """Knows how often somebody began to wait: so a test can see that a thread looked again and went on waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._test_thread = threading.current_thread()
        self._began = threading.Condition()
        self.waits = 0

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        assert threading.current_thread() is not self._test_thread, "nobody would be left to end this wait"
        # The caller holds the condition's lock. Whoever saw the new number cannot notify before the wait has begun.
        self.count_as_wait()
        return super().wait(condition, timeout_ms)

    def count_as_wait(self) -> None:
        """For a thread that has come to its end, where somebody expects it to wait once more."""
        with self._began:
            self.waits += 1
            self._began.notify_all()

    def await_waits(self, count: int) -> None:
        with self._began:
            assert self._began.wait_for(lambda: self.waits >= count, 60), f"{self.waits} waits, not {count}"


class DaemonThreads:
    """Like a thread pool, but a thread that waits forever, because the code under test is broken, keeps nobody up."""

    def submit(self, function: Callable[..., None], *arguments: Any) -> Future[None]:
        future: Future[None] = Future()

        def run() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=run, daemon=True).start()
        return future
