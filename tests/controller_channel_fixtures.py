"""For tests of what a broker says to its controller: channels and clients without sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError, UnsupportedVersionError
from barnabas.network.client.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.message import Request, Response
from barnabas.server.controller_channel import ControllerRequestCompletionHandler


class SentRequest:
    """A request that the broker has handed to a channel, for the test to answer."""

    def __init__(
        self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler, clock: MockClock
    ) -> None:
        self.builder = body
        self.handler = handler
        self._clock = clock
        self._created_ms = clock.hi_res_milliseconds()

    def built(self, version: int) -> Any:
        """The body as it would go out in this version, through its encoding and back."""
        body = self.builder if isinstance(self.builder, Request) else self.builder.build(version)
        return type(body).decode(body.encode(version), version)

    @property
    def body(self) -> Any:
        return self.built(self.builder.api_key.stable_versions.highest)

    def _response(self, body: Response | None = None, **outcome: Any) -> ClientResponse:
        request = ClientRequest("1", self.builder, 1, "test", self._created_ms, request_timeout_ms=1000)
        return ClientResponse(
            request,
            self.builder.api_key.stable_versions.highest,
            self._clock.hi_res_milliseconds(),
            body,
            **outcome,
        )

    def answer(self, body: Response) -> None:
        self.handler.on_complete(self._response(body))

    def refuse(self) -> None:
        error = AuthenticationError("who are you?")
        self.handler.on_complete(self._response(disconnected=True, authentication_error=error))

    def mismatch(self) -> None:
        self.handler.on_complete(self._response(version_mismatch=UnsupportedVersionError("not spoken")))

    def time_out(self) -> None:
        self.handler.on_timeout()


class FakeControllerChannel:
    """Keeps what it is given until the test answers."""

    def __init__(self, clock: MockClock | None = None) -> None:
        self.clock = MockClock() if clock is None else clock
        self.retry_timeout_ms = 60_000
        self.controller_api_versions: NodeApiVersions | None = None
        self.sent: deque[SentRequest] = deque()
        self.started = 0
        self.shutdowns = 0

    def start(self) -> None:
        self.started += 1

    def shutdown(self) -> None:
        self.shutdowns += 1

    def send_request(self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler) -> None:
        self.sent.append(SentRequest(body, handler, self.clock))

    def take(self) -> SentRequest:
        """The oldest request that has not been taken."""
        assert self.sent, "nothing was sent"
        return self.sent.popleft()


class FakeControllerClient:
    """A network client that does what it is told. A poll with nothing to report takes all the time it may take."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.is_ready = True
        self.failed = False
        self.backoff_ms = 50
        self.error: AuthenticationError | None = None
        self.versions: dict[str, NodeApiVersions] = {}
        self.asked: list[Node] = []
        self.sent: deque[ClientRequest] = deque()
        self.waits: list[float] = []
        self.disconnects: list[str] = []
        self.wakeups = 0
        self.closed = False
        self._events: deque[Callable[[], None]] = deque()
        self._in_flight = 0

    def ready(self, node: Node, now: int) -> bool:
        self.asked.append(node)
        return self.is_ready and not self.failed and not self._in_flight

    def connection_delay(self, node: Node, now: int) -> int:
        return self.backoff_ms

    def connection_failed(self, node: Node) -> bool:
        return self.failed

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self.error

    def node_api_versions(self, node_id: str) -> NodeApiVersions | None:
        return self.versions.get(node_id)

    def new_client_request(
        self,
        node_id: str,
        body: Request | RequestBuilder,
        now: int,
        *,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest:
        return ClientRequest(node_id, body, 1, "1", now, request_timeout_ms=1000, callback=callback)

    def send(self, request: ClientRequest, now: int) -> None:
        self._in_flight += 1
        self.sent.append(request)

    def end(self, body: Response | None = None, **outcome: Any) -> None:
        """The next poll reports that the oldest request has ended like this."""
        request = self.sent.popleft()

        def report() -> None:
            self._in_flight -= 1
            ClientResponse(request, 0, self._clock.hi_res_milliseconds(), body, **outcome).on_complete()

        self._events.append(report)

    def poll(self, timeout_ms: float, now: int) -> list[ClientResponse]:
        self.waits.append(timeout_ms)
        if self._events:
            self._events.popleft()()
        return []

    def disconnect(self, node_id: str) -> None:
        self.disconnects.append(node_id)

    def wakeup(self) -> None:
        self.wakeups += 1

    def close(self) -> None:
        self.closed = True
