"""One thread, and the queue of what it is to do.

All of the controller's state is touched by one thread only; everybody else puts an *event* in this queue and waits for
its result. That is what makes a program with dozens of operations, and a leadership that can vanish between any two of
them, free of locks.

An event gets in by one of three ways:

- *appended*, with a deadline or without: run in order. An event that is still waiting at its deadline is not run; it is
  told that it timed out, because whoever asked has given up.
- *prepended*: run next. The controller uses it once per leadership, for the event that completes it.
- *deferred* to a time, under a tag: run when that comes, before what is queued. Scheduling a tag again replaces its
  event, and the *earlier* of the two times counts if the caller wants it so. Periodic work lives on this.

A test has no thread: it calls :meth:`KafkaEventQueue.run_until_idle` and moves the clock.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from itertools import count
from typing import Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import ApiError
from barnabas.common.exceptions import BarnabasError, KafkaTimeoutError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process

log = LimitedLogger(logging.getLogger(__name__))

FEW_STALE = 64
"""So many deadlines of events that are done may stay in the heap before anybody looks how many there are."""


class EventQueueClosedError(BarnabasError):
    """The event came too late: the queue is shutting down."""


class Event(Protocol):
    """Something for the queue's thread to do."""

    def run(self) -> None: ...

    def handle_exception(self, error: Exception) -> None:
        """Called instead of :meth:`run`, or after it failed: timed out, queue closed, or what `run` has raised."""
        ...


class _Entry:
    """An event in the queue. `done` marks one that was cancelled or taken out while something still refers to it."""

    __slots__ = ("deadline_ns", "deferred", "done", "event", "tag")

    def __init__(self, event: Event, deadline_ns: int | None, deferred: bool, tag: str | None) -> None:
        self.event = event
        self.deadline_ns = deadline_ns
        self.deferred = deferred
        self.tag = tag
        self.done = False


