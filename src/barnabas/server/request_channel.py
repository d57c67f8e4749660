"""The request channel: what connects the network threads and the handlers.

Requests go one way through a bounded queue, answers go the other way through a deque of the processor that owns the
connection. When the handlers fall behind the queue is full, the processors block, the sockets are not read, and TCP
slows the clients down: nothing is dropped and memory stays bounded.

A second queue carries *callbacks*: completions of requests that have waited once already, and that must go on a
handler thread. It is served first. A callback is put by a thread that is no handler while the handlers may all be
asleep at the request queue, so a sentinel goes into that one to wake one of them.

A third queue is the *bulk lane*, for requests that cost much more than others: see `barnabas.server.bulk_lane`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.memory_reuse import empty
from barnabas.network.plane import ProcessorHandle
from barnabas.network.response import (
    CLOSE_CONNECTION,
    DROP_CONNECTION,
    END_THROTTLING,
    NO_OP,
    START_THROTTLING,
    AnyResponse,
    NetworkResponse,
    SendResponse,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import response_parts
from barnabas.protocol.message import Response
from barnabas.server.bulk_lane import STALLED_MS, BulkLane, BulkResponse
from barnabas.server.envelope import enveloped_parts
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes

log = logging.getLogger(__name__)

_MANY_PARTS: Final = 64


class AlreadyAnsweredError(RuntimeError):
    """A second response that would end a request."""


class _Sentinel:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


WAKEUP: Final = _Sentinel("WakeupRequest")
SHUTDOWN: Final = _Sentinel("ShutdownRequest")


class CallbackRequest:
    """A completion to be run on a handler thread, for the request it belongs to."""

    __slots__ = ("callback", "request")

    def __init__(self, callback: Callable[[RequestLocal], None], request: Request) -> None:
        self.callback = callback
        self.request = request


Item = Request | CallbackRequest | _Sentinel


class _Handler(threading.local):
    """What the channel knows of the thread that calls it."""

    bulk: Request | None = None
    """The bulk request that the thread is at."""
    was_bulk = False
    """Whether the thread's last request was a bulk one: the next is an ordinary one then, if one waits."""
    draining = False
    """Whether the thread is counted in ``RequestChannel._draining``."""
    to_wake: dict[int, ProcessorHandle] | None = None
    """Processors with answers that they have not been woken for; none if this thread wakes them at once."""


