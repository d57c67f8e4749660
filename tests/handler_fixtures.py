"""A place to run one handler in: a request channel whose answers can be read, and no sockets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from barnabas.common.clock import MockClock
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.response import CLOSE_CONNECTION, NO_OP, SEND, NetworkResponse, SendResponse
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.message import Response
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.dispatch import Handler, handlers_of
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from barnabas.server.throttling import NO_QUOTAS, QuotaManagers, ThrottleCallback, ThrottledConnection
from network_fixtures import FakeProcessorHandle, request_from

R = TypeVar("R", bound=Response)


class HandlerBench:
    """Makes requests, has them handled, and gives the answers as messages again."""

    def __init__(self, quotas: QuotaManagers = NO_QUOTAS, clock: MockClock | None = None) -> None:
        self.clock = clock or MockClock()
        self.registry = MetricsRegistry(self.clock)
        self.times = RequestTimes(self.registry, self.clock)
        self.channel = RequestChannel(100, self.clock, self.times)
        self.processor = FakeProcessorHandle()
        self.channel.add_processor(self.processor)
        self.helper = RequestHandlerHelper(self.channel, self.clock, quotas)
        self.local = RequestLocal(self.channel.send_callback)
        self._answers: dict[Request, Any] = {}

    def request(
        self,
        body: RequestMessage,
        version: int,
        *,
        principal: KafkaPrincipal | None = None,
        client_id: str | None = "test",
        correlation_id: int = 7,
    ) -> Request:
        """The body as it comes in from the network."""
        request = request_from(encode_request(body, version, correlation_id, client_id), self.times)
        request.context.principal = principal
        return request

    def handle(self, family: object, request: Request) -> None:
        """Runs the handler as a thread of the broker does, and lets go of the buffer after it."""
        self.run(handlers_of(family)[request.api_key], request)

    def run(self, handler: Handler, request: Request) -> None:
        self.local.request = request
        try:
            future = handler(request, self.local)
            if future is not None:
                future.result(60)
        finally:
            self.local.request = None
            request.release_buffer()

    def ask(
        self, family: object, body: RequestMessage, version: int, *, principal: KafkaPrincipal | None = None
    ) -> Any:
        """The answer of a handler that answers at once."""
        request = self.request(body, version, principal=principal)
        self.handle(family, request)
        return self.answer(request)

    def responses(self, request: Request) -> list[Any]:
        """All that was said about a request, in order."""

        def concerns(client: Any) -> bool:
            return client is request or (isinstance(client, ThrottledConnection) and client.context is request.context)

        return [response for response in self.processor.responses.queue if concerns(response.request)]

    def answer(self, request: Request) -> Any:
        """What was sent for a request, decoded in its own version."""
        sent = [response for response in self.responses(request) if response.kind is SEND]
        assert len(sent) == 1, f"{len(sent)} answers to {request!r}"
        if request not in self._answers:
            self._answers[request] = decode_response(sent[0], request.api_key.response, request.api_version)
        return self._answers[request]

    def is_answered(self, request: Request) -> bool:
        return any(response.kind is SEND for response in self.responses(request))

    def was_closed(self, request: Request) -> bool:
        return any(response.kind is CLOSE_CONNECTION for response in self.responses(request))

    def had_no_answer(self, request: Request) -> bool:
        return any(response.kind is NO_OP for response in self.responses(request))


class _Collected:
    """A transport that takes everything."""

    send_whole: Any = None
    push: Any = None

    def __init__(self) -> None:
        self.data = bytearray()

    def send(self, buffer: Any) -> int:
        self.data += buffer
        return len(buffer)

    def send_more(self, buffer: Any) -> int:
        return self.send(buffer)

    def sendmsg(self, buffers: Sequence[Any]) -> int:
        return sum(map(self.send, buffers))

    def send_file(self, fd: int, position: int, count: int) -> int:
        return self.send(os.pread(fd, count, position))


def sent_bytes(response: SendResponse | NetworkResponse) -> bytes:
    """The frame that goes out for a response."""
    assert isinstance(response, SendResponse)
    transport = _Collected()
    while response.remaining:
        response.write_to(cast("Any", transport))
    return bytes(transport.data)


def decode_response(response: SendResponse | NetworkResponse, message: type[R], version: int) -> R:
    """The message inside a response's bytes; regions of files are read."""
    frame = sent_bytes(response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    start = 8 + (1 if message.api_key.response_header_version(version) else 0)
    return message.decode(frame[start:], version)


class FakeQuota:
    """A quota that says what it was told to say, and remembers."""

    is_enabled = True

    def __init__(self, throttle_time_ms: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.throttled: list[tuple[Request, int]] = []
        self.exempt: list[Request] = []
        self.callbacks: list[ThrottleCallback] = []

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:
        return self.throttle_time_ms

    def maybe_record_exempt(self, request: Request) -> None:
        self.exempt.append(request)

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        self.throttled.append((request, throttle_time_ms))
        self.callbacks.append(callback)
        callback.start_throttling()