class KafkaEventQueue:
    """See the module. Any thread may add events; one thread, or one test, runs them.

    A :class:`FatalExitError` that an event raises ends the thread and, through `exit_procedure`, the process.
    """

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK, exit_procedure: ExitProcedure = exit_process) -> None:
        self._name = name
        self._clock = clock
        self._exit_procedure = exit_procedure
        self._changed = threading.Condition()
        """Guards the fields below. Events run without it; inside it only the clock's own lock is taken."""
        self._queue: deque[_Entry] = deque()
        self._deadlines: list[tuple[int, int, _Entry]] = []
        """A heap by time, then by order of arrival. Entries that are `done` are skipped when they come up."""
        self._stale = 0
        """How many entries of the heap are `done`."""
        self._arrivals = count()
        self._tags: dict[str, _Entry] = {}
        self._size = 0
        self._shutting_down = False
        self._thread: threading.Thread | None = None

    # -- adding

    def append(self, event: Event, deadline_ns: int | None = None) -> None:
        self._enqueue(_Entry(event, deadline_ns, deferred=False, tag=None), at_front=False)

    def prepend(self, event: Event) -> None:
        self._enqueue(_Entry(event, None, deferred=False, tag=None), at_front=True)

    def schedule_deferred(self, tag: str, time_ns: int, event: Event, *, earliest: bool = False) -> None:
        """Runs the event at a time of the steady clock, in place of any that is scheduled under the same tag.

        With `earliest` the time of the one replaced is kept if that is sooner.
        """
        self._enqueue(_Entry(event, time_ns, deferred=True, tag=tag), at_front=False, earliest=earliest)

    def cancel_deferred(self, tag: str) -> None:
        with self._changed:
            self._drop_tag(tag)

    def _enqueue(self, entry: _Entry, *, at_front: bool, earliest: bool = False) -> None:
        with self._changed:
            closed = self._shutting_down
            if not closed:
                if entry.tag is not None:
                    replaced = self._drop_tag(entry.tag)
                    if earliest and replaced is not None and replaced.deadline_ns is not None:
                        wanted = replaced.deadline_ns if entry.deadline_ns is None else entry.deadline_ns
                        entry.deadline_ns = min(replaced.deadline_ns, wanted)
                    self._tags[entry.tag] = entry
                if entry.deadline_ns is not None:
                    heapq.heappush(self._deadlines, (entry.deadline_ns, next(self._arrivals), entry))
                if not entry.deferred:
                    (self._queue.appendleft if at_front else self._queue.append)(entry)
                self._size += 1
                self._changed.notify()
        if closed:
            self._complete(entry, EventQueueClosedError(f"{self._name} is shutting down"))

    def _drop_tag(self, tag: str) -> _Entry | None:
        entry = self._tags.pop(tag, None)
        if entry is not None:
            entry.done = True
            self._size -= 1
            self._note_stale(entry)
        return entry

    def _note_stale(self, entry: _Entry) -> None:
        """Counts an entry that is done but still in the heap, and rebuilds the heap when most of them are.

        A client chooses the deadline of its request, up to 24 days ahead. Without this the request would stay in memory
        for that long.
        """
        if entry.deadline_ns is None:
            return
        self._stale += 1
        if self._stale > FEW_STALE and self._stale * 2 > len(self._deadlines):
            self._deadlines = [one for one in self._deadlines if not one[2].done]
            heapq.heapify(self._deadlines)
            self._stale = 0

    def __len__(self) -> int:
        """How many events wait, deferred ones included."""
        with self._changed:
            return self._size

    # -- running

    def run_once(self) -> bool:
        """Runs one event that is due; False if there is none."""
        with self._changed:
            taken = self._take(self._clock.nanoseconds())
        if taken is None:
            return False
        self._run(*taken)
        return True

    def run_until_idle(self) -> int:
        """Runs what is due, including what the events add, until nothing is; returns how many events that were."""
        ran = 0
        while self.run_once():
            ran += 1
        return ran

    def next_deadline_ns(self) -> int | None:
        """When something is due by time: a deferred event, or the deadline of one that waits."""
        with self._changed:
            self._skip_done()
            return self._deadlines[0][0] if self._deadlines else None

    def _take(self, now_ns: int) -> tuple[_Entry, Exception | None] | None:
        """The next entry and what to tell it instead of running it, if anything. Called with the lock held."""
        self._skip_done()
        if self._deadlines:
            time_ns, _, entry = self._deadlines[0]
            if time_ns <= now_ns or self._shutting_down:
                heapq.heappop(self._deadlines)
                error: Exception | None = None
                if time_ns > now_ns:
                    error = EventQueueClosedError(f"{self._name} is shutting down")
                elif not entry.deferred:
                    error = KafkaTimeoutError(f"The request timed out in the queue of {self._name}.")
                return self._taken(entry), error
        while self._queue:
            entry = self._queue.popleft()
            if not entry.done:
                self._taken(entry)
                self._note_stale(entry)
                return entry, None
        return None

    def _taken(self, entry: _Entry) -> _Entry:
        entry.done = True  # its other reference, in the heap or in the queue, is skipped from now on
        self._size -= 1
        if entry.tag is not None:
            self._tags.pop(entry.tag, None)
        return entry

    def _skip_done(self) -> None:
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
            self._stale -= 1

    def _run(self, entry: _Entry, error: Exception | None) -> None:
        if error is None:
            try:
                entry.event.run()
            except Exception as raised:  # noqa: BLE001 - it is the event's to handle, and the loop goes on
                error = raised
        if error is not None:
            self._complete(entry, error)

    def _complete(self, entry: _Entry, error: Exception) -> None:
        if isinstance(error, ApiError):
            # Nobody looks at where it was raised, and the frames there would keep the whole request alive.
            error.__traceback__ = None
        try:
            entry.event.handle_exception(error)
        except Exception:
            log.exception("%s: %s failed while handling %r", self._name, entry.event, error)

    # -- the thread

    def start(self) -> None:
        """Starts the thread that runs events."""
        if self._thread is not None:
            raise RuntimeError(f"{self._name} is already started")
        self._thread = threading.Thread(target=self._loop, name=self._name)
        self._thread.start()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while True:
                    now_ns = self._clock.nanoseconds()
                    taken = self._take(now_ns)
                    if taken is not None:
                        break
                    if self._shutting_down:
                        return
                    wait_ms = (self._deadlines[0][0] - now_ns) / 1_000_000 if self._deadlines else None
                    self._clock.wait(self._changed, wait_ms)
            try:
                self._run(*taken)
            except FatalExitError as error:
                log.critical("%s: %s", self._name, error, exc_info=error)
                self.begin_shutdown("a fatal error")
                self._exit_procedure(error.status)
                return

    def begin_shutdown(self, source: str) -> None:
        """Takes no more events. Deferred ones and those with a deadline are refused, the rest still runs."""
        with self._changed:
            if self._shutting_down:
                return
            log.info("%s: shutting down, requested by %s", self._name, source)
            self._shutting_down = True
            self._changed.notify_all()

    def close(self) -> None:
        """Shuts down and waits for the thread; without one, runs what is left here and now."""
        self.begin_shutdown("close")
        if self._thread is None:
            self.run_until_idle()
        elif self._thread is not threading.current_thread():
            self._thread.join()
