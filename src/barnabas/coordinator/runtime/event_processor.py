"""Who runs the events of coordinators."""

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
from barnabas.log.log_dir_pace import Lane, LogDirPaces

logger = LimitedLogger(logging.getLogger(__name__))


LaneOf = Callable[[Any], Lane | None]
"""Where the events of a key have to run, if not here."""


def no_lane(_: object) -> Lane | None:
    """All log directories are quick."""
    return None


CLOSE_TIMEOUT_MS: Final = 10_000
"""How long a close waits for events that other threads run themselves. No event blocks, so this is never needed."""


class CoordinatorEvent(Protocol):
    """Something that happens to one partition of a coordinator."""

    @property
    def key(self) -> Hashable: ...

    def run(self) -> None: ...

    def complete(self, error: BaseException | None) -> None:
        """Its end, told once: with None if it went well."""
        ...


class EventProcessor(Protocol):
    """Runs events: those of one partition one after the other, those of several in any order."""

    def enqueue_last(self, event: CoordinatorEvent) -> None: ...

    def enqueue_first(self, event: CoordinatorEvent) -> None:
        """For the news that others wait for."""
        ...

    def has_waiting(self, key: Hashable) -> bool:
        """Whether more is to come for this partition."""
        ...

    def close(self) -> None: ...


def run_event(event: CoordinatorEvent) -> None:
    """Runs an event, which hears of its own failure."""
    try:
        event.run()
    except Exception as error:  # noqa: BLE001 - it is the event's, and goes to whoever waits for it
        if isinstance(error, ApiError):
            # Nobody looks at where it was raised, and the frames there refer to the event, which refers to the error.
            error.__traceback__ = None
        try:
            event.complete(error)
        except Exception:
            logger.exception("%r failed, and so did its completion", event)


class MultiThreadedEventProcessor:
    """Events on threads of their own, or on the thread that brings them.

    A hand-off to another thread costs more than most operations on a coordinator do, as long as threads take turns
    with the GIL. So with `inline` an event is run on the spot by whoever brings it, provided that its partition is free
    and nothing is in line for it; order stays what it would be. Only the outermost event of a thread is run so: what an
    event itself adds is queued, and run when that is over. Loading, timers and what comes while a partition is busy are
    for the threads.

    An event may write. If the log directory of its partition is slow, it runs on a lane of that directory, with its
    key taken as always, so that neither the thread that brings it nor the events of other partitions wait for the disk.
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
        """Threads are called ``<name>-event-processor-<n>``.

        `lane_of` is asked for each event while `paces` are attentive, see `LogDirPaces`.
        """
        self._paces = LogDirPaces(clock) if paces is None else paces
        self._lane_of = lane_of
        self._accumulator: EventAccumulator[Any, Any] = EventAccumulator(clock)
        self._inline = inline
        self._local = _Local()
        self._lock = threading.Lock()
        """Guards `_closed`; nothing else is taken inside."""
        self._closed = False
        self._threads = [
            _EventProcessorThread(f"{name}-event-processor-{number}", self._accumulator, self._run, exit_procedure)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def enqueue_last(self, event: CoordinatorEvent) -> None:
        """Runs or queues an event; after `close`, it is completed with NOT_COORDINATOR."""
        local = self._local
        if self._inline and not local.busy and self._accumulator.try_begin(event.key):
            if self._paces.attentive and (lane := self._lane_of(event.key)) is not None:
                lane.submit(partial(self._run_taken, event))
                return
            local.busy = True
            try:
                run_event(event)
            finally:
                local.busy = False
                self._accumulator.done(event.key)
            return
        try:
            self._accumulator.add_last(event)
        except RuntimeError:
            event.complete(NotCoordinatorError())

    def _run(self, event: CoordinatorEvent) -> None:
        """Runs an event whose key is taken: here, or on a thread for the slow log directory of its partition."""
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
        """Never runs it on the spot: this is for callers that hold locks."""
        try:
            self._accumulator.add_first(event)
        except RuntimeError:
            event.complete(NotCoordinatorError())

    def has_waiting(self, key: Hashable) -> bool:
        return self._accumulator.has_waiting(key)

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._accumulator)

    def close(self) -> None:
        """Returns when all threads have ended. What is still in line is completed with NOT_COORDINATOR."""
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
        if event is not None:  # it is closed otherwise, which ends the loop
            self._run_event(event)