class RequestChannel:
    """Bounded queues between processors and handlers.

    Requests come in by the list: all that one poll of a processor yielded, with one lock.

    **Who is woken.** Without a global interpreter lock (``parallel``) a handler for each request. With it, handlers
    cannot run at the same time, and one that is woken only takes the lock away from the one at work. So then one
    handler is woken, and takes request after request. That would be wrong if it could get stuck in one of them,
    waiting for a disk perhaps. So it is told which APIs are short (``short_apis``): before a handler starts on
    anything else, it has another one woken for what is left in the queue. While there are requests, somebody is always
    on the way to them.

    In the same way a handler that goes from one short request to the next wakes the processors of its answers together,
    once each (:meth:`wake_processors`), and not after every answer.
    """

    def __init__(
        self,
        queue_size: int,
        clock: Clock,
        times: RequestTimes,
        *,
        short_apis: Collection[ApiKey] = frozenset(),
        parallel: bool = False,
        bulk_width: int = 1,
    ) -> None:
        if queue_size < 1:
            raise ValueError(f"queued.max.requests must be at least 1, not {queue_size}")
        self._size = queue_size
        self._clock = clock
        self._now = clock.nanoseconds
        self.times = times
        self._short_apis = short_apis
        self._parallel = parallel
        self._lock = threading.Lock()
        """Guards the queues and the counts below. Inside it a processor may be woken, which locks nothing further."""
        self._not_empty = threading.Condition(self._lock)
        self._not_full = threading.Condition(self._lock)
        self.requests: deque[Item] = deque()
        """What handlers have not taken. A request may be handled inline only while this and `callbacks` are empty."""
        self.callbacks: deque[CallbackRequest] = deque()
        self._bulk = BulkLane(bulk_width)
        self._idle_handlers = 0
        """Handlers that wait and that nobody has woken."""
        self._draining = 0
        """Handlers that are up, or woken, and will be back for the next request before long."""
        self._wake_tokens = 0
        """Handlers that were woken and do not know it yet."""
        self._blocked_processors = 0
        self._handler = _Handler()
        self._processors: dict[int, ProcessorHandle] = {}
        self._processors_lock = threading.Lock()
        """Guards changes of ``_processors``; it is replaced whole, so reading needs no lock."""
        self._closed = False

    # -- processors

    def add_processor(self, processor: ProcessorHandle) -> None:
        with self._processors_lock:
            if processor.id in self._processors:
                raise ValueError(f"there is a processor {processor.id} already")
            self._processors = {**self._processors, processor.id: processor}

    def remove_processor(self, processor_id: int) -> None:
        with self._processors_lock:
            self._processors = {key: value for key, value in self._processors.items() if key != processor_id}

    @property
    def response_queue_size(self) -> int:
        return sum(processor.response_queue_size for processor in self._processors.values())

    # -- requests

    @property
    def request_queue_size(self) -> int:
        return len(self.requests)

    @property
    def bulk_queue_size(self) -> int:
        return len(self._bulk)

    def send_requests(self, requests: Sequence[Request]) -> None:
        """Queues requests in order; waits for room, which is the back-pressure."""
        with self._lock:
            start = 0
            while start < len(requests):
                room = self._size - len(self.requests)
                if room <= 0:
                    if self._closed:
                        for request in requests[start:]:
                            request.release_buffer()
                        return
                    self._blocked_processors += 1
                    try:
                        self._clock.wait(self._not_full, None)
                    finally:
                        self._blocked_processors -= 1
                    continue
                taken = requests[start : start + room]
                self.requests.extend(taken)
                start += len(taken)
                self._wake_handlers(len(taken))

    def send_bulk(self, requests: Sequence[Request]) -> None:
        """Queues requests that cost much; never waits. The connection of one that does not fit is closed."""
        with self._lock:
            refused = [request for request in requests if not self._bulk.put(request)]
            if self._bulk.is_ready:
                self._wake_for_bulk()
        for request in refused:
            log.warning("Closing connection %s: too many large requests wait already", request.connection_id)
            request.release_buffer()
            self.close_unanswered(request)

    def _wake_for_bulk(self) -> None:
        """With the lock held. One handler more than those that look after ordinary requests."""
        if self._idle_handlers:
            self._idle_handlers -= 1
            self._draining += 1
            self._wake_tokens += 1
            self._not_empty.notify()

    def send_callback(self, callback: Callable[[RequestLocal], None], request: Request) -> None:
        """Queues a completion, ahead of all requests."""
        with self._lock:
            self.callbacks.append(CallbackRequest(callback, request))
            # Not counted against the bound: whoever completes a request must never wait for room.
            self.requests.append(WAKEUP)
            self._wake_handlers(1)

    def send_shutdown(self) -> None:
        """Tells one handler to end."""
        with self._lock:
            self.requests.append(SHUTDOWN)
            self._wake_handlers(1)

    def _wake_handlers(self, queued: int) -> None:
        """With the lock held, after something was queued."""
        wanted = queued if self._parallel else 0 if self._draining else 1
        count = min(wanted, self._idle_handlers)
        if count:
            self._idle_handlers -= count
            self._draining += count
            self._wake_tokens += count
            self._not_empty.notify(count)

    def receive_request(self, timeout_ms: float) -> Item | None:
        """The next thing to do for a handler: a callback if there is one, else a request; none if it takes too long.

        A handler that calls this is done with what it was at.
        """
        handler = self._handler
        with self._lock:
            bulk_ready = self._bulk.is_ready
            if not self.requests and not self.callbacks and not bulk_ready:
                self._wait_as_idle(handler, timeout_ms)
                self._close_stalled()
                bulk_ready = self._bulk.is_ready
                if not self.requests and not self.callbacks and not bulk_ready:
                    return None
            if not handler.draining:
                handler.draining = True
                self._draining += 1
            if self.callbacks:
                return self._taken(handler, self.callbacks.popleft())
            if bulk_ready and not (handler.was_bulk and self.requests):
                # Ahead of ordinary requests, or it might never get its turn. A handler alternates between the two, so
                # that with num.io.threads=1 neither queue starves.
                handler.bulk = request = self._bulk.start()
                handler.was_bulk = True
                return self._taken(handler, request, bulk=True)
            handler.was_bulk = False
            item = self.requests.popleft()
            if self._blocked_processors:
                self._not_full.notify()
            return self._taken(handler, item)

    def is_bulk(self, request: Request) -> bool:
        """Whether a handler has taken this request from the bulk lane."""
        return request in self._bulk.running

    def finish_bulk(self) -> None:
        """For a handler that is done with a bulk request: lets the next one start."""
        handler = self._handler
        assert handler.bulk is not None
        with self._lock:
            self._bulk.done(handler.bulk)
            handler.bulk = None

    def take_short_request(self) -> Request | None:
        """For a handler that has just done a short request: the next one, if that is short, too; else none.

        With none, it is time to wake the processors of the answers so far. This never waits, so there is no idle time
        to be measured, and a handler that is counted as draining stays so.
        """
        if not self._handler.draining:
            return None
        with self._lock:
            if self.callbacks or not self.requests:
                return None
            item = self.requests[0]
            if type(item) is not Request or item.api_key not in self._short_apis:
                return None
            self.requests.popleft()
            if self._blocked_processors:
                self._not_full.notify()
            return item

    def _wait_as_idle(self, handler: _Handler, timeout_ms: float) -> None:
        if handler.to_wake:  # the short request that was to be done first has gone to another handler
            self.wake_processors(handler.to_wake)
        if handler.draining:
            handler.draining = False
            self._draining -= 1
        self._idle_handlers += 1
        self._clock.wait(self._not_empty, timeout_ms)
        if self._wake_tokens:  # whoever woke us has counted us
            self._wake_tokens -= 1
            handler.draining = True
        else:
            self._idle_handlers -= 1

    def _close_stalled(self) -> None:
        """With the lock held: closes the connection of a client that has left its bulk response unread for too long."""
        request = self._bulk.stalled(self._now())
        if request is not None:
            log.warning(
                "Closing connection %s: it has left a large response unread for %d s while others wait for its memory",
                request.connection_id,
                STALLED_MS // 1000,
            )
            self._route(NetworkResponse(DROP_CONNECTION, request))

    def _taken(self, handler: _Handler, item: Item, *, bulk: bool = False) -> Item:
        """With the lock held: a handler that may not be back soon has somebody else look after the rest."""
        if item is WAKEUP or (not bulk and type(item) is Request and item.api_key in self._short_apis):
            return item
        if handler.to_wake:  # likewise: this one may take long
            self.wake_processors(handler.to_wake)
        handler.draining = False
        self._draining -= 1
        if self.requests or self.callbacks:
            self._wake_handlers(len(self.requests))
        return item

    def defer_wakeups(self) -> dict[int, ProcessorHandle]:
        """From now on the calling thread, a handler, wakes processors itself: see :meth:`wake_processors`."""
        to_wake: dict[int, ProcessorHandle] = {}
        self._handler.to_wake = to_wake
        return to_wake

    @staticmethod
    def wake_processors(to_wake: dict[int, ProcessorHandle]) -> None:
        for processor in to_wake.values():
            processor.wakeup()
        to_wake.clear()

    def close(self) -> None:
        """Lets processors that wait for room go; what they hold is dropped with their connections."""
        with self._lock:
            self._closed = True
            self._not_full.notify_all()
            self._not_empty.notify_all()

    # -- responses

    def send_response(self, request: Request, response: Response) -> None:
        """Sends the response to a request; one that came in an Envelope gets its response in one."""
        envelope = request.envelope
        if envelope is not None:
            parts = enveloped_parts(request, envelope, response)
        else:
            parts = response_parts(response, request.api_version, request.correlation_id)
        self._finish(
            request, self._bulk_response(request, parts) if self._bulk.running else SendResponse(parts, request)
        )

    def send_parts(self, request: Request, parts: Sequence[Any]) -> None:
        """Answers a request with a frame that is encoded already."""
        self._finish(
            request, self._bulk_response(request, parts) if self._bulk.running else SendResponse(parts, request)
        )

    def send_no_op_response(self, request: Request) -> None:
        """Ends a request that gets no answer, such as a produce with acks=0; the connection reads on."""
        self._finish(request, NetworkResponse(NO_OP, request))

    def close_connection(self, request: Request, errors: dict[Errors, int] | None = None) -> None:
        """Ends a request and its connection: the only way to tell of an error where there is no answer."""
        for error, count in (errors or {}).items():
            self.update_error_metrics(request, error, count)
        self._finish(request, NetworkResponse(CLOSE_CONNECTION, request))

    def close_unanswered(self, request: Request) -> None:
        """Ends a request that nobody will answer, and its connection; nothing if somebody has just done so."""
        with suppress(AlreadyAnsweredError):
            self.close_connection(request)

    def start_throttling(self, request: Request) -> None:
        self._route(NetworkResponse(START_THROTTLING, request))

    def end_throttling(self, request: Request) -> None:
        self._route(NetworkResponse(END_THROTTLING, request))

    def update_error_metrics(self, request: Request, error: Errors, count: int = 1) -> None:
        self.times.of(request.api_key).mark_error(error, count)

    def _bulk_response(self, request: Request, parts: Sequence[Any]) -> SendResponse:
        """The response to a request that is handled now, while some handler is at a bulk request: perhaps that one."""
        if request not in self._bulk.running:
            return SendResponse(parts, request)
        if isinstance(parts, list) and len(parts) > _MANY_PARTS and all(isinstance(part, bytes) for part in parts):
            # Each of the hundred thousands of pieces takes several times the memory of what is in it.
            whole = b"".join(parts)
            empty(parts)
            parts = [whole]
        response = BulkResponse(parts, request)
        response.since_ns = self._now()
        with self._lock:
            self._bulk.respond(response)
        return response

    def _finish(self, request: Request, response: AnyResponse) -> None:
        if not request.finish(self._now()):
            raise AlreadyAnsweredError(f"{request!r} was answered twice")
        if request.envelope is not None:
            request.envelope.claim_answer()
        processor = self._processors.get(request.processor_id)
        # Without a processor it was shut down, and the connection with it.
        if processor is not None and processor.enqueue_response(response):
            self._wake(processor)

    def _route(self, response: NetworkResponse) -> None:
        processor = self._processors.get(response.request.processor_id)
        if processor is not None and processor.enqueue_response(response):
            self._wake(processor)

    def _wake(self, processor: ProcessorHandle) -> None:
        to_wake = self._handler.to_wake
        if to_wake is None:
            processor.wakeup()
        else:
            to_wake[processor.id] = processor

    def __repr__(self) -> str:
        return f"RequestChannel({len(self.requests)} of {self._size} queued, {len(self._processors)} processors)"
