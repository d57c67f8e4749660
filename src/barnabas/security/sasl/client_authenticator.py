"""The client's end of the SASL exchange on a connection, and of its repetition (A09). Sans-I/O.

::

    ApiVersions v0      which versions of the next two the broker has
    SaslHandshake       names the mechanism
    SaslAuthenticate    one token of the mechanism each; bare tokens if the broker does not have this API

A response to SaslAuthenticate may tell how long the session lasts. The client then authenticates again on the same
connection after 85 to 95 % of that time, beginning with SaslHandshake. Responses to requests that were sent before may
still arrive; `unrelated` collects them for the owner of the connection. The correlation ids of all these requests come
from a range that no other request uses.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    AuthenticationError,
    Errors,
    IllegalSaslStateError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Buffer, Request, Response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.security.sasl.mechanism import Progress, SaslClient, SaslExchangeError

FIRST_CORRELATION_ID: Final = 2**31 - 8
LAST_CORRELATION_ID: Final = 2**31 - 1
"""The correlation ids that are reserved for these requests; `RequestPipeline` uses the others."""
REAUTHENTICATE_AFTER: Final = (0.85, 0.95)
"""Shares of the session's lifetime. The choice is random, so that connections do not repeat at the same time."""
_CORRELATION_ID: Final = struct.Struct(">i")
_R = TypeVar("_R", bound=Response)


class ClientState(Enum):
    """What the client waits for."""

    START = "its own beginning"
    VERSIONS = "the ApiVersions response"
    HANDSHAKE = "the SaslHandshake response"
    TOKENS = "a token of the broker"
    COMPLETE = "nothing"
    FAILED = "nothing more"
    REAUTH_HANDSHAKE = "the SaslHandshake response of a re-authentication, or responses to earlier requests"


class ClientEvent(Enum):
    START = "start"
    VERSIONS = "ApiVersions response"
    HANDSHAKE = "SaslHandshake response"
    CHALLENGE = "token, with more to follow"
    SUCCESS = "last token"
    FAILURE = "failure"
    REAUTHENTICATION = "re-authentication"


TRANSITIONS: Final[Mapping[ClientState, Mapping[ClientEvent, ClientState]]] = {
    ClientState.START: {ClientEvent.START: ClientState.VERSIONS},
    ClientState.VERSIONS: {ClientEvent.VERSIONS: ClientState.HANDSHAKE, ClientEvent.FAILURE: ClientState.FAILED},
    ClientState.HANDSHAKE: {ClientEvent.HANDSHAKE: ClientState.TOKENS, ClientEvent.FAILURE: ClientState.FAILED},
    ClientState.TOKENS: {
        ClientEvent.CHALLENGE: ClientState.TOKENS,
        ClientEvent.SUCCESS: ClientState.COMPLETE,
        ClientEvent.FAILURE: ClientState.FAILED,
    },
    ClientState.COMPLETE: {ClientEvent.REAUTHENTICATION: ClientState.REAUTH_HANDSHAKE},
    ClientState.REAUTH_HANDSHAKE: {
        ClientEvent.HANDSHAKE: ClientState.TOKENS,
        ClientEvent.FAILURE: ClientState.FAILED,
    },
    ClientState.FAILED: {},
}


