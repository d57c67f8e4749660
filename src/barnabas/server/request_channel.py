"""The request channel connects the network threads and the handlers.

Requests pass through a bounded queue; responses return through a deque of the processor that owns the connection.
When the handlers fall behind, the queue fills, the processors block, the sockets are not read, and TCP slows the
clients down. Nothing is dropped and memory stays bounded.

A second queue carries *callbacks*: completions of requests that have already waited once and must continue on a
handler thread. It is served first. The thread that queues a callback is not a handler, and all handlers may be asleep
at the request queue, so a sentinel is added to the request queue to wake one of them.

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
from barnabas.network.reactor.send import FileRegion
from barnabas.network.server.plane import ProcessorHandle
from barnabas.network.server.response import (
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
from barnabas.protocol.message import Response
from barnabas.server.bulk_lane import STALLED_MS, BulkLane, BulkResponse
from barnabas.server.envelope import enveloped_parts
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from barnabas.server.throttling import ThrottledConnection

log = logging.getLogger(__name__)

_MANY_PARTS: Final = 64


class AlreadyRespondedError(RuntimeError):
    """A request was given a second final response."""


class _Sentinel:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


WAKEUP: Final = _Sentinel("WakeupRequest")
SHUTDOWN: Final = _Sentinel("ShutdownRequest")


class CallbackRequest:
    """A completion of a request, to be run on a handler thread."""

    __slots__ = ("callback", "request")

    def __init__(self, callback: Callable[[RequestLocal], None], request: Request) -> None:
        self.callback = callback
        self.request = request


Item = Request | CallbackRequest | _Sentinel


class _Handler(threading.local):
    """The channel's per-thread state."""

    bulk: Request | None = None
    """The bulk request that the thread is handling."""
    was_bulk = False
    """Whether the thread's last request was a bulk request: it then takes an ordinary one next, if one is queued."""
    draining = False
    """Whether the thread is counted in ``RequestChannel._draining``."""
    to_wake: dict[int, ProcessorHandle] | None = None
    """Processors with queued responses that still need a wake-up; None if this thread wakes them immediately."""


