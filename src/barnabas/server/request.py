"""A request inside the broker, with its six timestamps.

====== =============================== ================================================
time   field                           written by
====== =============================== ================================================
T0     ``start_time_ns``               the processor, when the last byte has arrived
T1     ``request_dequeue_time_ns``     the handler that takes the request
T2     ``api_local_complete_time_ns``  the handler, when its own part is done
T3     ``response_complete_time_ns``   the thread that completes the response
T4     ``response_dequeue_time_ns``    the processor, when it takes the response
T5     the end                         the processor, when the last byte has been sent
====== =============================== ================================================

T0 to T1 is time in the request queue, T1 to T2 local time, T2 to T3 remote time (waiting in a purgatory, for a
follower, for the controller), T3 to T4 time in the response queue, T4 to T5 send time. Throttle time is not part of
these: a throttled client gets its response at once.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas._kernels import timeline
from barnabas.common.errors import ProtocolError
from barnabas.network.server.plane import ConnectionContext
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request as RequestMessage
from barnabas.security.request_context import RequestContext

NOT_SET = timeline.NOT_SET
Timeline = timeline.Timeline

_MESSAGES: dict[ApiKey, type[RequestMessage]] = {}
"""The classes of the requests received so far: ``ApiKey.request`` imports the class's module."""


class Request(Timeline):
    """One request, from the moment it is read until its response is sent.

    The body is decoded on first access. The buffer is released when the handler is done with it:
    :meth:`release_buffer` may be called repeatedly and takes effect once.
    """

    __slots__ = ("_encoded",)

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
        """Decodes the body; `TooManyEntriesError` if it has more than ``max_entries`` entries.

        An inline handler uses this to limit the cost of decoding on the network thread.
        """
        body: RequestMessage | None = self._body
        if body is None:
            buffer: memoryview | bytes | None = self.buffer
            if buffer is None:
                buffer = getattr(self, "_encoded", None)
            if buffer is None:
                raise ProtocolError(f"{self!r}: its buffer was released before the body was decoded")
            message = _MESSAGES.get(self.api_key)
            if message is None:
                message = _MESSAGES[self.api_key] = self.api_key.request
            body, _ = message.decode_from(buffer, self.api_version, self.body_start, None, max_entries)
            self._body = body
        return body

    def keep_encoded(self, data: bytes) -> None:
        """Keeps the request as bytes and frees the decoded body, while another node handles the request.

        `body` decodes it again, for an error response. 49,000 entries take ten times the memory when they are decoded,
        and many clients may wait for the controller at the same time.
        """
        self._encoded = data
        self._body = None

    def forget_entries(self) -> None:
        """Frees the arrays of the body, for a request that is handled and has its response.

        The request lives until its response is sent, and 20,000 entries take 3 MB. The other fields stay, for metrics.
        The body is replaced and not changed, in case somebody still holds it.
        """
        body: RequestMessage | None = self._body
        if body is not None:
            values = {field.name: getattr(body, field.name) for field in body.fields}
            kept = {name: value for name, value in values.items() if not isinstance(value, list)}
            self._body = type(body)(**kept)

    def hold_buffer(self) -> Callable[[], None]:
        """Keeps the buffer after the handler returns, for work that is done later.

        Its bytes stay counted in the memory pool until the returned function is called. The body is decoded now,
        because an error response is built from it.
        """
        buffer, _ = self.buffer, self.body
        self.buffer = None

        def release() -> None:
            self.buffer = buffer
            self.release_buffer()

        return release

    @property
    def terminal(self) -> bool:
        """Whether the request has its final response."""
        return not self.awaits_response

    @property
    def request_context(self) -> RequestContext:
        """The context that is passed to an authorizer."""
        return RequestContext.of(self.context, self.api_key, self.api_version, self.client_id, self.correlation_id)

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker forwarded this for its client, which it has already throttled."""
        return self.envelope is not None

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.title} v{self.api_version}, correlation id {self.correlation_id}, "
            f"client {self.client_id!r}, connection {self.connection_id})"
        )


__all__ = ["NOT_SET", "Request"]
