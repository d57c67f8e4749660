"""The hierarchical timing wheel."""

from __future__ import annotations

from barnabas.server.timer.delay_queue import DelayQueue
from barnabas.server.timer.timer_task import TimerTask
from barnabas.server.timer.timer_task_list import TimerTaskList


class TimingWheel:
    """Stores tasks in a ring of buckets, one bucket per tick.

    A wheel with a tick of *u* and *n* buckets covers the span *n * u*. A task that falls due at time *t* goes into
    bucket ``(t // u) % n``: no search, no ordering, the same cost for the millionth task as for the first. When time
    passes a bucket, the bucket is emptied and reused for the same tick one round later.

    A task beyond the span goes to an *overflow wheel*, whose tick is the whole span of this one. It is created on
    demand, and may have an overflow wheel itself. With u = 1 ms and n = 20, at time 0:

        level   tick    span     buckets
          0     1 ms    20 ms    [0] [1] [2] ... [19]
          1    20 ms   400 ms    [20-39] [40-59] ... [380-399]
          2   400 ms     8 s     [400-799] ...

    A task due at 455 goes into bucket [400-799] of level 2. That bucket falls due at 400. Its tasks are then added
    again: 455 is now 55 ms ahead, and goes into bucket [440-459] of level 1. At 440 it is 15 ms ahead and goes into
    bucket [455] of level 0. When that bucket falls due, the task runs. So a task that expires is moved once for each
    level below its first one. A task that is cancelled early, as nearly all are, is never moved.

    A bucket joins the delay queue, which all levels share, when the first task of a round sets its expiration. So the
    cost of queueing is paid once per bucket, not per task.

    A wheel's clock only advances when a bucket falls due, so in quiet periods it lags behind. This is harmless: a task
    then goes to a coarser wheel than necessary, in a bucket that starts no later than the task is due.

    Wheels are not thread-safe: the timer guards them with its lock.
    """

    __slots__ = ("_buckets", "_end_ms", "_next_tick_ms", "_overflow_wheel", "_queue", "_tick_ms", "_wheel_size")

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int, queue: DelayQueue) -> None:
        if tick_ms < 1 or wheel_size < 2:
            # With one bucket, the overflow wheel's tick would equal this one's, and overflowing would never end.
            raise ValueError(f"a wheel needs a tick of at least 1 ms and 2 buckets, not {tick_ms} ms and {wheel_size}")
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._queue = queue
        self._buckets = [TimerTaskList() for _ in range(wheel_size)]
        self._overflow_wheel: TimingWheel | None = None
        # The current time, rounded down to a tick, is only needed in these two sums.
        self._next_tick_ms = start_ms - start_ms % tick_ms + tick_ms
        self._end_ms = self._next_tick_ms + tick_ms * (wheel_size - 1)

    def add(self, task: TimerTask) -> bool:
        """Puts an unlinked task into the bucket of its expiration. Returns False if it has already expired."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self._next_tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel._end_ms:
            wheel = wheel._overflow_wheel or wheel._add_overflow_wheel()
        tick = expiration_ms // wheel._tick_ms
        bucket = wheel._buckets[tick % wheel._wheel_size]
        bucket.add(task)
        if bucket.set_expiration(tick * wheel._tick_ms):
            self._queue.offer(bucket)
        return True

    def advance_clock(self, time_ms: int) -> None:
        """Advances the clocks of all levels. Buckets before ``time_ms`` must have been taken from the queue."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel._next_tick_ms:
            tick_ms = wheel._tick_ms
            wheel._next_tick_ms = time_ms - time_ms % tick_ms + tick_ms
            wheel._end_ms = wheel._next_tick_ms + tick_ms * (wheel._wheel_size - 1)
            wheel = wheel._overflow_wheel

    def levels(self) -> int:
        """Returns the current number of wheels."""
        count, wheel = 1, self
        while wheel._overflow_wheel is not None:
            count, wheel = count + 1, wheel._overflow_wheel
        return count

    def _add_overflow_wheel(self) -> TimingWheel:
        overflow = TimingWheel(
            tick_ms=self._tick_ms * self._wheel_size,
            wheel_size=self._wheel_size,
            start_ms=self._next_tick_ms - self._tick_ms,
            queue=self._queue,
        )
        self._overflow_wheel = overflow
        return overflow
