"""For tests of the network client: a server on the loopback interface that does what each test scripts."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_response
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Response
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from unit.network.client.client_doubles import Sent, all_versions

PATIENCE_S = 60.0


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.settimeout(PATIENCE_S)

    def read(self) -> Sent:
        """The next request; ``EOFError`` if the client has hung up."""
        (size,) = struct.unpack(">i", self._exactly(4))
        payload = self._exactly(size)
        return Sent("", parse_request_header(payload), payload)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            some = self._socket.recv(size - len(data))
            if not some:
                raise EOFError
            data += some
        return bytes(data)

    def answer(self, request: Sent, body: Response, version: int | None = None) -> None:
        used = request.header.api_version if version is None else version
        self.send(encode_response(body, used, request.header.correlation_id))

    def negotiate(self, versions: ApiVersionsResponse | None = None) -> None:
        request = self.read()
        assert request.header.api_key is ApiKey.API_VERSIONS
        self.answer(request, all_versions() if versions is None else versions)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def await_end(self) -> None:
        """Reads until the client hangs up."""
        try:
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Ends the connection the hard way."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


Script = Callable[[Peer], None]


class ScriptedPeer:
    """Runs one script for each connection, one connection after the other, in a thread of its own."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts: Sequence[Script] = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self.node = Node(1, "peer.example", self.port)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for script in self._scripts:
                sock, _ = self._listener.accept()
                peer = Peer(sock)
                try:
                    script(peer)
                finally:
                    peer.close()
        except BaseException as failure:  # noqa: BLE001 - the test that started this gets it
            self._failure = failure
        finally:
            self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(PATIENCE_S)
        if error is None:
            assert not self._thread.is_alive(), "the script waits for something that the client has not done"
            if self._failure is not None:
                raise self._failure
