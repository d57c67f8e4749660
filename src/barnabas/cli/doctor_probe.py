"""Sends one ApiVersions request over a plain socket.

The network client reports only that a connection failed. The bytes of the response show why.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from barnabas.common.errors import ProtocolError
from barnabas.network.client.connection_failure import FIRST_ANSWER_LIMIT, recognize
from barnabas.protocol.framing import request_parts
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_VERSION: Final = 3
_CORRELATION_ID: Final = 1
_SIZE: Final = struct.Struct(">i")
_TLS_HINT: Final = "the listener may expect TLS, or it is not a Kafka broker: check the port"


class ProbeError(Exception):
    """The peer is a Kafka broker, but the request failed."""


class HandshakeError(Exception):
    """The peer does not seem to be a Kafka broker."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def ask_api_versions(host: str, port: int, timeout_s: float) -> ApiVersionsResponse:
    """Sends the request and returns the response."""
    request = ApiVersionsRequest(client_software_name="barnabas-doctor", client_software_version="1")
    frame = b"".join(request_parts(request, _VERSION, _CORRELATION_ID, "barnabas-doctor"))
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(frame)
            prefix = _read(connection, 4)
            (size,) = _SIZE.unpack(prefix)
            if not 4 <= size <= FIRST_ANSWER_LIMIT:
                what = recognize(prefix) or f"its response begins with {prefix.hex()}"
                raise HandshakeError(f"it does not speak the Kafka protocol: {what}", "check the port")
            payload = _read(connection, size)
    except TimeoutError:
        raise HandshakeError(f"it accepts connections but does not respond within {timeout_s:g} s", _TLS_HINT) from None
    except (EOFError, ConnectionError):
        raise HandshakeError("it closed the connection without a response", _TLS_HINT) from None
    except OSError as error:
        raise ProbeError(f"the connection was lost: {error}") from None
    if _SIZE.unpack_from(payload)[0] != _CORRELATION_ID:
        raise HandshakeError("its response has a wrong correlation ID", "check the port")
    try:
        # A broker that does not know the request's version responds in version 0, with an error code as first field.
        (error_code,) = struct.unpack_from(">h", payload, 4)
        response, _ = ApiVersionsResponse.decode_from(payload, 0 if error_code else _VERSION, 4)
    except (ProtocolError, struct.error) as error:
        raise ProbeError(f"cannot decode its response: {error}") from None
    return response


def _read(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
