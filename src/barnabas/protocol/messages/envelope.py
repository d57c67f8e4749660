"""Envelope (API 58): a broker forwards a client's request to the active controller (KIP-590).

Clients cannot reach the controllers, so requests that change metadata go to any broker, which wraps them:
``request_data`` is the client's request, header and all, byte for byte; ``request_principal`` who the broker found
the client to be, serialized (see :mod:`~barnabas.protocol.messages.principal`); ``client_host_address`` the client's
IP address as 4 or 16 raw bytes. The controller authorizes the *client* for what is inside and the *broker*
(ClusterAction) for the envelope, and puts the finished response, again with its header, into ``response_data``.

Two layers of errors, not to be mixed up: ``error_code`` is about the envelope, the inner response has its own.
NOT_CONTROLLER makes the broker look for the new controller and send again. UNSUPPORTED_VERSION, that is, a controller
which does not speak the inner version, makes it hang up on the client, which then asks for ApiVersions anew. Other
envelope errors (PRINCIPAL_DESERIALIZATION_FAILURE, CLUSTER_AUTHORIZATION_FAILED) are the operator's to fix, and the
client sees UNKNOWN_SERVER_ERROR.

An envelope is nothing a client may send, and one inside another is refused.
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
