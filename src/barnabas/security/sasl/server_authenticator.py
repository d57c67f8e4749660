"""The broker's end of the SASL exchange on a connection (A04), and of its repetition (A09). Sans-I/O.

A client authenticates with Kafka requests::

    ApiVersions              optional, once; an unsupported version may be followed by another one
    SaslHandshake v0 or v1   names the mechanism
    SaslAuthenticate v0-2    one token of the mechanism each, until it is complete (after handshake v1)
    bare tokens              each with a length and without a header (after handshake v0)

`receive` takes one frame and returns a `Decision`: the response to send now or, if the client failed, the error and the
response to send before the connection is closed. The caller delays both by
``connection.failed.authentication.delay.ms``, which slows down guessing without blocking a thread. A client that breaks
the order gets no response, because nobody knows what it would understand; but between handshake and token, an ordinary
request gets its own error response.

**Re-authentication** (KIP-368). A session ends at the expiry of the credential, or after ``connections.max.reauth.ms``,
whichever is first. The client learns the rest of its life from the last SaslAuthenticate response (v1 and later), and
may repeat handshake and tokens on the connection before the session ends: with the same mechanism, as the same
principal, and not within a second after the last repetition. Without a session end there is no re-authentication:
`may_reauthenticate` is false, and the handshake is an ordinary request, which is refused with ILLEGAL_SASL_STATE.
Whoever receives requests checks `session_expires_ns` when one arrives; there is no timer.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import (
    AuthenticationError,
    Errors,
    IllegalSaslStateError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_response
from barnabas.protocol.headers import ParsedHeader, parse_request_header
from barnabas.protocol.message import Buffer, Response
from barnabas.protocol.messages.api_versions import SOFTWARE, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.security.principal import USER_TYPE, KafkaPrincipal
from barnabas.security.sasl.mechanism import (
    CREDENTIAL_EXPIRY_MS,
    TOKEN_AUTH,
    Progress,
    SaslExchangeError,
    SaslServer,
)

log = LimitedLogger(logging.getLogger(__name__))

DEFAULT_MAX_RECEIVE_SIZE: Final = 524_288
"""The default of ``sasl.server.max.receive.size``."""
MIN_REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000
_LENGTH: Final = struct.Struct(">i")
_FIRST_VERSIONS_WITH_SOFTWARE: Final = 3


class SaslState(Enum):
    """What a connection may send next."""

    INITIAL_REQUEST = "ApiVersions or SaslHandshake, as the first request"
    HANDSHAKE_OR_VERSIONS_REQUEST = "ApiVersions again, or SaslHandshake"
    HANDSHAKE_REQUEST = "SaslHandshake"
    AUTHENTICATE = "a token"
    COMPLETE = "any request"
    FAILED = "nothing"
    REAUTH_PROCESS_HANDSHAKE = "SaslHandshake, with which a re-authentication begins"
    REAUTH_BAD_MECHANISM = "a token, which will be refused: the mechanism has changed"


class SaslEvent(Enum):
    """What a frame turned out to be."""

    VERSIONS = "ApiVersions request"
    BAD_VERSIONS = "ApiVersions request of an unsupported version"
    HANDSHAKE = "SaslHandshake request"
    OTHER_MECHANISM = "SaslHandshake request with another mechanism"
    CHALLENGE = "token, with more to follow"
    SUCCESS = "last token"
    FAILURE = "failure"
    REAUTHENTICATION = "re-authentication"


_BEGIN: Final = {
    SaslEvent.VERSIONS: SaslState.HANDSHAKE_REQUEST,
    SaslEvent.BAD_VERSIONS: SaslState.HANDSHAKE_OR_VERSIONS_REQUEST,
    SaslEvent.HANDSHAKE: SaslState.AUTHENTICATE,
    SaslEvent.FAILURE: SaslState.FAILED,
}
TRANSITIONS: Final[Mapping[SaslState, Mapping[SaslEvent, SaslState]]] = {
    SaslState.INITIAL_REQUEST: _BEGIN,
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: _BEGIN,
    SaslState.HANDSHAKE_REQUEST: {
        SaslEvent.HANDSHAKE: SaslState.AUTHENTICATE,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.AUTHENTICATE: {
        SaslEvent.CHALLENGE: SaslState.AUTHENTICATE,
        SaslEvent.SUCCESS: SaslState.COMPLETE,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.COMPLETE: {SaslEvent.REAUTHENTICATION: SaslState.REAUTH_PROCESS_HANDSHAKE},
    SaslState.REAUTH_PROCESS_HANDSHAKE: {
        SaslEvent.HANDSHAKE: SaslState.AUTHENTICATE,
        SaslEvent.OTHER_MECHANISM: SaslState.REAUTH_BAD_MECHANISM,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.REAUTH_BAD_MECHANISM: {SaslEvent.FAILURE: SaslState.FAILED},
    SaslState.FAILED: {},
}


class Decision(NamedTuple):
    """What to do after a frame.

    Without a ``failure``: send the ``response`` and read on, or serve requests if the authenticator is complete. With a
    ``failure``: read no more, wait for ``connection.failed.authentication.delay.ms``, send the ``response``, close.
    """

    response: bytes = b""
    """Complete frames, ready to be sent; empty if there is nothing to send."""
    failure: AuthenticationError | None = None


ForeignResponse = Callable[[ParsedHeader, Buffer, AuthenticationError], bytes]
"""Makes the error response to a request of another API, as a frame; empty if there is none."""
PrincipalBuilder = Callable[[SaslServer], KafkaPrincipal]


def sasl_principal(server: SaslServer) -> KafkaPrincipal:
    """Returns the principal ``User:name`` of a completed exchange (A03)."""
    token = server.negotiated.get(TOKEN_AUTH) is True
    return KafkaPrincipal(USER_TYPE, server.authorization_id, token_authenticated=token)


def no_response(_header: ParsedHeader, _frame: Buffer, _error: AuthenticationError) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class SaslServerSettings:
    """The SASL settings of a listener."""

    mechanisms: Mapping[str, Callable[[], SaslServer]]
    """The enabled mechanisms, and what begins an exchange of each."""
    api_versions: Callable[[int], ApiVersionsResponse]
    """Makes the response to an ApiVersions request of a supported version."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """``connections.max.reauth.ms`` by mechanism; 0 or absent for no limit."""
    max_receive_size: int = DEFAULT_MAX_RECEIVE_SIZE
    foreign_response: ForeignResponse = no_response
    principal: PrincipalBuilder = sasl_principal

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ValueError("no SASL mechanism is enabled")


class SaslServerAuthenticator:
    """Authenticates the client of one connection, again and again if its sessions end."""

    def __init__(self, settings: SaslServerSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._progress: Progress[SaslState, SaslEvent] = Progress(
            TRANSITIONS, SaslState.INITIAL_REQUEST, SaslState.COMPLETE
        )
        self._server: SaslServer | None = None
        self._bare_tokens = False
        self._previous_mechanism: str | None = None
        """The mechanism of the first authentication, during a repetition."""
        self._other_mechanism = ""
        self._reauthenticated_ns: int | None = None
        """When the last repetition began."""
        self.principal: KafkaPrincipal | None = None
        """The authenticated principal; kept while the client authenticates again."""
        self.session_expires_ns: int | None = None
        """When the session ends, on the monotonic clock; None if it does not."""
        self.client_software: tuple[str, str] | None = None
        """Name and version, if the client sent them in ApiVersions."""
        self.client_reauthenticates = False
        """Whether the client can learn how long its session lasts."""

    @property
    def state(self) -> SaslState:
        return self._progress.state

    @property
    def complete(self) -> bool:
        return self._progress.is_complete

    @property
    def mechanism(self) -> str | None:
        return None if self._server is None else self._server.mechanism

    @property
    def max_receive_size(self) -> int:
        return self._settings.max_receive_size

    # -- frames

    def receive(self, frame: Buffer) -> Decision:
        """Takes a frame without its length. Never raises: whatever is wrong with the frame is a failure."""
        state = self._progress.state
        try:
            if state is SaslState.AUTHENTICATE:
                return self._receive_token(bytes(frame))
            if state is SaslState.REAUTH_BAD_MECHANISM:
                return self._refuse_other_mechanism(frame)
            if state in {SaslState.COMPLETE, SaslState.FAILED}:
                raise IllegalSaslStateError(f"Unexpected frame in SASL state {state.name}")
            return self._receive_request(frame)
        except AuthenticationError as error:
            return self._failed(error)
        except (ProtocolError, UnsupportedVersionError) as error:
            if state is SaslState.INITIAL_REQUEST:
                return self._failed(
                    UnsupportedSaslMechanismError(
                        f"The first request is not a Kafka request, and GSSAPI is not enabled ({error})"
                    )
                )
            return self._failed(IllegalSaslStateError(f"Invalid request during SASL {self._activity}: {error}"))

    def _failed(self, error: AuthenticationError, response: bytes = b"") -> Decision:
        if self._progress.allows(SaslEvent.FAILURE):
            self._progress.move(SaslEvent.FAILURE)
        self._server = None
        return Decision(response, error)

    @property
    def _activity(self) -> str:
        return "authentication" if self._previous_mechanism is None else "re-authentication"

    # -- requests before the tokens

    def _receive_request(self, frame: Buffer) -> Decision:
        header = parse_request_header(frame)
        # The API is checked before the body is parsed: an unauthenticated client shall not reach other parsers.
        if header.api_key is ApiKey.API_VERSIONS:
            return self._receive_api_versions(header, frame)
        if header.api_key is ApiKey.SASL_HANDSHAKE:
            return self._receive_handshake(header, frame)
        raise IllegalSaslStateError(f"Unexpected Kafka request of type {header.api_key.name} during SASL handshake.")

    def _receive_api_versions(self, header: ParsedHeader, frame: Buffer) -> Decision:
        version = header.api_version
        self._progress.check(SaslEvent.VERSIONS)
        versions = ApiKey.API_VERSIONS.versions
        if version not in versions:
            self._progress.move(SaslEvent.BAD_VERSIONS)
            # Every client can read version 0, and retries with a version from this response.
            own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=versions.lowest, max_version=versions.highest)
            response = ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION, api_keys=[own])
            return Decision(encode_response(response, 0, header.correlation_id))
        body, _ = ApiVersionsRequest.decode_from(frame, version, header.body_start)
        if version >= _FIRST_VERSIONS_WITH_SOFTWARE:
            software = (body.client_software_name, body.client_software_version)
            if not all(map(SOFTWARE.fullmatch, software)):
                self._progress.move(SaslEvent.BAD_VERSIONS)
                return self._respond(header, ApiVersionsResponse(error_code=Errors.INVALID_REQUEST))
            self.client_software = software
        self._progress.move(SaslEvent.VERSIONS)
        return self._respond(header, self._settings.api_versions(version))

    def _receive_handshake(self, header: ParsedHeader, frame: Buffer) -> Decision:
        version = header.api_version
        if version not in ApiKey.SASL_HANDSHAKE.versions:
            raise UnsupportedVersionError(f"SaslHandshake v{version} is not supported")
        body, _ = SaslHandshakeRequest.decode_from(frame, version, header.body_start)
        enabled = list(self._settings.mechanisms)
        begin = self._settings.mechanisms.get(body.mechanism)
        if begin is None:
            response = SaslHandshakeResponse(error_code=Errors.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
            error = UnsupportedSaslMechanismError(f"Unsupported SASL mechanism {body.mechanism}")
            return self._failed(error, encode_response(response, version, header.correlation_id))
        if self._previous_mechanism not in {None, body.mechanism}:
            # The client learns of it from the response to its token, where its library expects a message.
            self._progress.move(SaslEvent.OTHER_MECHANISM)
            self._other_mechanism = body.mechanism
        else:
            self._progress.move(SaslEvent.HANDSHAKE)
            self._server = begin()
        self._bare_tokens = version == 0
        return self._respond(header, SaslHandshakeResponse(mechanisms=enabled))

    @staticmethod
    def _respond(header: ParsedHeader, response: Response) -> Decision:
        return Decision(encode_response(response, header.api_version, header.correlation_id))

    # -- tokens

    def _receive_token(self, frame: bytes) -> Decision:
        if self._bare_tokens:
            token, _ = self._evaluate(frame)
            return Decision(_LENGTH.pack(len(token)) + token)
        header = self._authenticate_header(frame)
        if isinstance(header, Decision):
            return header
        version = header.api_version
        body, _ = SaslAuthenticateRequest.decode_from(frame, version, header.body_start)
        self.client_reauthenticates |= version > 0
        try:
            token, lifetime_ms = self._evaluate(bytes(body.auth_bytes))
        except SaslAuthenticationError as error:
            return self._failed(error, self._refusal(header, error))
        return self._respond(header, SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))

    def _authenticate_header(self, frame: Buffer) -> ParsedHeader | Decision:
        """Returns the header of a SaslAuthenticate request, or the decision about another request."""
        header = parse_request_header(frame)
        if header.api_key is not ApiKey.SASL_AUTHENTICATE:
            error = IllegalSaslStateError(
                f"Unexpected Kafka request of type {header.api_key.name} during SASL authentication."
            )
            return self._failed(error, self._settings.foreign_response(header, frame, error))
        if header.api_version not in ApiKey.SASL_AUTHENTICATE.versions:
            raise UnsupportedVersionError(f"SaslAuthenticate v{header.api_version} is not supported")
        return header

    @staticmethod
    def _refusal(header: ParsedHeader, error: SaslAuthenticationError) -> bytes:
        response = SaslAuthenticateResponse(error_code=Errors.SASL_AUTHENTICATION_FAILED, error_message=str(error))
        return encode_response(response, header.api_version, header.correlation_id)

    def _refuse_other_mechanism(self, frame: Buffer) -> Decision:
        error = SaslAuthenticationError(
            f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for re-authentication of "
            f"mechanism '{self._previous_mechanism}'"
        )
        if self._bare_tokens:
            return self._failed(error)
        header = self._authenticate_header(frame)
        return header if isinstance(header, Decision) else self._failed(error, self._refusal(header, error))

    def _evaluate(self, token: bytes) -> tuple[bytes, int]:
        """Passes a token to the mechanism; returns its response and the lifetime of the session, 0 if not limited."""
        server = self._server
        assert server is not None
        try:
            response = server.evaluate(token)
        except AuthenticationError:
            raise
        except Exception as error:
            if not isinstance(error, SaslExchangeError):  # the source of the credentials failed
                log.exception("Unexpected error during %s with %s", self._activity, server.mechanism)
            # The reason may say that a user exists. It stays here, as the cause, for the log.
            raise SaslAuthenticationError(
                f"Authentication failed during {self._activity} due to invalid credentials with SASL mechanism "
                f"{server.mechanism}"
            ) from error
        if not server.complete:
            self._progress.move(SaslEvent.CHALLENGE)
            return response, 0
        principal = self._settings.principal(server)
        if self._previous_mechanism is not None:
            self._check_same_principal(principal)
        lifetime_ms = self._begin_session(server)
        self.principal = principal
        self._progress.move(SaslEvent.SUCCESS)
        return response, lifetime_ms

    # -- sessions

    def _check_same_principal(self, principal: KafkaPrincipal) -> None:
        previous = self.principal
        if previous != principal:
            assert previous is not None
            raise SaslAuthenticationError(
                f"Cannot change principals during re-authentication from {previous.type}.{previous.name}: "
                f"{principal.type}.{principal.name}"
            )

    def _begin_session(self, server: SaslServer) -> int:
        """Sets the end of the session; returns its length in milliseconds, 0 if it is not limited."""
        limits = []
        expiry_ms = server.negotiated.get(CREDENTIAL_EXPIRY_MS)
        if isinstance(expiry_ms, int):
            limits.append(max(expiry_ms - self._clock.milliseconds(), 0))
        max_reauth_ms = self._settings.max_reauth_ms.get(server.mechanism, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if not limits:
            self.session_expires_ns = None
            return 0
        lifetime_ms = min(limits)
        self.session_expires_ns = self._clock.nanoseconds() + lifetime_ms * 1_000_000
        return lifetime_ms

    def session_expired(self, now_ns: int) -> bool:
        """Whether a request that arrives now must be refused, and the connection closed."""
        return self.session_expires_ns is not None and now_ns > self.session_expires_ns

    def may_reauthenticate(self) -> bool:
        """Whether a SaslHandshake of the authenticated client begins a re-authentication."""
        if not self.complete or self.session_expires_ns is None:
            return False
        last = self._reauthenticated_ns
        return last is None or self._clock.nanoseconds() - last >= MIN_REAUTHENTICATION_INTERVAL_NS

    def begin_reauthentication(self) -> None:
        """Makes the next frame the SaslHandshake of a re-authentication. Check `may_reauthenticate` first."""
        self._progress.move(SaslEvent.REAUTHENTICATION)
        self._previous_mechanism = self.mechanism
        self._reauthenticated_ns = self._clock.nanoseconds()

    def __repr__(self) -> str:
        return f"SaslServerAuthenticator({self.state.name}, {self.mechanism}, {self.principal})"
