"""A listener with SASL settings, and frames of its clients."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request, encode_response
from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Buffer, Request, Response
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.security.sasl.mechanism import SaslServer
from barnabas.security.sasl.plain import PlainCredentials, PlainServer
from barnabas.security.sasl.scram import HASHES, ScramCredential, ScramServer, TokenCredential
from barnabas.security.sasl.server_authenticator import (
    Decision,
    SaslServerAuthenticator,
    SaslServerSettings,
)

PASSWORDS = {"alice": "wonder", "bob": "builder"}
CREDENTIALS = {
    (mechanism, name): ScramCredential.of_password(mechanism, password)
    for name, password in PASSWORDS.items()
    for mechanism in HASHES
}
TOKEN = {mechanism: ScramCredential.of_password(mechanism, "hmac") for mechanism in HASHES}


class Users:
    """SCRAM credentials of `PASSWORDS`."""

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        return CREDENTIALS.get((mechanism, username))


class Tokens:
    """A delegation token of alice."""

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return TokenCredential("alice", self._expiry_ms, TOKEN[mechanism]) if token_id == "token-1" else None


def mechanisms(token_expiry_ms: int = 0) -> dict[str, Callable[[], SaslServer]]:
    """PLAIN and SCRAM with the same users."""
    credentials = PlainCredentials(PASSWORDS)
    users, tokens = Users(), Tokens(token_expiry_ms)
    return {
        "PLAIN": lambda: PlainServer(credentials),
        **{mechanism: partial(ScramServer, mechanism, users, tokens) for mechanism in HASHES},
    }


def api_versions(_version: int) -> ApiVersionsResponse:
    """The versions of the APIs that a client needs for SASL."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=key.versions.lowest, max_version=key.versions.highest)
            for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        ]
    )


def foreign_response(header: ParsedHeader, _frame: Buffer, error: AuthenticationError) -> bytes:
    """Stands for the error responses of all APIs."""
    if header.api_key is not ApiKey.METADATA or header.api_version not in ApiKey.METADATA.versions:
        return b""
    return encode_response(MetadataResponse(error_code=error.code), header.api_version, header.correlation_id)


def settings(
    max_reauth_ms: Mapping[str, int] | None = None, token_expiry_ms: int = 0, max_receive_size: int = 524_288
) -> SaslServerSettings:
    return SaslServerSettings(
        mechanisms(token_expiry_ms), api_versions, max_reauth_ms or {}, max_receive_size, foreign_response
    )


def frame(request: Request, version: int, number: int = 7) -> bytes:
    """A request without its length."""
    return encode_request(request, version, number, "test")[4:]


def versions_request(version: int = 3, software: str = "test") -> bytes:
    return frame(ApiVersionsRequest(client_software_name=software, client_software_version="1.0"), version)


def handshake(mechanism: str, version: int = 1) -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(name: str, password: str | None = None, version: int = 2) -> bytes:
    return token(f"\0{name}\0{PASSWORDS[name] if password is None else password}".encode(), version)


R = TypeVar("R", bound=Response)


def decode(kind: type[R], data: bytes, version: int) -> R:
    """Decodes a response with its length and its header."""
    size, number = struct.unpack_from(">ii", data)
    assert (size, number) == (len(data) - 4, 7)
    first, last = kind.flexible_headers
    body, end = kind.decode_from(data, version, 9 if first <= version <= last else 8)
    assert end == len(data)
    return body


class Connection:
    """A client that sends frames to an authenticator and reads the responses."""

    def __init__(self, sasl: SaslServerSettings | None = None, clock: MockClock | None = None) -> None:
        self.clock = MockClock() if clock is None else clock
        self.server = SaslServerAuthenticator(settings() if sasl is None else sasl, clock=self.clock)

    def send(self, data: bytes) -> Decision:
        return self.server.receive(data)

    def versions(self, version: int = 3) -> ApiVersionsResponse:
        decision = self.send(versions_request(version))
        assert decision.failure is None
        return decode(ApiVersionsResponse, decision.response, version)

    def shake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        decision = self.send(handshake(mechanism, version))
        assert decision.failure is None
        return decode(SaslHandshakeResponse, decision.response, version)

    def authenticate(self, request: bytes, version: int = 2) -> SaslAuthenticateResponse:
        return decode(SaslAuthenticateResponse, self.send(request).response, version)

    def log_in(self, name: str = "alice") -> SaslAuthenticateResponse:
        self.shake("PLAIN")
        response = self.authenticate(plain(name))
        assert self.server.complete
        return response
