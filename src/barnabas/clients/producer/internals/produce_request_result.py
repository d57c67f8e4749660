"""The outcome of a batch, shared by the futures of its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import NO_TIMESTAMP

INVALID_OFFSET = -1

RecordErrors = Callable[[int], Exception]
"""The error of a record, by its index in the batch."""


class SplitPart(NamedTuple):
    """A batch that took over records of a split batch: those from ``start`` up to the next part."""

    start: int
    result: ProduceRequestResult


class ProduceRequestResult:
    """The outcome of a batch: open, then set, then done.

    *Set* means that the outcome is known, and callbacks may read it; *done* that the callbacks have run, and waiting
    threads may continue. So a callback always runs before ``future.result()`` returns.

    A batch that was too large is split, and its records move to other batches. Its own result is then done, and
    ``parts`` refers to the new results; the futures, of which there may be hundreds, stay unchanged.
    """

    __slots__ = (
        "_listeners",
        "_lock",
        "base_offset",
        "errors",
        "is_done",
        "log_append_time",
        "parts",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.base_offset = INVALID_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.errors: RecordErrors | None = None
        self.parts: Sequence[SplitPart] | None = None
        self.is_done = False
        self._lock = threading.Lock()
        """Guards the listeners, and the step to done. No callback runs while it is held."""
        self._listeners: list[Callable[[], None]] | None = None

    def set(self, base_offset: int, log_append_time: int, errors: RecordErrors | None) -> None:
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.errors = errors

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """Sets the result and marks it done, for a written batch without callbacks."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.done()

    def done(self) -> None:
        """Publishes the outcome and calls the listeners, in the order in which they were added."""
        with self._lock:
            if self.is_done:
                raise RuntimeError(f"the result of a batch for {self.topic_partition} is done already")
            self.is_done = True
            listeners, self._listeners = self._listeners, None
        if listeners is not None:
            for listener in listeners:
                listener()

    def split_into(self, parts: Sequence[SplitPart]) -> None:
        """Records the batches that took over the records."""
        self.parts = parts
        self.done()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Calls ``listener`` when the result is done, at once if it is already. It must not raise."""
        with self._lock:
            if not self.is_done:
                if self._listeners is None:
                    self._listeners = []
                self._listeners.append(listener)
                return
        listener()

    @property
    def has_listeners(self) -> bool:
        return self._listeners is not None

    def wait(self, timeout_ms: float | None = None, clock: Clock = SYSTEM_CLOCK) -> bool:
        """Blocks until the result is done; returns false on timeout."""
        if self.is_done:
            return True
        ended = threading.Condition()
        is_over: list[bool] = []

        def listener() -> None:
            with ended:
                is_over.append(True)
                ended.notify_all()

        self.add_listener(listener)
        deadline = None if timeout_ms is None else clock.hi_res_milliseconds() + timeout_ms
        try:
            with ended:
                while not is_over:
                    remaining = None if deadline is None else deadline - clock.hi_res_milliseconds()
                    if remaining is not None and remaining <= 0:
                        return False
                    clock.wait(ended, remaining)
            return True
        finally:
            if not is_over:
                self._remove_listener(listener)  # an application may try again and again

    def _remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            if self._listeners is not None and listener in self._listeners:
                self._listeners.remove(listener)
                self._listeners = self._listeners or None

    def wait_for_all(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Blocks until this result and those of all its splits are done."""
        self.wait(None, clock)
        for part in self.parts or ():
            part.result.wait_for_all(clock)

    def find(self, index: int) -> tuple[ProduceRequestResult, int]:
        """Returns the current result of the record with this index, and its index there."""
        result = self
        while result.parts is not None:
            part = result.parts[0]
            for following in result.parts:
                if following.start > index:
                    break
                part = following
            result, index = part.result, index - part.start
        return result, index

    def __repr__(self) -> str:
        state = "split" if self.parts is not None else "done" if self.is_done else "open"
        return f"ProduceRequestResult({self.topic_partition}, {state}, base offset {self.base_offset})"
