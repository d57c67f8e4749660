"""Requests in flight: sent, or being sent, without a response yet."""

from __future__ import annotations

import struct
import sys
from collections import deque

from barnabas.common.errors import AuthenticationError, ProtocolError
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.network.reactor.send import NetworkSend
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.message import Response

FOREVER = sys.maxsize
"""A time or a delay that is never reached."""

_CORRELATION_ID = struct.Struct(">i")
_API_VERSIONS = ApiKey.API_VERSIONS


class CorrelationIdMismatchError(ProtocolError):
    """A response belongs to another request than the next expected one."""


class InFlightRequest:
    """A request in flight, with everything needed to make a response of it, whatever happens."""

    __slots__ = ("api_version", "internal", "request", "send", "sent_ms", "throttle_ms")

    def __init__(
        self, request: ClientRequest, api_version: int, send: NetworkSend, sent_ms: int, internal: bool = False
    ) -> None:
        self.request = request
        self.api_version = api_version
        self.send = send
        self.sent_ms = sent_ms
        self.internal = internal
        """Sent by the network client for its own use; no caller waits for it."""
        self.throttle_ms = 0
        """The time for which the node announced not to read; it does not count towards the time-out."""

    @property
    def deadline_ms(self) -> int:
        """The latest time for the response."""
        return self.sent_ms + self.request.request_timeout_ms + self.throttle_ms

    def completed(self, body: Response | None, now: int) -> ClientResponse:
        return ClientResponse(self.request, self.api_version, now, body)

    def disconnected(
        self,
        now: int,
        *,
        timed_out: bool = False,
        authentication_error: AuthenticationError | None = None,
        reason: str | None = None,
    ) -> ClientResponse:
        return ClientResponse(
            self.request,
            self.api_version,
            now,
            disconnected=True,
            timed_out=timed_out,
            authentication_error=authentication_error,
            reason=reason,
        )

    def decode(self, payload: memoryview) -> Response:
        """Decodes the response to this request; :class:`ProtocolError` if it is not one."""
        request = self.request
        if len(payload) < 4:
            raise ProtocolError(f"a response of {len(payload)} bytes is too short for its header")
        (correlation_id,) = _CORRELATION_ID.unpack_from(payload)
        if correlation_id != request.correlation_id:
            raise CorrelationIdMismatchError(
                f"a response with the correlation id {correlation_id}, while the next one has to be "
                f"{request.correlation_id} for {request.api_key.title} v{self.api_version}"
            )
        start = 4
        api_key = request.api_key
        version = self.api_version
        if api_key is _API_VERSIONS:
            return self._decode_api_versions(payload, start)  # its header never has tagged fields
        if api_key.response_header_version(version):
            if len(payload) > 4 and not payload[4]:  # no tagged fields, as in every response so far
                start = 5
            else:
                _, start = ResponseHeader.decode_from(payload, 1)
        return api_key.response.decode_from(payload, version, start)[0]

    def _decode_api_versions(self, payload: memoryview, start: int) -> Response:
        """Decodes version 0 if the node is too old for the requested version; the header does not show this.

        Decoded in a flexible version, such a response would have a null list where none is allowed, or seem valid.
        """
        response = ApiKey.API_VERSIONS.response
        if self.api_version and bytes(payload[start : start + 2]) == _UNSUPPORTED_VERSION:
            try:
                body, _ = response.decode_from(payload, 0, start)
            except ProtocolError:
                pass  # the node has rejected the version in that same version
            else:
                return body
        body, _ = response.decode_from(payload, self.api_version, start)
        return body

    def __repr__(self) -> str:
        return f"InFlightRequest({self.request!r}, v{self.api_version}, {self.send!r})"


_UNSUPPORTED_VERSION = b"\x00\x23"