class SaslClientAuthenticator:
    """Authenticates this client to one broker, again and again if its sessions end."""

    def __init__(
        self,
        mechanism: str,
        begin: Callable[[], SaslClient],
        *,
        client_id: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._begin = begin
        self._client_id = client_id
        self._clock = clock
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load, protects nothing
        self._progress: Progress[ClientState, ClientEvent] = Progress(
            TRANSITIONS, ClientState.START, ClientState.COMPLETE
        )
        self._client: SaslClient | None = None
        self._correlation_id = LAST_CORRELATION_ID
        """Of the last request."""
        self._handshake_version = 0
        self._authenticate_version: int | None = None
        """None if tokens are sent without a header."""
        self._lifetime_ms = 0
        self.reauthenticate_at_ns: int | None = None
        """When to authenticate again, on the monotonic clock; None if the session does not end."""
        self.unrelated: list[Buffer] = []
        """Responses to requests from before a re-authentication, which its owner takes out."""

    @property
    def state(self) -> ClientState:
        return self._progress.state

    @property
    def complete(self) -> bool:
        return self._progress.is_complete

    # -- the exchange

    def start(self) -> bytes:
        """Returns the first request, as a frame."""
        self._progress.move(ClientEvent.START)
        # Version 0: a broker that does not know a later version might take the request for a Kerberos token.
        return self._request(ApiVersionsRequest(), 0)

    def reauthenticate(self) -> bytes:
        """Begins a re-authentication; returns its first request, as a frame."""
        self._progress.move(ClientEvent.REAUTHENTICATION)
        self.reauthenticate_at_ns = None
        return self._handshake()

    def receive(self, frame: Buffer) -> bytes:
        """Takes a frame without its length; returns the next frame to send, which may be empty.

        Raises an `AuthenticationError` if the broker refuses the client, or the client the broker.
        """
        try:
            state = self._progress.state
            if state is ClientState.VERSIONS:
                return self._receive_versions(frame)
            if state is ClientState.HANDSHAKE:
                return self._receive_handshake(frame)
            if state is ClientState.REAUTH_HANDSHAKE:
                if not self._is_for_last_request(frame):
                    self.unrelated.append(frame)
                    return b""
                return self._receive_handshake(frame)
            if state is ClientState.TOKENS:
                return self._receive_token(frame)
            raise IllegalSaslStateError(f"Unexpected frame in SASL client state {state.name}")
        except AuthenticationError:
            self._fail()
            raise
        except (ProtocolError, UnsupportedVersionError) as error:
            self._fail()
            raise IllegalSaslStateError(
                "Invalid SASL mechanism response, server may be expecting a different protocol"
            ) from error

    def _fail(self) -> None:
        if self._progress.allows(ClientEvent.FAILURE):
            self._progress.move(ClientEvent.FAILURE)
        self._client = None

    def _receive_versions(self, frame: Buffer) -> bytes:
        response = self._response(ApiVersionsResponse, frame, 0)
        if response.error_code != Errors.NONE:
            raise IllegalSaslStateError(
                f"the broker refused ApiVersions v0 with {Errors.for_code(response.error_code).name}"
            )
        highest = {key.api_key: key.max_version for key in response.api_keys}
        known = ApiKey.SASL_AUTHENTICATE.versions.highest
        if ApiKey.SASL_AUTHENTICATE in highest:
            self._authenticate_version = min(highest[ApiKey.SASL_AUTHENTICATE], known)
        self._handshake_version = min(highest.get(ApiKey.SASL_HANDSHAKE, 0), ApiKey.SASL_HANDSHAKE.versions.highest)
        if self._handshake_version == 0:
            self._authenticate_version = None
        self._progress.move(ClientEvent.VERSIONS)
        return self._handshake()

    def _handshake(self) -> bytes:
        return self._request(SaslHandshakeRequest(mechanism=self.mechanism), self._handshake_version)

    def _receive_handshake(self, frame: Buffer) -> bytes:
        response = self._response(SaslHandshakeResponse, frame, self._handshake_version)
        enabled = f"[{', '.join(response.mechanisms)}]"
        if response.error_code == Errors.UNSUPPORTED_SASL_MECHANISM:
            raise UnsupportedSaslMechanismError(
                f"Client SASL mechanism '{self.mechanism}' not enabled in the server, enabled mechanisms are {enabled}"
            )
        if response.error_code == Errors.ILLEGAL_SASL_STATE:
            raise IllegalSaslStateError(
                f"Unexpected handshake request with client mechanism {self.mechanism}, enabled mechanisms are {enabled}"
            )
        if response.error_code != Errors.NONE:
            raise IllegalSaslStateError(
                f"Unknown error code {Errors.for_code(response.error_code).name}, client mechanism is "
                f"{self.mechanism}, enabled mechanisms are {enabled}"
            )
        self._progress.move(ClientEvent.HANDSHAKE)
        self._client = self._begin()
        return self._token(self._client.initial_response())

    def _receive_token(self, frame: Buffer) -> bytes:
        client = self._client
        assert client is not None
        version = self._authenticate_version
        if version is None:
            challenge = bytes(frame)
        else:
            response = self._response(SaslAuthenticateResponse, frame, version)
            if response.error_code != Errors.NONE:
                raise _refusal(response)
            self._lifetime_ms = response.session_lifetime_ms
            challenge = bytes(response.auth_bytes)
        try:
            token = client.evaluate(challenge)
        except SaslExchangeError as error:
            raise SaslAuthenticationError(
                f"An error: ({error}) occurred when evaluating SASL token received from the Kafka Broker."
            ) from error
        if token is not None:
            self._progress.move(ClientEvent.CHALLENGE)
            return self._token(token)
        if not client.complete:
            raise IllegalSaslStateError(f"the {self.mechanism} exchange ended before it was complete")
        self._progress.move(ClientEvent.SUCCESS)
        self._client = None
        self._begin_session()
        return b""

    def _begin_session(self) -> None:
        if self._lifetime_ms > 0:
            lifetime_ns = self._lifetime_ms * 1_000_000
            share = self._random.uniform(*REAUTHENTICATE_AFTER)
            self.reauthenticate_at_ns = self._clock.nanoseconds() + int(lifetime_ns * share)

    # -- frames

    def _request(self, request: Request, version: int) -> bytes:
        last = self._correlation_id
        self._correlation_id = FIRST_CORRELATION_ID if last == LAST_CORRELATION_ID else last + 1
        return encode_request(request, version, self._correlation_id, self._client_id)

    def _token(self, token: bytes) -> bytes:
        if self._authenticate_version is None:
            return _CORRELATION_ID.pack(len(token)) + token
        return self._request(SaslAuthenticateRequest(auth_bytes=token), self._authenticate_version)

    def _is_for_last_request(self, frame: Buffer) -> bool:
        return len(frame) >= 4 and _CORRELATION_ID.unpack_from(frame)[0] == self._correlation_id

    def _response(self, kind: type[_R], frame: Buffer, version: int) -> _R:
        if not self._is_for_last_request(frame):
            raise ProtocolError(f"{len(frame)} bytes that are no response to {kind.api_key.title}")
        first, last = kind.flexible_headers
        if first <= version <= last and frame[4:5] != b"\0":
            raise ProtocolError("a response header with tagged fields")
        response, _ = kind.decode_from(frame, version, 5 if first <= version <= last else 4)
        return response

    def __repr__(self) -> str:
        return f"SaslClientAuthenticator({self.mechanism}, {self.state.name})"


def _refusal(response: SaslAuthenticateResponse) -> AuthenticationError:
    """Returns the error of a response; every error during authentication is an `AuthenticationError`."""
    kind = Errors.for_code(response.error_code).exception
    message = response.error_message or None
    if kind is not None and issubclass(kind, AuthenticationError):
        return kind(message)
    return SaslAuthenticationError(message or f"the broker refused a token with error code {response.error_code}")
