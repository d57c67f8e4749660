"""A request inside the broker, and the six moments of its life.

====== =============================== ============================================
moment field                           who writes it
====== =============================== ============================================
T0     ``start_time_ns``               the processor, when the last byte has arrived
T1     ``request_dequeue_time_ns``     the handler that picks it up
T2     ``api_local_complete_time_ns``  the handler, when its own part is done
T3     ``response_complete_time_ns``   whoever finishes the answer
T4     ``response_dequeue_time_ns``    the processor, when it takes the answer
T5     the end                         the processor, when the last byte is out
====== =============================== ============================================

T0 to T1 is time in the request queue, T1 to T2 local time, T2 to T3 remote time (waiting in a purgatory, on a
follower, on the controller), T3 to T4 time in the response queue, T4 to T5 sending. Throttle time is not a part of
these: a throttled client has its answer at once.
"""

from __future__ import annotations

from typing import Any

from barnabas.common.errors import ProtocolError
from barnabas.network.memory_pool import UNBOUNDED, MemoryPool
from barnabas.network.plane import ConnectionContext
from barnabas.network.response import AnyResponse
from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Request as RequestMessage
from barnabas.security.request_context import RequestContext
from barnabas.server.request_metrics import RequestTimes

NOT_SET = -1


class Request:
    """One request from the moment it was read until its answer is sent.

    The body is decoded when a handler first asks for it. The buffer is given back once the handler is done with it:
    :meth:`release_buffer` may be called any number of times and counts once.
    """

    __slots__ = (
        "_body",
        "_pool",
        "api_key",
        "api_local_complete_time_ns",
        "api_throttle_time_ms",
        "api_version",
        "body_start",
        "buffer",
        "callback_request_complete_time_ns",
        "callback_request_dequeue_time_ns",
        "client_id",
        "connection_id",
        "context",
        "correlation_id",
        "processor_id",
        "record_network_thread_time",
        "request_dequeue_time_ns",
        "response_complete_time_ns",
        "response_dequeue_time_ns",
        "size",
        "start_time_ns",
        "times",
        "unanswered",
    )

    envelope: Request | None = None
    """The Envelope that a forwarded request came in: see `barnabas.server.envelope`."""

    def __init__(
        self,
        processor_id: int,
        context: ConnectionContext,
        header: ParsedHeader,
        payload: memoryview,
        pool: MemoryPool,
        start_time_ns: int,
        times: RequestTimes,
    ) -> None:
        self.api_key, self.api_version, self.correlation_id, self.client_id, self.body_start = header
        self.processor_id = processor_id
        self.context = context
        self.connection_id = context.connection_id
        self.buffer: memoryview | None = payload
        self.size = len(payload)
        self._pool = pool
        self.times = times
        self._body: RequestMessage | None = None
        self.start_time_ns = start_time_ns
        self.request_dequeue_time_ns = NOT_SET
        self.api_local_complete_time_ns = NOT_SET
        self.response_complete_time_ns = NOT_SET
        self.response_dequeue_time_ns = NOT_SET
        self.callback_request_dequeue_time_ns = NOT_SET
        self.callback_request_complete_time_ns = NOT_SET
        self.api_throttle_time_ms = 0
        self.record_network_thread_time: Any = None
        """What a request quota is to be told when it is known how long the network thread was busy with this."""
        self.unanswered = [True]
        """Emptied by the one response that ends this request. Taking the last element of a list is a single step, so
        of several threads only one can do it, and it costs less than a lock."""

    @property
    def body(self) -> RequestMessage:
        """The decoded request; :class:`ProtocolError` if it cannot be decoded."""
        if self._body is None:
            if self.buffer is None:
                raise ProtocolError(f"{self!r}: its buffer was given back before the body was read")
            self._body, _ = self.api_key.request.decode_from(self.buffer, self.api_version, self.body_start)
        return self._body

    @property
    def terminal(self) -> bool:
        """Whether a response that ends this request has been given."""
        return not self.unanswered

    @property
    def request_context(self) -> RequestContext:
        """What an authorizer gets to see."""
        return RequestContext.of(self.context, self.api_key, self.api_version, self.client_id, self.correlation_id)

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker sent this for a client of its own, and has throttled that already."""
        return self.envelope is not None

    def release_buffer(self) -> None:
        """Lets the memory go. Views that a handler still holds stay valid; only the count of the pool goes down."""
        if self.buffer is not None:
            self.buffer = None
            if self._pool is not UNBOUNDED:
                self._pool.release(self.size)

    def complete(self, network_thread_time_ns: int, response: AnyResponse) -> None:
        """The end: writes the timeline into the metrics."""
        if network_thread_time_ns and self.record_network_thread_time is not None:
            self.record_network_thread_time(network_thread_time_ns)
        self.times.record(self, response)

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.title} v{self.api_version}, correlation id {self.correlation_id}, "
            f"client {self.client_id!r}, connection {self.connection_id})"
        )
