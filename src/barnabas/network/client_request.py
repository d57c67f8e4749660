"""What goes into a network client, and what comes out of it.

All times are milliseconds of the steady clock, :meth:`~barnabas.common.clock.Clock.hi_res_milliseconds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.errors import AuthenticationError, UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.versions import VersionRange


class RequestBuilder(Protocol):
    """A request whose body depends on the version that it goes out in.

    Most bodies do not: a message knows in which versions each of its fields exists. But FindCoordinator, say, asks for
    one key up to version 3 and for a list of keys after that, and which it will be is not known before the node is.
    """

    @property
    def api_key(self) -> ApiKey: ...

    @property
    def allowed_versions(self) -> VersionRange: ...

    def build(self, version: int) -> Request:
        """The body; :class:`UnsupportedVersionError` if this version cannot say what the request is about."""
        ...


RequestCompletionHandler = Callable[["ClientResponse"], None]


class ClientRequest:
    """A request to a node, before it is known in which version it will be sent.

    ``allowed_versions`` narrows down the choice; without it, any stable version will do.
    """

    __slots__ = (
        "allowed_versions",
        "api_key",
        "body",
        "callback",
        "client_id",
        "correlation_id",
        "created_ms",
        "destination",
        "expect_response",
        "request_timeout_ms",
    )

    def __init__(
        self,
        destination: str,
        body: Request | RequestBuilder,
        correlation_id: int,
        client_id: str | None,
        created_ms: int,
        request_timeout_ms: int,
        expect_response: bool = True,
        callback: RequestCompletionHandler | None = None,
        allowed_versions: VersionRange | None = None,
    ) -> None:
        self.destination = destination
        self.body = body
        self.api_key = body.api_key
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.created_ms = created_ms
        self.request_timeout_ms = request_timeout_ms
        self.expect_response = expect_response
        """False for a Produce request with acks=0, which is done when it has been sent."""
        self.callback = callback
        if allowed_versions is None:
            allowed_versions = self.api_key.stable_versions if isinstance(body, Request) else body.allowed_versions
        self.allowed_versions = allowed_versions

    def build(self, version: int) -> Request:
        return self.body if isinstance(self.body, Request) else self.body.build(version)

    def __repr__(self) -> str:
        return f"ClientRequest({self.api_key.title} {self.correlation_id} to node {self.destination})"


class ClientResponse:
    """What became of a request. There is exactly one for each request that was sent.

    Either there is a ``body``, or one of these is set:

    * ``disconnected``: the connection broke, so nobody knows whether the node has seen the request. ``timed_out`` says
      that it was this client that gave up waiting and broke it; ``reason`` has it in words.
    * ``version_mismatch``: there is no version in which this request could go to this node; nothing was sent.
    * ``authentication_error``: disconnected because the node does not believe who this is.

    None of them is set for a request without an answer (acks=0) that has gone out.
    """

    __slots__ = (
        "api_version",
        "authentication_error",
        "body",
        "disconnected",
        "reason",
        "received_ms",
        "request",
        "timed_out",
        "version_mismatch",
    )

    def __init__(
        self,
        request: ClientRequest,
        api_version: int,
        received_ms: int,
        body: Response | None = None,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        version_mismatch: UnsupportedVersionError | None = None,
        authentication_error: AuthenticationError | None = None,
        reason: str | None = None,
    ) -> None:
        if timed_out and not disconnected:
            raise ValueError("a request that timed out has lost its connection")
        self.request = request
        self.api_version = api_version
        self.received_ms = received_ms
        self.body = body
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.version_mismatch = version_mismatch
        self.authentication_error = authentication_error
        self.reason = reason

    @property
    def api_key(self) -> ApiKey:
        return self.request.api_key

    @property
    def correlation_id(self) -> int:
        return self.request.correlation_id

    @property
    def destination(self) -> str:
        return self.request.destination

    @property
    def has_response(self) -> bool:
        return self.body is not None

    @property
    def latency_ms(self) -> int:
        """From the making of the request to its end."""
        return self.received_ms - self.request.created_ms

    def on_complete(self) -> None:
        if self.request.callback is not None:
            self.request.callback(self)

    def __repr__(self) -> str:
        if self.timed_out:
            outcome = "timed out"
        elif self.disconnected:
            outcome = "disconnected"
        elif self.version_mismatch is not None:
            outcome = "version mismatch"
        else:
            outcome = "no answer expected" if self.body is None else repr(self.body)
        return (
            f"ClientResponse({self.api_key.title} v{self.api_version} {self.correlation_id} from node "
            f"{self.destination}: {outcome})"
        )
