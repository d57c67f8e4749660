"""DOC SaslAuthenticate."""

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
