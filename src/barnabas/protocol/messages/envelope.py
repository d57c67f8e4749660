"""Envelope (API 58): a broker forwards a client's request to the active controller (KIP-590).

Clients cannot reach the controllers, so requests that change metadata go to any broker, which wraps them:
``request_data`` is the client's request with its header, byte for byte; ``request_principal`` the principal of the
client, serialized (see :mod:`~barnabas.protocol.messages.principal`); ``client_host_address`` the client's IP address
as 4 or 16 raw bytes. The controller authorizes the *client* for the inner request and the *broker* (ClusterAction) for
the envelope, and returns the response with its header in ``response_data``.

``error_code`` is about the envelope; the inner response has its own error codes. On NOT_CONTROLLER the broker looks for
the new controller and sends again. On UNSUPPORTED_VERSION (the controller does not support the inner version) it closes
the connection of the client, which then requests ApiVersions again. Other envelope errors
(PRINCIPAL_DESERIALIZATION_FAILURE, CLUSTER_AUTHORIZATION_FAILED) need the operator, and the client gets
UNKNOWN_SERVER_ERROR.

Clients may not send envelopes, and an envelope inside an envelope is refused.
"""

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