class InFlightRequests:
    """The requests in flight, per node, the newest first.

    A broker responds to the requests of one connection in the order of their arrival. So an arriving response belongs
    to the request at the back of the queue, and the request being sent is at the front:

        front  [ 14 (being sent), 13, 12 ]  back      the next response must be for 12

    ``max.in.flight.requests.per.connection`` limits the queue. More than one keeps the node busy while responses
    travel; five is the most that the broker can deduplicate for an idempotent producer.
    """

    def __init__(self, max_in_flight_per_connection: int) -> None:
        if max_in_flight_per_connection < 1:
            raise ValueError(f"at least one request has to be allowed in flight, not {max_in_flight_per_connection}")
        self._max = max_in_flight_per_connection
        self._queues: dict[str, deque[InFlightRequest]] = {}
        self._count = 0
        self.earliest_deadline_ms = FOREVER
        """No request times out before this. It may be too early, after its request has ended, but never too late; so
        nearly every poll needs only one comparison to see that nothing has timed out."""

    def add(self, request: InFlightRequest) -> None:
        sent = request.request
        node_id = sent.destination
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = deque()
        queue.appendleft(request)
        self._count += 1
        deadline_ms = request.sent_ms + sent.request_timeout_ms + request.throttle_ms
        self.earliest_deadline_ms = min(self.earliest_deadline_ms, deadline_ms)

    def next_expected(self, node_id: str) -> InFlightRequest | None:
        """Returns the request that the next response of this node must be for."""
        queue = self._queues.get(node_id)
        return queue[-1] if queue else None

    def complete_next(self, node_id: str) -> InFlightRequest:
        """Removes the oldest request, which has its response."""
        request = self._queue(node_id).pop()
        self._count -= 1
        if not self._count:
            self.earliest_deadline_ms = FOREVER
        return request

    def complete_last_sent(self, node_id: str) -> InFlightRequest:
        """Removes the newest request, which is sent and expects no response."""
        request = self._queue(node_id).popleft()
        self._count -= 1
        if not self._count:
            self.earliest_deadline_ms = FOREVER
        return request

    def _queue(self, node_id: str) -> deque[InFlightRequest]:
        queue = self._queues.get(node_id)
        if not queue:
            raise RuntimeError(f"there is no request in flight to node {node_id}")
        return queue

    def can_send_more(self, node_id: str) -> bool:
        """Whether another request may be in flight and the last one is completely sent."""
        queue = self._queues.get(node_id)
        return not queue or (not queue[0].send.remaining and len(queue) < self._max)

    def count(self, node_id: str | None = None) -> int:
        """Number of requests, for one node or for all."""
        if node_id is None:
            return self._count
        queue = self._queues.get(node_id)
        return len(queue) if queue else 0

    def clear_all(self, node_id: str) -> list[InFlightRequest]:
        """Removes all requests to a node, in the order in which they were sent."""
        queue = self._queues.pop(node_id, None)
        if not queue:
            return []
        self._count -= len(queue)
        if not self._count:
            self.earliest_deadline_ms = FOREVER
        queue.reverse()
        return list(queue)

    def increment_throttle_time(self, node_id: str, throttle_ms: int) -> None:
        """Extends the deadlines of the requests to a node by the throttle time that it announced."""
        for request in self._queues.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def nodes_with_timed_out_requests(self, now: int) -> list[str]:
        if now <= self.earliest_deadline_ms:
            return []
        timed_out = []
        earliest = FOREVER
        for node_id, queue in self._queues.items():
            deadline = min((request.deadline_ms for request in queue), default=FOREVER)
            earliest = min(earliest, deadline)
            if now > deadline:
                timed_out.append(node_id)
        self.earliest_deadline_ms = earliest
        return timed_out

    def time_to_next_timeout_ms(self, now: int) -> int:
        """How long until a request can time out."""
        deadline_ms = self.earliest_deadline_ms
        return FOREVER if deadline_ms == FOREVER else max(deadline_ms + 1 - now, 0)

    def __repr__(self) -> str:
        queues = ", ".join(f"node {node_id}: {len(queue)}" for node_id, queue in self._queues.items() if queue)
        return f"InFlightRequests({queues or 'none'}, at most {self._max} each)"
