"""The queue that wakes a timer when its next bucket falls due."""

from __future__ import annotations

import heapq
import threading

from barnabas.common.clock import Clock
from barnabas.server.timer.timer_task_list import TimerTaskList

MAX_WAIT_MS = 3_600_000
"""The longest single wait. Operating systems reject timeouts of many years; after an hour the queue checks again."""


class DelayQueue:
    """Orders buckets by expiration.

    Without it a timer would have to advance tick by tick. With it the timer sleeps until the next bucket that is not
    empty. It is a heap, so an insertion is logarithmic in the number of buckets (about twenty per level of the wheel),
    not in the number of tasks: a million tasks that fall due in the next minute take at most 80 buckets.

    All methods are thread-safe. A bucket must not change its expiration while it is queued.
    """

    __slots__ = ("_changed", "_clock", "_heap", "_sequence")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        """Guards the fields below. The innermost lock: only the clock is called while it is held."""
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._sequence = 0  # orders buckets of the same time by arrival, and keeps the heap from comparing buckets

    def offer(self, bucket: TimerTaskList) -> None:
        """Queues a bucket under its expiration."""
        with self._changed:
            self._sequence += 1
            entry = (bucket.expiration_ms, self._sequence, bucket)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify_all()  # waiters are waiting for a later bucket

    def poll(self) -> TimerTaskList | None:
        """Removes and returns the first due bucket; None if no bucket is due."""
        with self._changed:
            if self._heap and self._heap[0][0] <= self._clock.hi_res_milliseconds():
                return heapq.heappop(self._heap)[2]
            return None

    def await_due(self, timeout_ms: int) -> bool:
        """Blocks until a bucket is due or the timeout; returns whether one is due. The bucket stays in the queue."""
        with self._changed:
            now = self._clock.hi_res_milliseconds()
            deadline = now + timeout_ms
            while True:
                wake_at = deadline
                if self._heap:
                    first = self._heap[0][0]
                    if first <= now:
                        return True
                    wake_at = min(first, deadline)
                if now >= deadline:
                    return False
                self._clock.wait(self._changed, min(wake_at - now, MAX_WAIT_MS))
                now = self._clock.hi_res_milliseconds()

    def __len__(self) -> int:
        with self._changed:
            return len(self._heap)
