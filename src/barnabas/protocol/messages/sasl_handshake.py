"""DOC SaslHandshake."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, string
from barnabas.protocol.message import Request, Response


class SaslHandshakeRequest(Request, api_key=ApiKey.SASL_HANDSHAKE):
    mechanism: str = string(default="")


class SaslHandshakeResponse(Response, api_key=ApiKey.SASL_HANDSHAKE):
    error_code: int = int16(default=0)
    mechanisms: list[str] = array("string", default_factory=list)
