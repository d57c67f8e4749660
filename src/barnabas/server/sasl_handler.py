"""Rejects SaslHandshake (v0-1) and SaslAuthenticate (v0-2) outside of authentication.

Authentication ends before a connection's first request reaches a handler. So a client that sends one of these here uses
a listener without SASL, or is too late. With ILLEGAL_SASL_STATE it gives up with a clear message. If the connection
were closed instead, it would assume a network failure and retry for ever.
"""

from __future__ import annotations

from barnabas.common.errors import AuthenticationError, IllegalSaslStateError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_response
from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Buffer
from barnabas.server.dispatch import handles
from barnabas.server.error_responses import responses
from barnabas.server.error_responses.failure import Failure
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class SaslHandler:
    """Rejects SASL requests with ILLEGAL_SASL_STATE."""

    @handles(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    def refuse(self, _request: Request, _local: RequestLocal) -> None:
        raise IllegalSaslStateError("This connection has no authentication to begin or to go on with.")


def refuse_during_authentication(header: ParsedHeader, frame: Buffer, error: AuthenticationError) -> bytes:
    """Returns the error response to a request that arrives instead of a SASL token; empty if it has none.

    It is a `barnabas.security.sasl.server_authenticator.ForeignResponse`. The body of the request is parsed, because
    many responses repeat its topics or groups; whatever is wrong with it raises as usual.
    """
    api, version = header.api_key, header.api_version
    if version not in api.versions:
        return b""
    body, _ = api.request.decode_from(frame, version, header.body_start, max_entries=api.request.max_entries)
    response = responses()[api](body, Failure.of(error, 0, version))
    return b"" if response is None else encode_response(response, version, header.correlation_id)
