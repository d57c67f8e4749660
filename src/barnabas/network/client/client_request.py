"""The requests and responses of a network client.

All times are milliseconds of the monotonic clock, :meth:`~barnabas.common.clock.Clock.hi_res_milliseconds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.errors import AuthenticationError, UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.versions import VersionRange


class RequestBuilder(Protocol):
    """A request whose body depends on the version in which it is sent.

    Most bodies do not: a message knows in which versions each of its fields exists. But FindCoordinator, for example,
    takes one key up to version 3 and a list of keys after that, and the version is not known before the node is.
    """

    @property
    def api_key(self) -> ApiKey: ...

    @property
    def allowed_versions(self) -> VersionRange: ...

    def build(self, version: int) -> Request:
        """Returns the body; :class:`UnsupportedVersionError` if this version cannot express the request."""
        ...


RequestCompletionHandler = Callable[["ClientResponse"], None]


class ClientRequest:
    """A request to a node, before its version is known.

    ``allowed_versions`` restricts the choice; without it, any stable version may be used.
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
        """False for a Produce request with acks=0, which ends when it has been sent."""
        self.callback = callback
        if allowed_versions is None:
            allowed_versions = self.api_key.stable_versions if isinstance(body, Request) else body.allowed_versions
        self.allowed_versions = allowed_versions

    def build(self, version: int) -> Request:
        return self.body if isinstance(self.body, Request) else self.body.build(version)

    def __repr__(self) -> str:
        return f"ClientRequest({self.api_key.title} {self.correlation_id} to node {self.destination})"


class ClientResponse:
    """The outcome of a request. There is exactly one for each request that was sent.

    Either there is a ``body``, or one of these is set:

    * ``disconnected``: the connection broke, so it is unknown whether the node has seen the request. ``timed_out`` says
      that this client gave up waiting and closed it; ``reason`` explains it in words.
    * ``version_mismatch``: the node has no usable version of this request; nothing was sent.
    * ``authentication_error``: disconnected because the node rejected the client's credentials.

    None of them is set for a request without a response (acks=0) that has been sent.
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
        """The time from the creation of the request to its end."""
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
            outcome = "no response expected" if self.body is None else repr(self.body)
        return (
            f"ClientResponse({self.api_key.title} v{self.api_version} {self.correlation_id} from node "
            f"{self.destination}: {outcome})"
        )
