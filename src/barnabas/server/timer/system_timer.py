"""The timer of a running broker."""

from __future__ import annotations

import threading

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.server.timer.delay_queue import DelayQueue
from barnabas.server.timer.task_executor import TaskExecutor
from barnabas.server.timer.timer_task import TimerClosedError, TimerTask
from barnabas.server.timer.timer_task_list import TimerTaskList
from barnabas.server.timer.timing_wheel import TimingWheel

FLUSH_BATCH = 256
"""How many tasks of a due bucket are moved per hold of the lock. A bucket of a coarse wheel can hold hundreds of
thousands of tasks, and request handlers that add or cancel wait for the lock."""


class SystemTimer:
    """Combines a timing wheel, a delay queue of its buckets, and a thread that runs the tasks that fall due.

        handler threads      add, cancel ──> wheel ──> delay queue of buckets
        reaper thread        advance_clock ──────────────┘   flushes due buckets: back to the wheel, or
        executor-<name>      run <───────────────────────────  to the executor

    The timer does not advance by itself: a thread calls :meth:`advance_clock` in a loop. In a broker this is the
    purgatory's reaper (see :class:`~barnabas.server.purgatory.DelayedOperationPurgatory`).

    **Locking.** Kafka uses a readers/writer lock (adding reads, ticking writes), a monitor for each bucket and an
    atomic counter, so that threads can add to different buckets in parallel. Here one plain lock guards everything:
    wheel, links and count. The protected code takes less than a microsecond. A readers/writer lock in Python takes
    several lock operations, each about as long as the protected code, so it would cost more than the parallelism gains,
    with the GIL or without. In Kafka the writer may hold the lock for long, when it flushes a full bucket. Here the
    bucket is detached in constant time and its tasks are moved in batches, with the lock released in between. Nothing
    depends on the GIL.

    Taking a bucket off the queue, advancing the wheel's clock and detaching the bucket happen under one hold of the
    lock. If the bucket were taken outside, as Kafka can do with its single reaper, a second caller could advance the
    clock past it, a task of the next round could be added to it, and the clock would follow that task into the future.

    Lock order: timer, then delay queue or executor, then clock. No task and no foreign code runs while the lock is
    held.
    """

    def __init__(
        self,
        name: str,
        clock: Clock = SYSTEM_CLOCK,
        tick_ms: int = 1,
        wheel_size: int = 20,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self._clock = clock
        self._now_ms = clock.hi_res_milliseconds  # bound once: called for every delayed request
        self._lock = threading.Lock()
        """Guards the fields below, the links of all tasks that wait here, and their expirations."""
        self._size = 0
        self._closed = False
        self._queue = DelayQueue(clock)
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.hi_res_milliseconds(), self._queue)
        self._executor = TaskExecutor(f"executor-{name}", exit_procedure=exit_procedure)
        self._executor.start()

    def add(self, task: TimerTask) -> None:
        expiration_ms = task.delay_ms + self._now_ms()
        with self._lock:
            if self._closed:
                raise TimerClosedError(f"a {type(task).__name__} is added to a timer that is closed")
            if task._timer is not self:
                if task._timer is not None:
                    raise ValueError(f"this {type(task).__name__} belongs to another timer")
                task._timer = self
            elif task._next is not None:
                TimerTaskList.unlink(task)
                self._size -= 1
            task.expiration_ms = expiration_ms
            if self._wheel.add(task):
                self._size += 1
            else:
                self._executor.submit((task,))

    def remove(self, task: TimerTask) -> bool:
        with self._lock:
            if task._next is None:
                return False
            TimerTaskList.unlink(task)
            self._size -= 1
            return True

    def advance_clock(self, timeout_ms: int) -> bool:
        """Waits at most ``timeout_ms`` until a bucket is due, then flushes all due buckets."""
        if not self._queue.await_due(timeout_ms):
            return False
        flushed = False
        while (bucket := self._take_due_bucket()) is not None:
            flushed = True
            while self._move_on(bucket):
                pass
        return flushed

    def _take_due_bucket(self) -> TimerTaskList | None:
        with self._lock:
            bucket = self._queue.poll()
            if bucket is None:
                return None
            self._wheel.advance_clock(bucket.expiration_ms)
            return bucket.detach()

    def _move_on(self, bucket: TimerTaskList) -> bool:
        """Moves a batch of a detached bucket's tasks to finer buckets or the executor; returns whether more are left.

        Between two batches the remaining tasks stay linked in ``bucket``, so they can still be cancelled or re-added.
        """
        expired: list[TimerTask] = []
        with self._lock:
            if self._closed:
                return False
            for _ in range(FLUSH_BATCH):
                task = bucket.pop()
                if task is None:
                    break
                if not self._wheel.add(task):
                    expired.append(task)
            if expired:
                self._size -= len(expired)
                self._executor.submit(expired)
            return bool(bucket)

    def wake(self) -> None:
        """Ends a wait in :meth:`advance_clock` by queueing an empty bucket that is due.

        Kafka adds a task without a delay, but that does not always work: when the wheel's clock is up to date, the task
        goes directly to the executor and the queue is not notified.
        """
        nothing = TimerTaskList()
        nothing.set_expiration(self._clock.hi_res_milliseconds())
        self._queue.offer(nothing)

    def size(self) -> int:
        with self._lock:
            return self._size

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._executor.initiate_shutdown()
        if threading.current_thread() is not self._executor:  # a task may close the timer that runs it
            self._executor.await_shutdown()

    def __repr__(self) -> str:
        return f"<SystemTimer {self._executor.name.removeprefix('executor-')}: {self.size()} waiting>"
