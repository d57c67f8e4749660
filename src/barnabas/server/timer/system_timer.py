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
"""How many tasks of a due bucket are moved before the lock is let go. A bucket of a coarse wheel can hold hundreds of
thousands of them, and whoever adds or cancels meanwhile is a request handler."""


class SystemTimer:
    """A timing wheel, the queue that says when to turn it, and a thread that runs what falls due.

        handler threads      add, cancel ──> wheel ──> delay queue of buckets
        reaper thread        advance_clock ──────────────┘   flushes due buckets: back to the wheel, or
        executor-<name>      run <───────────────────────────  to the executor

    The timer does not tick by itself: some thread calls :meth:`advance_clock` in a loop (in a broker the purgatory's
    reaper does, see :class:`~barnabas.server.purgatory.DelayedOperationPurgatory`), and a test calls it when it likes.

    **Locking.** Kafka takes a readers/writer lock (adding reads, ticking writes), a monitor for each bucket and an
    atomic counter, so that threads can add to different buckets side by side. Here one plain lock guards everything:
    wheel, links and count. What it protects takes less than a microsecond, while a readers/writer lock in Python takes
    several operations on locks, each about as long as the protected part; it would cost more than it could ever let run
    in parallel, with the GIL or without. The writer's side of Kafka's lock is what can be long, when a full bucket is
    flushed: here the bucket is detached in constant time and its tasks are moved in batches, with the lock free in
    between. Nothing depends on the GIL.

    Taking a bucket off the queue, moving the wheel's clock and detaching the bucket happen under one hold of the lock.
    Were the bucket taken outside, as Kafka can afford with its single reaper, a second caller could move the clock past
    it, a task of the next round could be put in, and the clock would then follow that task into the future.

    Order of locks: timer, then delay queue or executor, then clock. No task is run and no foreign code is called while
    the lock is held.
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
        self._now_ms = clock.hi_res_milliseconds  # bound once: it is called for every request that waits
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
        """Waits until a bucket is due, at most so long, then flushes that and every other one that is due."""
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
        """Moves a batch of a detached bucket's tasks to finer buckets or to the executor; whether there are more.

        Between two batches the tasks that are left still wait, linked in ``bucket``, so they can be cancelled or added
        anew as ever.
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
        """Ends a wait in :meth:`advance_clock`, with a bucket that is due and has nothing in it.

        A task without a delay, Kafka's way, would not always do: when the wheel's clock is up to date it goes straight
        to the executor, and nobody hears of it in the queue.
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
