"""A small HTTP server beside the broker: ``/metrics`` for Prometheus, ``/health`` for whoever restarts things.

``/health`` is 200 while the broker serves and 503 otherwise, with the state as JSON, so that it can be a readiness
probe as it stands. ``/metrics`` is what the JMX exporter would show of Apache Kafka; see `barnabas.metrics.prometheus`.
``/quotas`` shows what clients have used of their quotas; see `barnabas.broker.node_quotas`.

It is off unless ``barnabas.http.listener`` says where to listen, and it is started last: nothing waits for it.

What a client can do to it is bounded:

=========================== ==============================================================================
connections                 `MAX_CONNECTIONS` at a time, each with a thread; more are refused with 503
slow clients                a request has to arrive, and its response has to be taken, in `REQUEST_TIMEOUT_S`
methods                     GET and HEAD; others are refused with 405
host names of others        refused with 421, see `AllowedHosts`
clients that leave          a line of level DEBUG and no traceback
=========================== ==============================================================================
"""

from __future__ import annotations

import io
import ipaddress
import json
import logging
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.metrics.prometheus import CONTENT_TYPE

logger = LimitedLogger(logging.getLogger(__name__))

Health = Callable[[], Mapping[str, object]]
"""What ``/health`` shows; healthy if ``status`` is "up"."""

Document = Callable[[], Mapping[str, object]]
"""Something to be shown as JSON."""

Page = Callable[[], tuple[HTTPStatus, str, str]]
"""Status, content type and text."""

