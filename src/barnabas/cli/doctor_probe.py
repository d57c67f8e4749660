"""One ApiVersions request over one socket: the smallest question that only Kafka answers.

Not by the network client, which says that it does not work; the bytes that come back say why.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from barnabas.common.errors import ProtocolError
from barnabas.network.connection_failure import FIRST_ANSWER_LIMIT, recognize
from barnabas.protocol.framing import request_parts
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_VERSION: Final = 3
_CORRELATION_ID: Final = 1
_SIZE: Final = struct.Struct(">i")
_TLS_HINT: Final = "the listener may expect TLS, or this is no Kafka broker: check the port"


class ProbeError(Exception):
    """It is Kafka, but there is something wrong."""


class HandshakeError(Exception):
    """There is no telling that it is Kafka."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def ask_api_versions(host: str, port: int, timeout_s: float) -> ApiVersionsResponse:
    """What the listener can do."""
    request = ApiVersionsRequest(client_software_name="barnabas-doctor", client_software_version="1")
    frame = b"".join(request_parts(request, _VERSION, _CORRELATION_ID, "barnabas-doctor"))
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(frame)
            prefix = _read(connection, 4)
            (size,) = _SIZE.unpack(prefix)
            if not 4 <= size <= FIRST_ANSWER_LIMIT:
                what = recognize(prefix) or f"its answer begins with {prefix.hex()}"
                raise HandshakeError(f"it does not speak Kafka's protocol: {what}", "check the port")
            payload = _read(connection, size)
    except TimeoutError:
        raise HandshakeError(f"it accepts connections and does not answer within {timeout_s:g} s", _TLS_HINT) from None
    except (EOFError, ConnectionError):
        raise HandshakeError("it closed the connection without an answer", _TLS_HINT) from None
    except OSError as error:
        raise ProbeError(f"the connection was lost: {error}") from None
    if _SIZE.unpack_from(payload)[0] != _CORRELATION_ID:
        raise HandshakeError("its answer is not to the question", "check the port")
    try:
        # The answer to a version that it does not know is in version 0, and says so in its first field.
        (error_code,) = struct.unpack_from(">h", payload, 4)
        response, _ = ApiVersionsResponse.decode_from(payload, 0 if error_code else _VERSION, 4)
    except (ProtocolError, struct.error) as error:
        raise ProbeError(f"its answer cannot be read: {error}") from None
    return response


def _read(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
