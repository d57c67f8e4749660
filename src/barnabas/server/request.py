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

from collections.abc import Callable

from barnabas._kernels import timeline
from barnabas.common.errors import ProtocolError
from barnabas.network.plane import ConnectionContext
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request as RequestMessage
from barnabas.security.request_context import RequestContext

NOT_SET = timeline.NOT_SET
Timeline = timeline.Timeline

_MESSAGES: dict[ApiKey, type[RequestMessage]] = {}
"""The classes of the requests that have come so far: to ask the API for its class is to ask for its module."""


class Request(Timeline):
    """One request from the moment it was read until its answer is sent.

    The body is decoded when a handler first asks for it. The buffer is given back once the handler is done with it:
    :meth:`release_buffer` may be called any number of times and counts once.
    """

    __slots__ = ()

    api_key: ApiKey
    context: ConnectionContext

    envelope: Request | None = None
    """The Envelope that a forwarded request came in: see `barnabas.server.envelope`."""

    @property
    def body(self) -> RequestMessage:
        """The decoded request; :class:`ProtocolError` if it cannot be decoded."""
        body: RequestMessage | None = self._body
        return self.decode() if body is None else body

    def decode(self, max_entries: int | None = None) -> RequestMessage:
        """Decodes the body; `TooManyEntriesError` if its arrays have more elements than ``max_entries``.

        A handler that runs on a network thread limits what decoding may cost there.
        """
        body: RequestMessage | None = self._body
        if body is None:
            if self.buffer is None:
                raise ProtocolError(f"{self!r}: its buffer was released before the body was decoded")
            message = _MESSAGES.get(self.api_key)
            if message is None:
                message = _MESSAGES[self.api_key] = self.api_key.request
            body, _ = message.decode_from(self.buffer, self.api_version, self.body_start, None, max_entries)
            self._body = body
        return body

    def hold_buffer(self) -> Callable[[], None]:
        """Keeps the buffer when the handler returns, for a part of its work that is done later.

        Its bytes stay counted in the memory pool until the function is called that this returns. The body is decoded:
        an error is answered in its shape.
        """
        buffer, _ = self.buffer, self.body
        self.buffer = None

        def release() -> None:
            self.buffer = buffer
            self.release_buffer()

        return release

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

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.title} v{self.api_version}, correlation id {self.correlation_id}, "
            f"client {self.client_id!r}, connection {self.connection_id})"
        )


__all__ = ["NOT_SET", "Request"]
