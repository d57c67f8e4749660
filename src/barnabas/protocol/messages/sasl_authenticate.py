"""SaslAuthenticate (API 36): carries the bytes of a SASL exchange (KIP-152).

Follows SaslHandshake v1, as often as the mechanism needs: once for PLAIN, twice for SCRAM, once for OAUTHBEARER (and a
second time if it is refused, so that the client learns why). Until authentication completes, the connection serves only
ApiVersions and these two APIs. SASL_AUTHENTICATION_FAILED is sent after a delay, to slow down guessing, and then the
connection is closed. ``error_message`` reveals no more than the mechanism allows.

``session_lifetime_ms`` other than 0 is the lifetime of the session. Before it ends, the client authenticates again *on
the same connection*, with a handshake and as the same principal; otherwise the broker closes it (KIP-368).

Versions: v1 session lifetime (KIP-368); v2 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16, int64, string
from barnabas.protocol.message import Request, Response


class SaslAuthenticateRequest(Request, api_key=ApiKey.SASL_AUTHENTICATE):
    auth_bytes: bytes = binary(default=b"")


class SaslAuthenticateResponse(Response, api_key=ApiKey.SASL_AUTHENTICATE):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    auth_bytes: bytes = binary(default=b"")
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
