"""SaslHandshake (v0-1) and SaslAuthenticate (v0-2), where they do not belong: on a listener without SASL.

Authentication ends before a connection's first request gets to a handler, so whoever is here with one of these is on
the wrong listener, or late. ILLEGAL_SASL_STATE tells the client so, which then gives up with a message that its user
understands. If the connection were closed instead, it would take that for a network failure and try for ever.
"""

from __future__ import annotations

from barnabas.common.errors import IllegalSaslStateError
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class SaslHandler:
    """Refuses."""

    @handles(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    def refuse(self, _request: Request, _local: RequestLocal) -> None:
        raise IllegalSaslStateError("This connection has no authentication to begin or to go on with.")
