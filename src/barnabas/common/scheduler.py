"""Runs tasks later, or periodically, on other threads.

A broker has dozens of background tasks: deleting files a minute after their last use, writing checkpoints, looking for
old segments. All of them share one small thread pool. `KafkaScheduler` is that pool; `MockScheduler` does the same on
the thread of a test, when the test advances time.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock, MockClock
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process

log = logging.getLogger(__name__)

Task = Callable[[], object]

ONCE: Final = -1
"""The period of a task that runs once."""

_MAX_WAIT_MS: Final = 3_600_000
"""The longest single wait. Operating systems reject timeouts of many years; after an hour a thread checks again."""


def _nothing() -> None: ...


class ScheduledTask:
    """A task that waits for its time."""

    __slots__ = ("cancelled", "due_ms", "name", "period_ms", "run")

    def __init__(self, name: str, run: Task, due_ms: int, period_ms: int) -> None:
        self.name = name
        self.run = run
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.cancelled = False

    def cancel(self) -> None:
        """Prevents further runs. A run in progress continues, and is not awaited."""
        self.cancelled = True
        self.run = _nothing  # releases the task's objects, because the entry may stay in the queue for long

    def next_due_ms(self, now_ms: int) -> int:
        """Returns the next time of a periodic task: a whole number of periods after the last one, and not in the past.

        Missed runs, because the task took long or the machine was asleep, are skipped. None of these tasks needs to run
        twice in a row.
        """
        missed = max(0, (now_ms - self.due_ms) // self.period_ms)
        return self.due_ms + (missed + 1) * self.period_ms

    def __repr__(self) -> str:
        return f"ScheduledTask({self.name!r}, due_ms={self.due_ms}{', cancelled' if self.cancelled else ''})"


class Scheduler(Protocol):
    """Runs tasks later."""

    def schedule(self, name: str, task: Task, delay_ms: int = 0, period_ms: int = ONCE) -> ScheduledTask:
        """Runs a task after a delay, and then periodically if there is a period. `name` is for the log."""
        ...


class _TaskQueue:
    """Tasks in the order of their due times. It has no lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ScheduledTask]] = []
        self._added = 0  # breaks ties in order of arrival, so that tasks themselves are never compared

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, task: ScheduledTask) -> None:
        self._added += 1
        heapq.heappush(self._heap, (task.due_ms, self._added, task))

    def first(self) -> ScheduledTask | None:
        """Returns the next task that is not cancelled."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> ScheduledTask:
        return heapq.heappop(self._heap)[2]

    def clear(self) -> None:
        self._heap.clear()


class KafkaScheduler:
    """A pool of threads, ``kafka-scheduler-0`` and so on, that run tasks when they are due.

    Threads are started on demand: the first with the first task, another one when tasks wait while all are busy, up to
    the maximum (``background.threads``). One idle thread waits for the next due time, the others wait until that one is
    busy; so a task wakes up one thread and not all of them.

    A failed task is logged, and if it is periodic, it runs again at its next time: one failed checkpoint must not end
    all checkpoints. `FatalExitError` ends the process, as everywhere.

    After `shutdown`, tasks are accepted but never run. That is not an error: background work that is requested during a
    shutdown (a segment rolls, its predecessor should be flushed) is done in another way, or at the next start.
    """

    def __init__(
        self,
        threads: int = 10,
        *,
        name_prefix: str = "kafka-scheduler-",
        clock: Clock = SYSTEM_CLOCK,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        if threads < 1:
            raise ValueError(f"a scheduler needs at least one thread: {threads}")
        self._max_threads = threads
        self._name_prefix = name_prefix
        self._clock = clock
        self._exit_procedure = exit_procedure
        self._changed = threading.Condition()
        """Guards all fields below. Tasks run outside of it; only the clock is called while it is held."""
        self._queue = _TaskQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        """The number of threads that look for a task, including those that are just starting."""
        self._timekeeper: int | None = None
        """The identity of the idle thread that waits for the first due time."""
        self._running = True

    def schedule(self, name: str, task: Task, delay_ms: int = 0, period_ms: int = ONCE) -> ScheduledTask:
        if period_ms == 0 or period_ms < ONCE:
            raise ValueError(f"the period of {name} must be positive: {period_ms} ms")
        scheduled = ScheduledTask(name, task, self._clock.hi_res_milliseconds() + max(delay_ms, 0), period_ms)
        with self._changed:
            if not self._running:
                log.info("Not scheduling %s: the scheduler is shut down", name)
                scheduled.cancel()
                return scheduled
            self._queue.push(scheduled)
            if self._idle == 0:
                self._start_thread()
            elif self._queue.first() is scheduled:
                self._timekeeper = None  # the waiting thread waits for a later task
                self._changed.notify()
        return scheduled

    def resize(self, threads: int) -> None:
        """Changes the maximum number of threads; surplus ones end when they are idle."""
        if threads < 1:
            raise ValueError(f"a scheduler needs at least one thread: {threads}")
        with self._changed:
            self._max_threads = threads
            self._changed.notify_all()

    @property
    def pending_tasks(self) -> int:
        with self._changed:
            return len(self._queue)

    def shutdown(self) -> None:
        """Drops waiting tasks and waits for running ones; no thread is left when this returns.

        If a task calls it, it does not wait for that task.
        """
        with self._changed:
            self._running = False
            self._queue.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    # -- implementation

    def _start_thread(self) -> None:
        if len(self._threads) >= self._max_threads:
            return
        taken = {thread.name for thread in self._threads}
        number = next(n for n in range(self._max_threads) if f"{self._name_prefix}{n}" not in taken)
        thread = threading.Thread(target=self._work, name=f"{self._name_prefix}{number}", daemon=True)
        self._threads.append(thread)
        thread.start()
        self._idle += 1  # otherwise the next task would start another thread before this one runs

    def _work(self) -> None:
        try:
            task = self._take(is_counted=True)
            while task is not None:
                self._run(task)
                task = self._take()
        finally:
            with self._changed:
                self._threads.remove(threading.current_thread())

    def _take(self, *, is_counted: bool = False) -> ScheduledTask | None:
        """Waits for a due task; returns None when this thread should end."""
        me = threading.get_ident()
        with self._changed:
            self._idle += not is_counted
            try:
                while self._running and len(self._threads) <= self._max_threads:
                    task = self._queue.first()
                    if task is not None:
                        remaining = task.due_ms - self._clock.hi_res_milliseconds()
                        if remaining <= 0:
                            return self._queue.pop()
                        if self._timekeeper is None:
                            self._timekeeper = me
                            try:
                                self._clock.wait(self._changed, min(remaining, _MAX_WAIT_MS))
                            finally:
                                if self._timekeeper == me:
                                    self._timekeeper = None
                            continue
                    self._clock.wait(self._changed, None)
                return None
            finally:
                self._idle -= 1
                if self._running and self._queue.first() is not None:
                    # Another thread has to wait for the next task while this one works.
                    if self._idle:
                        self._changed.notify()
                    else:
                        self._start_thread()

    def _run(self, task: ScheduledTask) -> None:
        try:
            task.run()
        except FatalExitError as error:
            log.critical("%s: %s", task.name, error, exc_info=error)
            self._exit_procedure(error.status)
        except Exception:
            log.exception("%s failed", task.name)
        if task.period_ms != ONCE and not task.cancelled:
            with self._changed:
                if self._running:
                    task.due_ms = task.next_due_ms(self._clock.hi_res_milliseconds())
                    self._queue.push(task)
                    if self._queue.first() is task:
                        # The waiting thread waits for another task. This thread will wait for this one; otherwise it
                        # and all tasks after it would be late.
                        self._timekeeper = None

    def __repr__(self) -> str:
        with self._changed:
            return f"KafkaScheduler({len(self._threads)} of {self._max_threads} threads, {len(self._queue)} tasks)"


class MockScheduler:
    """Runs tasks on the thread that advances its clock, in the order of their due times.

    >>> scheduler = MockScheduler(MockClock(milliseconds=0))
    >>> task = scheduler.schedule("tick", lambda: print("tick at", scheduler.clock.milliseconds()), 10, period_ms=20)
    >>> scheduler.advance(35)
    tick at 10
    tick at 30
    2

    Nothing runs by itself, not even a task without a delay: `tick` runs what is due now. `tick` and `advance` raise the
    error of a task, so that a test notices it.
    """

    def __init__(self, clock: MockClock | None = None) -> None:
        self.clock = MockClock() if clock is None else clock
        self._queue = _TaskQueue()
        self._lock = threading.Lock()
        """Guards `_queue`; not held while a task runs."""

    def schedule(self, name: str, task: Task, delay_ms: int = 0, period_ms: int = ONCE) -> ScheduledTask:
        if period_ms == 0 or period_ms < ONCE:
            raise ValueError(f"the period of {name} must be positive: {period_ms} ms")
        scheduled = ScheduledTask(name, task, self.clock.hi_res_milliseconds() + max(delay_ms, 0), period_ms)
        with self._lock:
            self._queue.push(scheduled)
        return scheduled

    def tick(self) -> int:
        """Runs due tasks, and those that they schedule for now; returns their number."""
        return self.advance(0)

    def advance(self, milliseconds: int) -> int:
        """Advances the clock from task to task and runs each at its time; returns their number."""
        end = self.clock.hi_res_milliseconds() + milliseconds
        count = 0
        while (task := self._take(end)) is not None:
            self._move_clock_to(task.due_ms)
            task.run()
            count += 1
            if task.period_ms != ONCE and not task.cancelled:
                task.due_ms = task.next_due_ms(self.clock.hi_res_milliseconds())
                with self._lock:
                    self._queue.push(task)
        self._move_clock_to(end)
        return count

    @property
    def pending(self) -> list[str]:
        """Returns the names of waiting tasks, in the order of their due times."""
        with self._lock:
            return [entry[2].name for entry in sorted(self._queue._heap) if not entry[2].cancelled]

    def clear(self) -> None:
        """Drops all tasks, like the end of a process."""
        with self._lock:
            self._queue.clear()

    def _take(self, end_ms: int) -> ScheduledTask | None:
        with self._lock:
            task = self._queue.first()
            return self._queue.pop() if task is not None and task.due_ms <= end_ms else None

    def _move_clock_to(self, time_ms: int) -> None:
        remaining = time_ms - self.clock.hi_res_milliseconds()
        if remaining > 0:
            self.clock.advance(remaining)
