"""Work that is to be done later, or every so often, on a thread of its own.

A broker has some dozens of chores that nobody waits for: delete files a minute after they went out of use, write
checkpoints, look for old segments. All of them share one small pool of threads. `KafkaScheduler` is that pool;
`MockScheduler` does the same on the thread of a test, when the test says that time has passed.
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
"""The period of a task that runs but once."""

_MAX_WAIT_MS: Final = 3_600_000
"""The longest single wait. Operating systems refuse timeouts of many years; after an hour a thread looks again."""


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
        """Has it not run any more. A run that has begun goes on to its end, and is not waited for."""
        self.cancelled = True
        self.run = _nothing  # it may wait in the queue for long, and should not keep alive what it was to work on

    def next_due_ms(self, now_ms: int) -> int:
        """When a periodic task is due again: a whole number of periods after it last was, and not in the past.

        Ticks that were missed, because the task took long or the machine was asleep, are left out. None of these
        chores gets better by being done twice in a row.
        """
        missed = max(0, (now_ms - self.due_ms) // self.period_ms)
        return self.due_ms + (missed + 1) * self.period_ms

    def __repr__(self) -> str:
        return f"ScheduledTask({self.name!r}, due_ms={self.due_ms}{', cancelled' if self.cancelled else ''})"


class Scheduler(Protocol):
    """Who runs tasks later."""

    def schedule(self, name: str, task: Task, delay_ms: int = 0, period_ms: int = ONCE) -> ScheduledTask:
        """Runs a task after a delay, and with a period, again and again. `name` is for the log."""
        ...


class _TaskQueue:
    """Tasks in the order in which they fall due. It has no lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ScheduledTask]] = []
        self._added = 0  # orders tasks of the same time by arrival, and keeps the heap from comparing tasks

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, task: ScheduledTask) -> None:
        self._added += 1
        heapq.heappush(self._heap, (task.due_ms, self._added, task))

    def first(self) -> ScheduledTask | None:
        """The next one that is still wanted."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> ScheduledTask:
        return heapq.heappop(self._heap)[2]

    def clear(self) -> None:
        self._heap.clear()


class KafkaScheduler:
    """A pool of threads, ``kafka-scheduler-0`` and so on, that run tasks when they fall due.

    Threads are started when they are needed: the first with the first task, another one when tasks wait while all are
    busy, until there are as many as allowed (``background.threads``). One idle thread waits for the next task to fall
    due, the others wait for that one to get busy; so a task wakes one thread and not all of them.

    A task that fails is reported in the log, and if it is periodic, runs again at its next time: one broken checkpoint
    must not be the end of all checkpoints. `FatalExitError` ends the process, as everywhere.

    After `shutdown`, tasks are taken and never run. That is not an error: what calls for background work during a
    shutdown (a segment rolls, its predecessor should be flushed) does that work in another way, or will at the next
    start.
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
        """Threads that look for a task, those included that have been started and do not run yet."""
        self._timekeeper: int | None = None
        """The identity of the idle thread that waits for the first task to fall due."""
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
                self._timekeeper = None  # whoever waits, waits for a later one
                self._changed.notify()
        return scheduled

    def resize(self, threads: int) -> None:
        """Allows more threads, or has the surplus ones end when they are idle."""
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
        """Drops what has not begun and waits for what has; no thread is left when this returns.

        Called by one of the tasks, it does not wait for that one.
        """
        with self._changed:
            self._running = False
            self._queue.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    # How it works

    def _start_thread(self) -> None:
        if len(self._threads) >= self._max_threads:
            return
        taken = {thread.name for thread in self._threads}
        number = next(n for n in range(self._max_threads) if f"{self._name_prefix}{n}" not in taken)
        thread = threading.Thread(target=self._work, name=f"{self._name_prefix}{number}", daemon=True)
        self._threads.append(thread)
        thread.start()
        self._idle += 1  # or the next task that is scheduled would start another one, before this one has begun

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
        """Waits for a task to fall due; None when this thread is to end."""
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
                    # Somebody has to wait for the next one while this thread is at work.
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
                        # Whoever waits for the first task has another one in mind. This thread is going to wait for
                        # this one: else it would be late, and so would be all tasks after it.
                        self._timekeeper = None

    def __repr__(self) -> str:
        with self._changed:
            return f"KafkaScheduler({len(self._threads)} of {self._max_threads} threads, {len(self._queue)} tasks)"


class MockScheduler:
    """Runs tasks on the thread that moves its clock, in the order in which they fall due.

    >>> scheduler = MockScheduler(MockClock(milliseconds=0))
    >>> task = scheduler.schedule("tick", lambda: print("tick at", scheduler.clock.milliseconds()), 10, period_ms=20)
    >>> scheduler.advance(35)
    tick at 10
    tick at 30
    2

    Nothing runs by itself, not even a task without a delay: `tick` runs what is due now. An error of a task comes out
    of `tick` or `advance`, so that a test notices.
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
        """Runs the tasks that are due, and those that they schedule for now; returns how many ran."""
        return self.advance(0)

    def advance(self, milliseconds: int) -> int:
        """Moves the clock on from task to task and runs each at its time; returns how many ran."""
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
        """The names of the tasks that wait, in the order in which they fall due."""
        with self._lock:
            return [entry[2].name for entry in sorted(self._queue._heap) if not entry[2].cancelled]

    def clear(self) -> None:
        """Forgets all tasks, as the end of a process does."""
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
