"""Sends single requests over a blocking socket, plain or with TLS.

The network client reports only that a connection failed. The bytes of a response show why.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from barnabas.common.errors import ProtocolError
from barnabas.network.client.connection_failure import FIRST_RESPONSE_LIMIT, recognize
from barnabas.protocol.framing import request_parts
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.protocol.message import Request

_VERSION: Final = 3
_HANDSHAKE_VERSION: Final = 1
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


class Probe:
    """A connection for a few requests. The time limit applies to each step."""

    def __init__(self, host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None) -> None:
        """Connects, with TLS if there is a context; raises `OSError`, which includes ``ssl.SSLError``."""
        self._timeout_s = timeout_s
        self._socket = socket.create_connection((host, port), timeout_s)
        if context is not None:
            try:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise

    def exchange(self, frame: bytes) -> bytes:
        """Sends a frame and returns the payload of the next one."""
        try:
            try:
                self._socket.sendall(frame)
            except (ssl.SSLEOFError, ConnectionError):
                self._read(1)  # the peer has closed; if it has sent a TLS alert first, this raises it
                raise
            prefix = self._read(4)
            (size,) = _SIZE.unpack(prefix)
            if not 4 <= size <= FIRST_RESPONSE_LIMIT:
                what = recognize(prefix) or f"its response begins with {prefix.hex()}"
                raise HandshakeError(f"it does not speak the Kafka protocol: {what}", "check the port")
            return self._read(size)
        except TimeoutError:
            raise HandshakeError(
                f"it accepts connections but does not respond within {self._timeout_s:g} s", _TLS_HINT
            ) from None
        except ssl.SSLError:
            raise
        except (EOFError, ConnectionError):
            raise HandshakeError("it closed the connection without a response", _TLS_HINT) from None
        except OSError as error:
            raise ProbeError(f"the connection was lost: {error}") from None

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ask_api_versions(
    host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None
) -> ApiVersionsResponse:
    """Sends an ApiVersions request and returns the response; failures of TLS are ``ssl.SSLError``."""
    request = ApiVersionsRequest(client_software_name="barnabas-doctor", client_software_version="1")
    try:
        with Probe(host, port, timeout_s, context) as probe:
            payload = probe.exchange(_frame(request, _VERSION))
    except ssl.SSLError:
        raise
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


def enabled_mechanisms(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None) -> list[str]:
    """Returns the SASL mechanisms that a listener enables; none if it does not use SASL.

    Requests an unknown mechanism. A listener with SASL refuses it, and lists the mechanisms that it enables.
    """
    try:
        with Probe(host, port, timeout_s, context) as probe:
            payload = probe.exchange(_frame(SaslHandshakeRequest(mechanism="?"), _HANDSHAKE_VERSION))
        response, _ = SaslHandshakeResponse.decode_from(payload, _HANDSHAKE_VERSION, 4)
    except (OSError, HandshakeError, ProbeError, ProtocolError):
        return []
    return list(response.mechanisms)


def _frame(request: Request, version: int) -> bytes:
    return b"".join(request_parts(request, version, _CORRELATION_ID, "barnabas-doctor"))
