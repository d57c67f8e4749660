"""Runs the events of coordinators."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import ApiError, NotCoordinatorError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.coordinator.runtime.event_accumulator import EventAccumulator
from barnabas.log.dirs.log_dir_pace import Lane, LogDirPaces

logger = LimitedLogger(logging.getLogger(__name__))


LaneOf = Callable[[Any], Lane | None]
"""Returns the lane that events of a key must run on, or None."""


def no_lane(_: object) -> Lane | None:
    """Returns no lane, for brokers whose log directories are all fast."""
    return None


CLOSE_TIMEOUT_MS: Final = 10_000
"""How long close waits for events on other threads. No event blocks, so this should never be needed."""


class CoordinatorEvent(Protocol):
    """An event of one partition of a coordinator."""

    @property
    def key(self) -> Hashable: ...

    def run(self) -> None: ...

    def complete(self, error: BaseException | None) -> None:
        """Called once at the end, with None on success."""
        ...


class EventProcessor(Protocol):
    """Runs events: those of one partition in order, those of different partitions in any order."""

    def enqueue_last(self, event: CoordinatorEvent) -> None: ...

    def enqueue_first(self, event: CoordinatorEvent) -> None:
        """Adds an event before the others of its partition, for notifications that they wait for."""
        ...

    def has_waiting(self, key: Hashable) -> bool:
        """Returns whether more events wait for this partition."""
        ...

    def close(self) -> None: ...


def run_event(event: CoordinatorEvent) -> None:
    """Runs an event, and passes an error to it."""
    try:
        event.run()
    except Exception as error:  # noqa: BLE001 - passed to the event and to its future
        if isinstance(error, ApiError):
            # The traceback is not used, and its frames would form a cycle with the event and the error.
            error.__traceback__ = None
        try:
            event.complete(error)
        except Exception:
            logger.exception("%r failed, and so did its completion", event)


class MultiThreadedEventProcessor:
    """Runs events on its own threads, or on the calling thread.

    While threads take turns with the GIL, a hand-off to another thread costs more than most coordinator operations. So
    with `inline` the caller runs an event at once, if its partition is free and has no waiting events, which keeps the
    order. Only the outermost event of a thread runs inline: events that it adds are queued, and run when it has ended.
    Loading, timers and events for a busy partition run on the threads.

    An event may write. If the log directory of its partition is slow, it runs on a lane of that directory, with its key
    taken as always, so that neither the calling thread nor events of other partitions wait for the disk.
    """

    def __init__(
        self,
        name: str,
        num_threads: int,
        *,
        inline: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        exit_procedure: ExitProcedure = exit_process,
        paces: LogDirPaces | None = None,
        lane_of: LaneOf = no_lane,
    ) -> None:
        """Threads are named ``<name>-event-processor-<n>``.

        `lane_of` is called for each event while `paces` are attentive, see `LogDirPaces`.
        """
        self._paces = LogDirPaces(clock) if paces is None else paces
        self._lane_of = lane_of
        self._accumulator: EventAccumulator[Any, Any] = EventAccumulator(clock)
        self._inline = inline
        self._local = _Local()
        self._lock = threading.Lock()
        """Guards `_closed`; no other lock is taken while it is held."""
        self._closed = False
        self._threads = [
            _EventProcessorThread(f"{name}-event-processor-{number}", self._accumulator, self._run, exit_procedure)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def enqueue_last(self, event: CoordinatorEvent) -> None:
        """Runs or queues an event; after `close`, it fails with NOT_COORDINATOR."""
        if self._inline and not self._local.busy and self._accumulator.try_begin(event.key):
            self._run(event)
            return
        try:
            self._accumulator.add_last(event)
        except RuntimeError:
            event.complete(NotCoordinatorError())

    def _run(self, event: CoordinatorEvent) -> None:
        """Runs an event whose key is taken: here, or on a lane of the slow log directory of its partition."""
        if self._paces.attentive and (lane := self._lane_of(event.key)) is not None:
            lane.submit(partial(self._run_taken, event))
        else:
            self._run_taken(event)

    def _run_taken(self, event: CoordinatorEvent) -> None:
        local = self._local
        local.busy = True
        try:
            run_event(event)
        finally:
            local.busy = False
            self._accumulator.done(event.key)

    def enqueue_first(self, event: CoordinatorEvent) -> None:
        """Queues an event and never runs it inline: for callers that hold locks."""
        try:
            self._accumulator.add_first(event)
        except RuntimeError:
            event.complete(NotCoordinatorError())

    def has_waiting(self, key: Hashable) -> bool:
        return self._accumulator.has_waiting(key)

    def __len__(self) -> int:
        """The number of waiting events."""
        return len(self._accumulator)

    def close(self) -> None:
        """Returns when all threads have ended. Waiting events fail with NOT_COORDINATOR."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for thread in self._threads:
            thread.initiate_shutdown()
        left = self._accumulator.close()
        for thread in self._threads:
            thread.await_shutdown()
        if not self._accumulator.await_idle(CLOSE_TIMEOUT_MS):
            logger.warning("An event is still running on the thread that submitted it")
        for event in left:
            event.complete(NotCoordinatorError())


class _Local(threading.local):
    busy = False


class _EventProcessorThread(ShutdownableThread):
    def __init__(
        self,
        name: str,
        accumulator: EventAccumulator[Any, Any],
        run: Callable[[CoordinatorEvent], None],
        exit_procedure: ExitProcedure,
    ) -> None:
        super().__init__(name, exit_procedure=exit_procedure)
        self._accumulator = accumulator
        self._run_event = run

    def do_work(self) -> None:
        event = self._accumulator.poll(None)
        if event is not None:  # None means closed, which ends the loop
            self._run_event(event)
