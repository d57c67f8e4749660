"""The result of a transactional step, for the thread that waits for it."""

from __future__ import annotations

import threading

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import KafkaTimeoutError


class TransactionalRequestResult:
    """Open, then done or failed. After a timeout the step goes on, and a repeated call gets the same result."""

    __slots__ = ("_changed", "_clock", "error", "is_acked", "is_completed", "operation")

    def __init__(self, operation: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.operation = operation
        self.error: Exception | None = None
        self.is_completed = False
        self.is_acked = False
        """Whether the waiting thread has seen the result."""
        self._clock = clock
        self._changed = threading.Condition()
        """Guards the fields above. No other lock is taken inside it."""

    def done(self) -> None:
        with self._changed:
            self.is_completed = True
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self.error = error
            self.is_completed = True
            self._changed.notify_all()

    def wait(self, timeout_ms: float) -> None:
        """Blocks until the step has ended; raises its error, or `KafkaTimeoutError` on timeout."""
        with self._changed:
            deadline = self._clock.hi_res_milliseconds() + timeout_ms
            while not self.is_completed:
                remaining = deadline - self._clock.hi_res_milliseconds()
                if remaining <= 0:
                    raise KafkaTimeoutError(f"Timeout expired after {timeout_ms}ms while awaiting {self.operation}")
                self._clock.wait(self._changed, remaining)
            self.is_acked = True
            if self.error is not None:
                raise self.error

    def __repr__(self) -> str:
        outcome = "open" if not self.is_completed else "done" if self.error is None else repr(self.error)
        return f"TransactionalRequestResult({self.operation}, {outcome})"
