"""A TLS server that returns every request, and a storm of handshakes against it; both also as programs."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import sys
import threading
from contextlib import suppress
from typing import Any

from barnabas.network.reactor.channel import ANONYMOUS, ChannelState
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.reactor.selector import Selector
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport.handshakes import HandshakePool
from barnabas.network.transport.tls import TlsTransportLayer
from unit.network.reactor.selector_bench import framed

WAIT_S = 60


def factory(ssl_context: ssl.SSLContext, pool: HandshakePool | None = None) -> ChannelFactory:
    return lambda _, sock: (TlsTransportLayer(sock, ssl_context, server_side=True, handshakes=pool), ANONYMOUS)


class EchoServer:
    """A selector in a thread that returns every request, muting the channel meanwhile as a broker does."""

    def __init__(self, channel_factory: ChannelFactory, **settings: Any) -> None:
        self.selector = Selector(channel_factory=channel_factory, **settings)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=2000)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self.lost: list[tuple[str, ChannelState, Exception | None]] = []
        self.most_prepared = 0
        self.echoed = 0
        self._numbers = itertools.count()
        self._stopped = False
        self.selector.watch_listener(self._listening.fileno(), lambda: None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        selector = self.selector
        while not self._stopped:
            selector.poll(1000)
            self.most_prepared = max(self.most_prepared, len(selector.authenticated))
            for channel, payload in selector.completed_receives:
                selector.request_received(channel)
                self.echoed += 1  # before the client can know
                if selector.send(channel, NetworkSend([framed(bytes(payload))])):
                    selector.response_sent(channel)
            for channel, _ in selector.completed_sends:
                selector.response_sent(channel)
            self.lost += [(channel.id, state, channel.error) for channel, state in selector.disconnected]
            with suppress(BlockingIOError):
                while True:
                    accepted, _ = self._listening.accept()
                    accepted.setblocking(False)
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(str(next(self._numbers)), accepted)
        selector.forget_listener(self._listening.fileno())
        self._listening.close()
        selector.close_all()

    def close(self) -> None:
        self._stopped = True
        self.selector.wakeup()
        self._thread.join(WAIT_S)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part, "the server closed the connection"
        data += part
    return data


def ask(sock: socket.socket, payload: bytes) -> None:
    sock.sendall(framed(payload))
    (size,) = struct.unpack(">i", exactly(sock, 4))
    assert exactly(sock, size) == payload


# ---------------------------------------------------------------------------------------------------- programs


def serve(identity: str) -> None:
    """Serves until the standard input ends; prints the port."""
    ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ssl_context.load_cert_chain(identity)
    pool = HandshakePool()
    server = EchoServer(factory(ssl_context, pool))
    print(server.port, flush=True)
    sys.stdin.read()
    server.close()
    pool.close()


def storm(port: str, count: str) -> None:
    """Opens connections, all of them before the first handshake; then shakes hands on all."""
    ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ssl_context.check_hostname = False
    ssl_context.verify_mode = ssl.CERT_NONE
    opened = [socket.create_connection(("127.0.0.1", int(port)), timeout=WAIT_S) for _ in range(int(count))]
    numbers = itertools.count()
    engines = []
    for sock in opened:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        engine = ssl_context.wrap_bio(incoming, outgoing)
        with suppress(ssl.SSLWantReadError):
            engine.do_handshake()
        engines.append((sock, engine, incoming, outgoing, outgoing.read()))
    print("ready", flush=True)
    for sock, _, _, _, hello in engines:
        sock.sendall(hello)

    def finish() -> None:
        while (number := next(numbers)) < len(engines):
            sock, engine, incoming, outgoing, _ = engines[number]
            while True:
                incoming.write(sock.recv(1 << 16))
                with suppress(ssl.SSLWantReadError):
                    engine.do_handshake()
                    break
            sock.sendall(outgoing.read())
            sock.close()

    finishing = [threading.Thread(target=finish) for _ in range(2)]
    for thread in finishing:
        thread.start()
    for thread in finishing:
        thread.join()