class RequestChannel:
    """Bounded queues between processors and handlers.

    A processor queues all requests of one poll as a list, under one lock.

    **Waking handlers.** Without a global interpreter lock (``parallel``), the channel wakes one handler per request.
    With it, handlers cannot run at the same time, and a second handler only takes the lock away from the first. So
    the channel wakes one handler, which takes request after request. That handler could block in a request, for
    example on a disk. So before it starts on an API that is not in ``short_apis``, it wakes another handler for the
    rest of the queue. While requests are queued, a handler is always on its way to them.

    A handler that goes from one short request to the next also batches its wake-ups: it wakes each processor once
    (:meth:`wake_processors`) instead of after every response.
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
        """Guards the queues and the counts below. A processor may be woken while it is held: that takes no lock."""
        self._not_empty = threading.Condition(self._lock)
        self._not_full = threading.Condition(self._lock)
        self.requests: deque[Item] = deque()
        """Queued requests. A request may be handled inline only while this and `callbacks` are empty."""
        self.callbacks: deque[CallbackRequest] = deque()
        self._bulk = BulkLane(bulk_width)
        self._idle_handlers = 0
        """Handlers that wait and have not been woken."""
        self._draining = 0
        """Handlers that are awake or have been woken, and will take the next request soon."""
        self._wake_tokens = 0
        """Handlers that have been notified but are not running yet."""
        self._blocked_processors = 0
        self._handler = _Handler()
        self._processors: dict[int, ProcessorHandle] = {}
        self._processors_lock = threading.Lock()
        """Guards changes of ``_processors``. The dict is replaced as a whole, so reading needs no lock."""
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
        """Queues requests in order. Blocks while the queue is full: this is the back-pressure."""
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
        """Queues expensive requests without blocking. Closes the connection of a request that does not fit."""
        with self._lock:
            refused = [request for request in requests if not self._bulk.put(request)]
            if self._bulk.is_ready:
                self._wake_for_bulk()
        for request in refused:
            log.warning("Closing connection %s: too many large requests wait already", request.connection_id)
            request.release_buffer()
            self.close_without_response(request)

    def _wake_for_bulk(self) -> None:
        """Wakes a handler in addition to those that serve ordinary requests. Requires the lock."""
        if self._idle_handlers:
            self._idle_handlers -= 1
            self._draining += 1
            self._wake_tokens += 1
            self._not_empty.notify()

    def send_callback(self, callback: Callable[[RequestLocal], None], request: Request) -> None:
        """Queues a completion, ahead of all requests."""
        with self._lock:
            self.callbacks.append(CallbackRequest(callback, request))
            # Not counted against the bound: a thread that completes a request must never block on a full queue.
            self.requests.append(WAKEUP)
            self._wake_handlers(1)

    def send_shutdown(self) -> None:
        """Stops one handler."""
        with self._lock:
            self.requests.append(SHUTDOWN)
            self._wake_handlers(1)

    def _wake_handlers(self, queued: int) -> None:
        """Wakes handlers after ``queued`` items were added. Requires the lock."""
        wanted = queued if self._parallel else 0 if self._draining else 1
        count = min(wanted, self._idle_handlers)
        if count:
            self._idle_handlers -= count
            self._draining += count
            self._wake_tokens += count
            self._not_empty.notify(count)

    def receive_request(self, timeout_ms: float) -> Item | None:
        """Returns the next item for a handler, callbacks first; None after the timeout.

        A handler that calls this has finished its previous item.
        """
        handler = self._handler
        with self._lock:
            waiting = self._bulk.waiting
            bulk_ready = bool(waiting) and self._bulk.is_ready
            if not self.requests and not self.callbacks and not bulk_ready:
                self._wait_as_idle(handler, timeout_ms)
                self._close_stalled()
                bulk_ready = self._bulk.is_ready
                if not self.requests and not self.callbacks and not bulk_ready:
                    return None
            elif waiting and not bulk_ready:
                self._close_stalled()
            if not handler.draining:
                handler.draining = True
                self._draining += 1
            if self.callbacks:
                return self._taken(handler, self.callbacks.popleft())
            if bulk_ready and not (handler.was_bulk and self.requests):
                # Ahead of ordinary requests, otherwise it might starve. A handler alternates between the two queues,
                # so that neither starves with num.io.threads=1.
                handler.bulk = request = self._bulk.start()
                handler.was_bulk = True
                return self._taken(handler, request, bulk=True)
            handler.was_bulk = False
            item = self.requests.popleft()
            if self._blocked_processors:
                self._not_full.notify()
            return self._taken(handler, item)

    @property
    def has_bulk(self) -> bool:
        """Whether a bulk request is in flight. Its objects make a garbage collection slow."""
        return bool(self._bulk.without_response)

    def is_bulk(self, request: Request) -> bool:
        """Whether a handler has taken this request from the bulk lane."""
        return request in self._bulk.running

    def finish_bulk(self) -> None:
        """Ends the calling handler's bulk request, so that the next one can start."""
        handler = self._handler
        assert handler.bulk is not None
        with self._lock:
            self._bulk.done(handler.bulk)
            handler.bulk = None

    def take_short_request(self) -> Request | None:
        """Returns the next request if it is short, for a handler that has just finished a short one; else None.

        After None the handler wakes the processors of its responses. This never blocks, so there is no idle time to
        measure, and a handler that is counted as draining stays counted.
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
        if handler.to_wake:  # another handler took the short request that this one expected
            self.wake_processors(handler.to_wake)
        if handler.draining:
            handler.draining = False
            self._draining -= 1
        self._idle_handlers += 1
        self._clock.wait(self._not_empty, timeout_ms)
        if self._wake_tokens:  # _wake_handlers has updated the counts for this handler
            self._wake_tokens -= 1
            handler.draining = True
        else:
            self._idle_handlers -= 1

    def _close_stalled(self) -> None:
        """Closes the connection of a client that has left its bulk response unread for too long. Requires the lock."""
        request = self._bulk.stalled(self._now())
        if request is not None:
            log.warning(
                "Closing connection %s: it has left a large response unread for %d s while others wait for its memory",
                request.connection_id,
                STALLED_MS // 1000,
            )
            self._route(NetworkResponse(DROP_CONNECTION, request))

    def _taken(self, handler: _Handler, item: Item, *, bulk: bool = False) -> Item:
        """Wakes another handler for the rest of the queue if this item may take long. Requires the lock."""
        if item is WAKEUP or (not bulk and type(item) is Request and item.api_key in self._short_apis):
            return item
        if handler.to_wake:  # the responses must not wait for a slow item
            self.wake_processors(handler.to_wake)
        handler.draining = False
        self._draining -= 1
        if self.requests or self.callbacks:
            self._wake_handlers(len(self.requests))
        return item

    def defer_wakeups(self) -> dict[int, ProcessorHandle]:
        """Makes the calling handler thread wake processors itself, with :meth:`wake_processors`."""
        to_wake: dict[int, ProcessorHandle] = {}
        self._handler.to_wake = to_wake
        return to_wake

    @staticmethod
    def wake_processors(to_wake: dict[int, ProcessorHandle]) -> None:
        for processor in to_wake.values():
            processor.wakeup()
        to_wake.clear()

    def close(self) -> None:
        """Releases processors that wait for room. Their requests are dropped with their connections."""
        with self._lock:
            self._closed = True
            self._not_full.notify_all()
            self._not_empty.notify_all()

    # -- responses

    def send_response(self, request: Request, response: Response) -> None:
        """Sends the response to a request, wrapped in an EnvelopeResponse if the request came in an Envelope."""
        envelope = request.envelope
        if envelope is None:
            parts = response.frame_parts(request.api_version, request.correlation_id)
        else:
            parts = enveloped_parts(request, envelope, response)
        has_bulk = self._bulk.without_response
        self._finish(request, self._bulk_response(request, parts) if has_bulk else SendResponse(parts, request))

    def send_parts(self, request: Request, parts: Sequence[Any]) -> None:
        """Sends a response that is already encoded."""
        has_bulk = self._bulk.without_response
        self._finish(request, self._bulk_response(request, parts) if has_bulk else SendResponse(parts, request))

    def send_no_op_response(self, request: Request) -> None:
        """Ends a request that has no response, such as a produce with acks=0. The connection stays open."""
        self._finish(request, NetworkResponse(NO_OP, request))

    def close_connection(self, request: Request, errors: dict[Errors, int] | None = None) -> None:
        """Ends a request and closes its connection: the only way to report an error without a response."""
        for error, count in (errors or {}).items():
            self.update_error_metrics(request, error, count)
        self._finish(request, NetworkResponse(CLOSE_CONNECTION, request))

    def close_without_response(self, request: Request) -> None:
        """Closes the connection of a request that will get no response; no effect if the request has already ended."""
        with suppress(AlreadyRespondedError):
            self.close_connection(request)

    def start_throttling(self, client: Request | ThrottledConnection) -> None:
        self._route(NetworkResponse(START_THROTTLING, client))

    def end_throttling(self, client: Request | ThrottledConnection) -> None:
        self._route(NetworkResponse(END_THROTTLING, client))

    def update_error_metrics(self, request: Request, error: Errors, count: int = 1) -> None:
        self.times.of(request.api_key).mark_error(error, count)

    def _bulk_response(self, request: Request, parts: Sequence[Any]) -> SendResponse:
        """Makes the response while bulk requests have none: a BulkResponse if it belongs to one of them.

        Its handler may have returned long ago: a forwarded request gets its response when the controller has sent it.
        """
        if (request.envelope or request) not in self._bulk.without_response:
            return SendResponse(parts, request)
        if isinstance(parts, list) and len(parts) > _MANY_PARTS and all(isinstance(part, bytes) for part in parts):
            # There may be hundreds of thousands of parts, each taking several times the memory of its content.
            whole = b"".join(parts)
            empty(parts)
            parts = [whole]
        response = BulkResponse(parts, request)
        response.memory = sum(len(part) for part in parts if type(part) is not FileRegion)
        response.since_ns = self._now()
        with self._lock:
            self._bulk.respond(response)
        return response

    def _finish(self, request: Request, response: AnyResponse) -> None:
        if not request.finish(self._now()):
            raise AlreadyRespondedError(f"{request!r} got a second response")
        received = request
        if request.envelope is not None:
            received = request.envelope
            received.claim_response()
        if self._bulk.without_response and received in self._bulk.without_response:
            self._bulk.without_response.discard(received)
            if received not in self._bulk.running:  # otherwise its handler may still need it
                request.forget_entries()
        processor = self._processors.get(request.processor_id)
        # A missing processor was shut down, together with the connection.
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
