"""DOC Envelope."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16
from barnabas.protocol.message import Request, Response


class EnvelopeRequest(Request, api_key=ApiKey.ENVELOPE):
    request_data: bytes = binary(default=b"")
    request_principal: bytes | None = binary(default=b"", nullable="0+")
    client_host_address: bytes = binary(default=b"")


class EnvelopeResponse(Response, api_key=ApiKey.ENVELOPE):
    response_data: bytes | None = binary(default=None, nullable="0+")
    error_code: int = int16(default=0)
