"""Who runs the events of coordinators."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from typing import Any, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import ApiError, NotCoordinatorError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.coordinator.runtime.event_accumulator import EventAccumulator

logger = LimitedLogger(logging.getLogger(__name__))


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
            logger.exception("%r failed, and so did telling it so", event)


class MultiThreadedEventProcessor:
    """Events on threads of their own, or on the thread that brings them.

    A hand-off to another thread costs more than most operations on a coordinator do, as long as threads take turns
    with the GIL. So with `inline` an event is run on the spot by whoever brings it, provided that its partition is free
    and nothing is in line for it; order stays what it would be. Only the outermost event of a thread is run so: what an
    event itself adds is queued, and run when that is over. Loading, timers and what comes while a partition is busy are
    for the threads.
    """

    def __init__(
        self,
        name: str,
        num_threads: int,
        *,
        inline: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        """Threads are called ``<name>-event-processor-<n>``."""
        self._accumulator: EventAccumulator[Any, Any] = EventAccumulator(clock)
        self._inline = inline
        self._local = _Local()
        self._lock = threading.Lock()
        """Guards `_closed`; nothing else is taken inside."""
        self._closed = False
        self._threads = [
            _EventProcessorThread(f"{name}-event-processor-{number}", self._accumulator, exit_procedure)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def enqueue_last(self, event: CoordinatorEvent) -> None:
        """Runs or queues an event; after `close`, it is completed with NOT_COORDINATOR."""
        local = self._local
        if self._inline and not local.busy and self._accumulator.try_begin(event.key):
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
            logger.warning("An event is still under way on the thread that brought it")
        for event in left:
            event.complete(NotCoordinatorError())


class _Local(threading.local):
    busy = False


class _EventProcessorThread(ShutdownableThread):
    def __init__(self, name: str, accumulator: EventAccumulator[Any, Any], exit_procedure: ExitProcedure) -> None:
        super().__init__(name, exit_procedure=exit_procedure)
        self._accumulator = accumulator

    def do_work(self) -> None:
        event = self._accumulator.poll(None)
        if event is None:
            return  # closed, which ends the loop
        try:
            run_event(event)
        finally:
            self._accumulator.done(event.key)


class DirectEventProcessor:
    """Runs everything on the thread that brings it, one after the other: for tests, and for simulations.

    What an event adds is run when it is over, as it would be by a thread.
    """

    def __init__(self) -> None:
        self._accumulator: EventAccumulator[Any, Any] = EventAccumulator()
        self._running = False
        self._held = 0

    def enqueue_last(self, event: CoordinatorEvent) -> None:
        self._accumulator.add_last(event)
        self.drain()

    def enqueue_first(self, event: CoordinatorEvent) -> None:
        self._accumulator.add_first(event)
        self.drain()

    def drain(self) -> None:
        """Runs what is in line, unless that is going on already, or held back."""
        if self._running or self._held:
            return
        self._running = True
        try:
            while (event := self._accumulator.poll()) is not None:
                run_event(event)
                self._accumulator.done(event.key)
        finally:
            self._running = False

    def hold(self) -> None:
        """Lets events pile up, as they do when a thread is busy elsewhere."""
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self.drain()

    def has_waiting(self, key: Hashable) -> bool:
        return self._accumulator.has_waiting(key)

    def __len__(self) -> int:
        return len(self._accumulator)

    def close(self) -> None:
        for event in self._accumulator.close():
            event.complete(NotCoordinatorError())
