"""The controller's event queue and the one thread that runs its events.

Only one thread accesses the controller's state; other threads add an *event* to this queue and wait for its result.
So the controller needs no locks, despite dozens of operations and a leadership that can be lost between any two.

There are three ways to add an event:

- *appended*, with or without a deadline: run in order. An event that is still queued at its deadline is not run; it
  fails with a timeout, because its caller has given up.
- *prepended*: run next. The controller uses it once per leadership, for the event that completes the activation.
- *deferred* to a time, under a tag: run at that time, before queued events. Scheduling a tag again replaces its event;
  optionally the *earlier* of the two times is kept. Periodic tasks use this.

A test has no thread: it calls :meth:`KafkaEventQueue.run_until_idle` and moves the clock.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import ApiError
from barnabas.common.exceptions import BarnabasError, KafkaTimeoutError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process

log = LimitedLogger(logging.getLogger(__name__))

FEW_STALE = 64
"""How many deadlines of finished events the heap may hold before it is considered for a rebuild."""


class EventQueueClosedError(BarnabasError):
    """The event was not run because the queue is shutting down."""


class Event(Protocol):
    """An operation for the queue's thread."""

    def run(self) -> None: ...

    def handle_exception(self, error: Exception) -> None:
        """Called instead of :meth:`run` (timed out, queue closed), or with the exception that `run` raised."""
        ...


class _Entry:
    """An event in the queue, the heap of deadlines, or both.

    When it is taken out of one, or cancelled, it loses its event: the entry may stay in the other until the deadline,
    and an event refers to a whole request.
    """

    __slots__ = ("deadline_ns", "deferred", "event", "tag")

    def __init__(self, event: Event, deadline_ns: int | None, deferred: bool, tag: str | None) -> None:
        self.event: Event | None = event
        self.deadline_ns = deadline_ns
        self.deferred = deferred
        self.tag = tag


class KafkaEventQueue:
    """The queue described in the module. Any thread may add events; one thread, or one test, runs them.

    If an event raises :class:`FatalExitError`, the thread ends and `exit_procedure` ends the process.
    """

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK, exit_procedure: ExitProcedure = exit_process) -> None:
        self._name = name
        self._clock = clock
        self._exit_procedure = exit_procedure
        self._changed = threading.Condition()
        """Guards the fields below. Events run without it; only the clock's own lock is taken inside it."""
        self._queue: deque[_Entry] = deque()
        self._deadlines: list[tuple[int, int, _Entry]] = []
        """A heap by time, then by order of arrival. Entries that are `done` are skipped at the top."""
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
        """Runs the event at a time of the steady clock; replaces any event scheduled under the same tag.

        With `earliest`, the time of the replaced event is kept if it is sooner.
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
        if closed and entry.event is not None:
            self._complete(entry.event, EventQueueClosedError(f"{self._name} is shutting down"))

    def _drop_tag(self, tag: str) -> _Entry | None:
        entry = self._tags.pop(tag, None)
        if entry is not None:
            entry.event = None
            self._size -= 1
            self._note_stale(entry)
        return entry

    def _note_stale(self, entry: _Entry) -> None:
        """Counts a finished entry that is still in the heap; rebuilds the heap when most entries are finished.

        A client chooses the deadline of its request, up to 24 days ahead. Without the rebuild the entry would stay in
        memory for that long.
        """
        if entry.deadline_ns is None:
            return
        self._stale += 1
        if self._stale > FEW_STALE and self._stale * 2 > len(self._deadlines):
            self._deadlines = [one for one in self._deadlines if one[2].event is not None]
            heapq.heapify(self._deadlines)
            self._stale = 0

    def __len__(self) -> int:
        """Returns the number of waiting events, including deferred ones."""
        with self._changed:
            return self._size

    # -- running

    def run_once(self) -> bool:
        """Runs one event that is due; returns False if there is none."""
        with self._changed:
            taken = self._take(self._clock.nanoseconds())
        if taken is None:
            return False
        self._run(*taken)
        return True

    def run_until_idle(self) -> int:
        """Runs due events, including those that events add, until none is left; returns how many ran."""
        ran = 0
        while self.run_once():
            ran += 1
        return ran

    def next_deadline_ns(self) -> int | None:
        """Returns the next time in the heap: that of a deferred event, or the deadline of a queued one."""
        with self._changed:
            self._skip_done()
            return self._deadlines[0][0] if self._deadlines else None

    def _take(self, now_ns: int) -> tuple[Event, Exception | None] | None:
        """Takes the next event, with an error if it must fail instead of run. The lock must be held."""
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
            if entry.event is not None:
                event = self._taken(entry)
                self._note_stale(entry)
                return event, None
        return None

    def _taken(self, entry: _Entry) -> Event:
        event, entry.event = entry.event, None
        assert event is not None, "finished entries are skipped"
        self._size -= 1
        if entry.tag is not None:
            self._tags.pop(entry.tag, None)
        return event

    def _skip_done(self) -> None:
        while self._deadlines and self._deadlines[0][2].event is None:
            heapq.heappop(self._deadlines)
            self._stale -= 1

    def _run(self, event: Event, error: Exception | None) -> None:
        if error is None:
            try:
                event.run()
            except Exception as raised:  # noqa: BLE001 - the event handles it, and the loop continues
                error = raised
        if error is not None:
            self._complete(event, error)

    def _complete(self, event: Event, error: Exception) -> None:
        if isinstance(error, ApiError):
            # The traceback is not used, and its frames would keep the whole request alive.
            error.__traceback__ = None
        try:
            event.handle_exception(error)
        except Exception:
            log.exception("%s: %s failed while handling %r", self._name, event, error)

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
        """Stops accepting events. Deferred events and those with a deadline are refused; the others still run."""
        with self._changed:
            if self._shutting_down:
                return
            log.info("%s: shutting down, requested by %s", self._name, source)
            self._shutting_down = True
            self._changed.notify_all()

    def close(self) -> None:
        """Shuts down and waits for the thread; without a thread, runs the remaining events now."""
        self.begin_shutdown("close")
        if self._thread is None:
            self.run_until_idle()
        elif self._thread is not threading.current_thread():
            self._thread.join()


class QueuedCall:
    """A function as an event; ``name`` identifies it in the log if it fails."""

    __slots__ = ("_action", "_name")

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self._name = name
        self._action = action

    def run(self) -> None:
        self._action()

    def handle_exception(self, error: Exception) -> None:
        if not isinstance(error, EventQueueClosedError):
            log.error("%s failed", self._name, exc_info=error)

    def __repr__(self) -> str:
        return f"QueuedCall({self._name})"
