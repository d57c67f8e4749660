"""Rejects SaslHandshake (v0-1) and SaslAuthenticate (v0-2) outside of authentication.

Authentication ends before a connection's first request reaches a handler. So a client that sends one of these here uses
a listener without SASL, or is too late. With ILLEGAL_SASL_STATE it gives up with a clear message. If the connection
were closed instead, it would assume a network failure and retry for ever.
"""

from __future__ import annotations

from barnabas.common.errors import IllegalSaslStateError
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class SaslHandler:
    """Rejects SASL requests with ILLEGAL_SASL_STATE."""

    @handles(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    def refuse(self, _request: Request, _local: RequestLocal) -> None:
        raise IllegalSaslStateError("This connection has no authentication to begin or to go on with.")
