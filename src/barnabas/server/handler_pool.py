"""Request handlers: the threads that process requests from the request channel."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors, ProtocolError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.memory_reuse import give_back_free_memory
from barnabas.common.placement import Placement, anywhere
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.request import NOT_SET, Request
from barnabas.server.request_channel import SHUTDOWN, CallbackRequest, RequestChannel
from barnabas.server.request_local import RequestLocal

log = LimitedLogger(logging.getLogger(__name__))

RECEIVE_MS = 300
_GIVE_BACK_NS = 500_000_000
WAKE_AFTER = 16
"""How many responses a handler may send before it wakes their processors."""
_REPORT_IDLE_NS = 1_000_000
"""Idle time is reported in sums of at least this length: updating a meter costs more than a short wait."""


class ApiRequestHandler(Protocol):
    """The dispatcher of a broker or a controller, as the handlers see it."""

    def handle(self, request: Request, request_local: RequestLocal) -> None:
        """Handles a request, now or later, and sends the response through the request channel."""
        ...

    def try_complete_actions(self) -> None:
        """Runs the actions that requests have deferred."""
        ...

    @property
    def inline_apis(self) -> frozenset[ApiKey]:
        """The APIs whose handlers are short and never block, so that a network thread may run them inline."""
        ...

    @property
    def light_bytes(self) -> Mapping[ApiKey, int]:
        """The size up to which requests of an API are light, if it differs from ``LIGHT_BYTES``."""
        ...


class RequestRunner:
    """Runs the handler for one request on the calling thread, with timing, error handling and cleanup.

    The thread survives every error and the buffer is always released. If a handler fails without a response, the
    connection is closed: a disconnected client reconnects at once, while a client without a response waits for its
    timeout.
    """

    def __init__(
        self,
        apis: ApiRequestHandler,
        channel: RequestChannel,
        clock: Clock,
        exit_procedure: ExitProcedure = exit_process,
        placement: Placement = anywhere,
    ) -> None:
        self.apis = apis
        self.channel = channel
        self._now = clock.nanoseconds
        self._handle = apis.handle
        self._exit = exit_procedure
        self._gave_back_ns = NOT_SET
        self.placement = placement
        """Each thread that handles requests calls this when it starts."""

    def new_local(self, *, inline: bool = False) -> RequestLocal:
        """Makes the RequestLocal of the calling thread; ``inline`` if that is a network thread."""
        return RequestLocal(self.channel.send_callback, self.channel.send_bulk if inline else None)

    def run_bulk(self, request: Request, local: RequestLocal) -> None:
        """Runs the handler for a bulk request, then returns freed memory to the operating system."""
        try:
            self.run(request, local)
        finally:
            self.channel.finish_bulk()
        now = self._now()
        if now - self._gave_back_ns >= _GIVE_BACK_NS:  # not every time: it takes some milliseconds
            self._gave_back_ns = now
            give_back_free_memory()

    def run(self, request: Request, local: RequestLocal) -> None:
        request.request_dequeue_time_ns = self._now()
        local.request = request
        try:
            self._handle(request, local)
        except FatalExitError as error:
            log.critical("Fatal error while handling %r: %s", request, error)
            self._exit(error.status)
        except ProtocolError as error:
            # The client's error, not a bug here: log one line without a stack trace, or any client could fill the log.
            log.warning("Closing connection %s after a bad request: %s", request.connection_id, error)
            self.channel.update_error_metrics(request, Errors.INVALID_REQUEST)
            self.channel.close_unanswered(request)
        except Exception:
            log.exception("Handling %r failed", request)
            self.channel.close_unanswered(request)
        finally:
            if local.request is not None:  # None: it was handed over and belongs to another thread
                local.request = None
                request.handler_done(self._now)

    def run_callback(self, callback: CallbackRequest, local: RequestLocal) -> None:
        """Continues a request that has waited. The callback times of one request are added up."""
        request = callback.request
        now = self._now()
        if request.callback_request_dequeue_time_ns != NOT_SET:
            before = request.callback_request_complete_time_ns - request.callback_request_dequeue_time_ns
            request.callback_request_dequeue_time_ns = now - before
            request.callback_request_complete_time_ns = NOT_SET
        else:
            request.callback_request_dequeue_time_ns = now
        local.request = request
        try:
            try:
                callback.callback(local)
            finally:
                self.apis.try_complete_actions()
        except FatalExitError as error:
            log.critical("Fatal error in a callback of %r: %s", request, error)
            self._exit(error.status)
        except Exception:
            log.exception("A callback of %r failed", request)
            self.channel.close_unanswered(request)
        finally:
            if request.callback_request_complete_time_ns == NOT_SET:
                request.callback_request_complete_time_ns = self._now()
            local.request = None


class KafkaRequestHandler:
    """One handler thread: takes items from the channel, runs them and measures its idle time."""

    def __init__(
        self, handler_id: int, name: str, runner: RequestRunner, clock: Clock, idle: Callable[[int], None]
    ) -> None:
        self.id = handler_id
        self._runner = runner
        self._now = clock.nanoseconds
        self._idle = idle
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        self._runner.placement()
        local = self._runner.new_local()
        channel = self._runner.channel
        receive = channel.receive_request
        take_short = channel.take_short_request
        is_bulk = channel.is_bulk
        run = self._runner.run
        to_wake = channel.defer_wakeups()
        idle_ns = 0
        try:
            while True:
                started = self._now()
                item: Any = receive(RECEIVE_MS)
                idle_ns += self._now() - started
                if idle_ns >= _REPORT_IDLE_NS:
                    self._idle(idle_ns)
                    idle_ns = 0
                if type(item) is Request:
                    if is_bulk(item):
                        self._runner.run_bulk(item, local)
                        continue
                    run(item, local)
                    for _ in range(WAKE_AFTER - 1):  # short requests behind it, within the wake-up limit
                        item = take_short()
                        if item is None:
                            break
                        run(item, local)
                elif item is SHUTDOWN:
                    return
                elif isinstance(item, CallbackRequest):
                    self._runner.run_callback(item, local)
                # else a wake-up or a timeout
                if to_wake:
                    channel.wake_processors(to_wake)
        except BaseException:
            log.exception("Request handler %d died", self.id)
            raise
        finally:
            local.close()


class KafkaRequestHandlerPool:
    """Runs ``num.io.threads`` handlers on one channel. The number can be changed at run time."""

    def __init__(
        self,
        runner: RequestRunner,
        num_threads: int,
        clock: Clock,
        *,
        idle: Callable[[int, int], None] = lambda _nanoseconds, _threads: None,
        name_prefix: str = "data-plane",
    ) -> None:
        if num_threads < 1:
            raise ValueError(f"num.io.threads must be at least 1, not {num_threads}")
        self._runner = runner
        self._clock = clock
        self._idle = idle
        self._name_prefix = name_prefix
        self._lock = threading.Lock()
        """Guards the list of handlers while it is resized."""
        self._handlers: list[KafkaRequestHandler] = []
        self._stopped = False
        self.resize_thread_pool(num_threads)

    @property
    def threads(self) -> list[threading.Thread]:
        return [handler.thread for handler in self._handlers]

    @property
    def size(self) -> int:
        return len(self._handlers)

    def resize_thread_pool(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"num.io.threads must be at least 1, not {count}")
        with self._lock:
            if self._stopped:
                return
            before = len(self._handlers)
            taken = {handler.id for handler in self._handlers}  # not always 0 to n - 1: see below
            free = (number for number in itertools.count() if number not in taken)
            for handler_id in itertools.islice(free, max(count - before, 0)):
                handler = KafkaRequestHandler(
                    handler_id,
                    f"{self._name_prefix}-kafka-request-handler-{handler_id}",
                    self._runner,
                    self._clock,
                    self._report_idle,
                )
                self._handlers.append(handler)
                handler.thread.start()
            # Any handler may take a shutdown item, so only the number of handlers that stop is determined.
            for _ in range(before - count):
                self._runner.channel.send_shutdown()
            if count < before:
                self._await_survivors(count)
        if count != before:
            log.info("%s request handlers now, %s before", count, before)

    def _await_survivors(self, count: int) -> None:
        while sum(handler.thread.is_alive() for handler in self._handlers) > count:
            for handler in self._handlers:
                handler.thread.join(0.001)
        self._handlers = [handler for handler in self._handlers if handler.thread.is_alive()]

    def _report_idle(self, nanoseconds: int) -> None:
        self._idle(nanoseconds, max(len(self._handlers), 1))

    def shutdown(self) -> None:
        """Stops all handlers after their current item, and waits for them."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            for _ in self._handlers:
                self._runner.channel.send_shutdown()
        for handler in self._handlers:
            handler.thread.join()
