"""The background thread of a consumer."""

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
    """Runs the request managers over the network, until it is told to stop.

    One turn, `run_once`, is: do what the application wants to have done; ask every manager what it wants to send; send
    that; wait for the network, as long as the most impatient manager says; and hand the answers out. Whatever the
    application hands in wakes the thread from its wait. A test takes turns by itself, with a clock that it moves.
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
        """Told of each turn, on this thread: for metrics."""
        self._running = True
        self._ended = False
        self._close_deadline_ms: int | None = None
        self._thread = threading.Thread(target=self.run, name=f"{THREAD_NAME} | {name}", daemon=True)
        self.on_end: Callable[[], None] = lambda: None
        """Tells the application, which may wait for it."""
        self.maximum_time_to_wait_ms = FOREVER
        """How long the application may wait for records without looking around. Written in every turn, read by the
        application thread; an old value does no harm."""

    # -- the loop

    def start(self) -> None:
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_current_thread(self) -> bool:
        return threading.current_thread() is self._thread

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
        """One turn."""
        now = self._clock.hi_res_milliseconds()
        self.on_turn(now)
        self.events.process(now)
        delegate = self._delegate
        wait_ms = FOREVER
        for manager in self._managers:
            result = manager.poll(now)
            if result is EMPTY:  # as most of them say in most turns
                continue
            if result.unsent_requests:
                delegate.add(result.unsent_requests, now)
            wait_ms = min(wait_ms, result.time_until_next_poll_ms)
        delegate.poll(wait_ms, now)
        if self._impatient:
            self.maximum_time_to_wait_ms = min([manager.maximum_time_to_wait(now) for manager in self._impatient])

    def wakeup(self) -> None:
        """Ends the wait of the turn that is under way. May be called from any thread."""
        self._delegate.wakeup()

    # -- the end

    def initiate_close(self, deadline_ms: int) -> None:
        """Has the thread end; requests that it has yet to send get until the deadline."""
        self._close_deadline_ms = deadline_ms
        self._running = False
        if self.is_started:
            self._delegate.wakeup()
        else:
            self._cleanup()

    @property
    def has_ended(self) -> bool:
        """Whether it has sent its last."""
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
        deadline_ms = now if self._close_deadline_ms is None else self._close_deadline_ms
        while self._delegate.has_unsent_requests() and now < deadline_ms:
            self._delegate.poll(min(deadline_ms - now, 100), now)
            now = self._clock.hi_res_milliseconds()
        # They are on their way; what brokers answer to them is of no interest, and closing sends them off.
        self._delegate.poll(0, now)

    def __repr__(self) -> str:
        return f"ConsumerNetworkThread({'running' if self._running else 'closed'}, {self._delegate!r})"
