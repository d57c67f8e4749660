"""SaslAuthenticate (API 36): carries the bytes of a SASL exchange (KIP-152).

Follows SaslHandshake v1, as often as the mechanism needs: once for PLAIN, twice for SCRAM, once for OAUTHBEARER (and
a second time if it is refused, so that the client learns why). Until it is through, the connection serves nothing but
ApiVersions and these two. SASL_AUTHENTICATION_FAILED is sent after a delay, to slow down guessing, and then the
connection is closed. ``error_message`` says no more than the mechanism allows.

``session_lifetime_ms`` other than 0 tells when the session ends. Before that the client authenticates again *on the
same connection*, handshake included and as the same principal, or the broker closes it (KIP-368).

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
