"""The consumer's background thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.clients.consumer.errors import IllegalStateError
from barnabas.clients.consumer.internals.application_events import ApplicationEventQueue
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, ErrorEvent
from barnabas.clients.consumer.internals.network_client_delegate import NetworkClientDelegate
from barnabas.clients.consumer.internals.request_managers import EMPTY, FOREVER, PatientRequestManager, RequestManager
from barnabas.common.clock import Clock

log = logging.getLogger(__name__)

THREAD_NAME: Final = "consumer_background_thread"


class ConsumerNetworkThread:
    """Runs the request managers and the network client until closed.

    One iteration, `run_once`: run the application's events; collect each manager's requests; send them; poll the
    network, at most as long as the shortest wait of a manager; dispatch the responses. A new application event wakes
    the poll. Tests call `run_once` themselves, with a manual clock.
    """

    def __init__(
        self,
        managers: Sequence[RequestManager],
        delegate: NetworkClientDelegate,
        background_events: BackgroundEventQueue,
        *,
        clock: Clock,
        name: str = "",
    ) -> None:
        self._managers = tuple(managers)
        self._impatient = [manager for manager in managers if not isinstance(manager, PatientRequestManager)]
        self._delegate = delegate
        self._background_events = background_events
        self._clock = clock
        self.events = ApplicationEventQueue(delegate.wakeup, clock)
        self.on_turn: Callable[[int], None] = lambda _now: None
        """Called in each iteration, on this thread: for metrics."""
        self._running = True
        self._ended = False
        self._close_deadline_ms: int | None = None
        self._thread = threading.Thread(target=self.run, name=f"{THREAD_NAME} | {name}", daemon=True)
        self.on_end: Callable[[], None] = lambda: None
        """Notifies the application, which may wait for the thread's end."""
        self.maximum_time_to_wait_ms = FOREVER
        """How long the application may wait for records before it checks again. Written in every iteration, read by the
        application thread; a stale value is harmless."""

    # -- the loop

    def start(self) -> None:
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def run(self) -> None:
        log.debug("The background thread has started")
        try:
            while self._running:
                try:
                    self.run_once()
                except Exception as error:
                    log.exception("Unexpected error in the background thread")
                    self._background_events.put(ErrorEvent(error))
        finally:
            self._cleanup()
            log.debug("The background thread has ended")
            self.on_end()

    def run_once(self) -> None:
        """Runs one iteration."""
        now = self._clock.hi_res_milliseconds()
        self.on_turn(now)
        self.events.process(now)
        delegate = self._delegate
        wait_ms = FOREVER
        for manager in self._managers:
            result = manager.poll(now)
            if result is EMPTY:  # the common case
                continue
            if result.unsent_requests:
                delegate.add(result.unsent_requests, now)
            wait_ms = min(wait_ms, result.time_until_next_poll_ms)
        delegate.poll(wait_ms, now)
        if self._impatient:
            self.maximum_time_to_wait_ms = min([manager.maximum_time_to_wait(now) for manager in self._impatient])

    def wakeup(self) -> None:
        """Ends the current poll. Thread-safe."""
        self._delegate.wakeup()

    # -- close

    def initiate_close(self, deadline_ms: int) -> None:
        """Ends the thread; unsent requests have until the deadline."""
        self._close_deadline_ms = deadline_ms
        self._running = False
        if self.is_started:
            self._delegate.wakeup()
        else:
            self._cleanup()

    @property
    def has_ended(self) -> bool:
        """Whether it has sent its last request."""
        return self._ended

    def join(self) -> None:
        """Waits for the thread to end."""
        if self.is_started:
            self._thread.join()

    def _cleanup(self) -> None:
        try:
            self._send_last_requests()
        except Exception:
            log.exception("What was left to send when the consumer was closed could not be sent")
        finally:
            self.events.close(IllegalStateError("This consumer has already been closed."))
            self._delegate.close()
            self._ended = True

    def _send_last_requests(self) -> None:
        now = self._clock.hi_res_milliseconds()
        self.events.process(now)
        for manager in self._managers:
            self._delegate.add(manager.poll_on_close(now).unsent_requests, now)
        self._delegate.drop_requests_to_any_node(now)
        deadline_ms = now if self._close_deadline_ms is None else self._close_deadline_ms
        while self._delegate.has_unsent_requests() and now < deadline_ms:
            self._delegate.poll(min(deadline_ms - now, 100), now)
            now = self._clock.hi_res_milliseconds()
        # Their responses do not matter; closing flushes the requests.
        self._delegate.poll(0, now)

    def __repr__(self) -> str:
        return f"ConsumerNetworkThread({'running' if self._running else 'closed'}, {self._delegate!r})"