REQUEST_TIMEOUT_S: Final = 10
MAX_CONNECTIONS: Final = 32
"""A scraper, a probe and a few people need less. Each connection has a thread."""
METHODS: Final = ("GET", "HEAD")
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class AllowedHosts:
    """Which names a client may call this server by.

    A page of a foreign site cannot read these pages, unless the site has its own name resolve to this machine's
    address (DNS rebinding). The browser then sends the site's name as ``Host``, so a name that is not ours is refused.
    Addresses and ``localhost`` cannot be rebound. A client that sends no ``Host`` is not a browser.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        """``names`` are those of this machine; ``*`` allows any name."""
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allows(self, host: str) -> bool:
        """
        >>> hosts = AllowedHosts(["broker-1.example"])
        >>> [hosts.allows(host) for host in ("Broker-1.example:9644", "[::1]:80", "localhost", "evil.example")]
        [True, True, True, False]
        """
        host = host.strip().lower()
        # With or without a port; an IPv6 address is in brackets.
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        name = name.rstrip(".")
        if name == "localhost" or name.endswith(".localhost") or name in self._names or "*" in self._names:
            return True
        try:
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True


class HttpEndpoint:
    """Serves a few pages until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], str],
        health: Health,
        documents: Mapping[str, Document] | None = None,
        *,
        hosts: Iterable[str] = (),
        clock: Clock = SYSTEM_CLOCK,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Opens the port; OSError if it is taken. ``documents`` are further pages, each of them JSON.

        ``hosts`` are names that clients may call it by, besides `host`; see `AllowedHosts`.
        """
        pages: dict[str, Page] = {
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, metrics()),
            "/health": lambda: _health(health()),
        }
        pages |= {path: partial(_document, document) for path, document in (documents or {}).items()}
        handler = type("Pages", (_Pages,), {"pages": pages, "hosts": AllowedHosts([host, *hosts]), "clock": clock})
        self._server = _open(host, port, handler, max_connections)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="barnabas-http", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{bracketed(str(host))}:{port}"

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while all(key.fileobj is self._server for key, _ in selector.select()):
                self._server.handle_request()

    def close(self) -> None:
        """Returns when nobody is served any more."""
        # Its own loop looks only twice a second whether it is to end, and a broker for a test has no time for that.
        self._wake_writer.send(b"x")
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()
        self._wake_reader.close()
        self._wake_writer.close()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, all of which end when it does."""

    daemon_threads = False  # those are not waited for
    timeout = 0  # it is told to look only when somebody is there
    request_queue_size = 128  # or a burst of connections waits for retransmissions

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], family: int, max_connections: int
    ) -> None:
        self.address_family = family
        self._max_connections = max_connections
        self._lock = threading.Lock()
        """Guards the connections: threads take theirs out when it ends."""
        self._connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without asking the name service for this machine's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            admitted = len(self._connections) < self._max_connections
            if admitted:
                self._connections.add(request)
        if admitted:
            super().process_request(request, client_address)
            return
        logger.warning("Refusing an HTTP connection of %s: there are %d", client_address[0], self._max_connections)
        with suppress(OSError):
            request.setblocking(False)
            request.send(_BUSY)
        self.shutdown_request(request)

    def close_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's
        """Of the exception that is being handled. A client that leaves, or is too slow, is not worth a traceback."""
        error = sys.exception()
        if isinstance(error, OSError):
            logger.debug("An HTTP connection of %s was lost: %s", client_address[0], error)
        else:
            logger.error("An HTTP connection of %s failed", client_address[0], exc_info=error)

    def end_connections(self) -> None:
        """Also those that are kept for a next request."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _open(host: str, port: int, handler: type[BaseHTTPRequestHandler], max_connections: int) -> _Server:
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server((info[4][0], port), handler, info[0], max_connections)  # type: ignore[arg-type]
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot open http://{bracketed(host)}:{port}: {reason}") from None


def bracketed(host: str) -> str:
    """A host as it is written in front of a port."""
    return f"[{host}]" if ":" in host else host


def _document(document: Document) -> tuple[HTTPStatus, str, str]:
    return HTTPStatus.OK, "application/json", json.dumps(document()) + "\n"


def _health(state: Mapping[str, object]) -> tuple[HTTPStatus, str, str]:
    status = HTTPStatus.OK if state.get("status") == "up" else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "application/json", json.dumps(state) + "\n"


_EXPLANATIONS: Final[Mapping[HTTPStatus, bytes]] = {
    HTTPStatus.METHOD_NOT_ALLOWED: b"Only GET and HEAD are supported.\n",
    HTTPStatus.BAD_REQUEST: b"A request has exactly one Host header.\n",
    HTTPStatus.MISDIRECTED_REQUEST: b"This server does not go by that name. Use its address or localhost, or add the "
    b"name to barnabas.http.hosts.\n",
}


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline: with a time-out for each read, a client could send a byte at a time."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._now_ns = clock.nanoseconds
        self._deadline_ns = 0

    def begin(self, seconds: float) -> None:
        self._deadline_ns = self._now_ns() + round(seconds * 1_000_000_000)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = (self._deadline_ns - self._now_ns()) / 1_000_000_000
        if left_s <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(REQUEST_TIMEOUT_S)


class _Pages(BaseHTTPRequestHandler):
    """GET and HEAD of a few fixed paths."""

    pages: ClassVar[Mapping[str, Page]] = {}
    hosts: ClassVar[AllowedHosts] = AllowedHosts()
    clock: ClassVar[Clock] = SYSTEM_CLOCK
    timeout = REQUEST_TIMEOUT_S  # of a send, as a whole
    protocol_version = "HTTP/1.1"
    server_version = "barnabas"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._reader = _DeadlineReader(self.connection, self.clock)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.begin(REQUEST_TIMEOUT_S)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Also refuses what no scraper or probe sends."""
        if not super().parse_request():
            return False
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is not read, and must not be taken for the next request
        hosts = self.headers.get_all("Host", [])
        if self.command not in METHODS:
            self.close_connection = True
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ", ".join(METHODS)})
        elif len(hosts) > 1 or (not hosts and self.request_version >= "HTTP/1.1"):
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif hosts and not self.hosts.allows(hosts[0]):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        body = b"" if self.command == "HEAD" else _EXPLANATIONS[status]
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are: {', '.join(self.pages)}")
            return
        try:
            status, content_type, text = page()
        except Exception:
            logger.exception("Could not make the page %s", self.path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        logger.debug("%s %s", self.address_string(), format % args)
