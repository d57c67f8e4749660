"""A small HTTP server in the broker: ``/metrics`` for Prometheus, ``/health`` for health checks.

``/health`` returns 200 while the broker serves and 503 otherwise, with the state as JSON, so it works as a readiness
probe. ``/metrics`` shows what the JMX exporter shows for Apache Kafka; see `barnabas.metrics.prometheus`.
``/quotas`` shows the clients' quota usage; see `barnabas.broker.node.node_quotas`.

It is off unless ``barnabas.http.listener`` is set. It starts last: no other part waits for it.

The load that clients can cause is bounded:

=========================== ==============================================================================
connections                 `MAX_CONNECTIONS` at a time, each with a thread; more are refused with 503
slow clients                must send a request, and read its response, within `REQUEST_TIMEOUT_S`
methods                     GET and HEAD; others are refused with 405
foreign host names          refused with 421, see `AllowedHosts`
clients that disconnect     logged as one line at level DEBUG, without traceback
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
"""Returns the content of ``/health``; healthy if ``status`` is "up"."""

Document = Callable[[], Mapping[str, object]]
"""Returns the content of a JSON page."""

Page = Callable[[], tuple[HTTPStatus, str, str]]
"""Returns status, content type and text."""

REQUEST_TIMEOUT_S: Final = 10
MAX_CONNECTIONS: Final = 32
"""Enough for a scraper, a probe and a few people. Each connection has a thread."""
ACCEPT_RETRY_S: Final = 0.5
"""The pause after a connection could not be accepted. It would be reported again at once."""
METHODS: Final = ("GET", "HEAD")
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class AllowedHosts:
    """Checks the ``Host`` header of requests.

    A foreign web page can read these pages only if its site's name resolves to this machine's address (DNS rebinding).
    The browser then sends the site's name as ``Host``, so unknown names are refused. Addresses and ``localhost`` cannot
    be rebound. A client that sends no ``Host`` is not a browser.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        """``names`` are the names of this machine; ``*`` allows any name."""
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allows(self, host: str) -> bool:
        """Returns whether a ``Host`` header is allowed.

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
        """Opens the port; raises OSError if it is in use. ``documents`` are further JSON pages.

        ``hosts`` are the allowed host names besides `host`; see `AllowedHosts`.
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
                if self._server.accept_failed:
                    selector.unregister(self._server)
                    if selector.select(ACCEPT_RETRY_S):
                        return
                    selector.register(self._server, selectors.EVENT_READ)

    def close(self) -> None:
        """Stops the server; returns when all its threads have ended."""
        # The library's own loop checks for shutdown only twice a second, which is too slow for brokers in tests.
        self._wake_writer.send(b"x")
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()
        self._wake_reader.close()
        self._wake_writer.close()


class _Server(ThreadingHTTPServer):
    """Serves each connection on a thread; all threads end with the server."""

    daemon_threads = False  # server_close() does not wait for daemon threads
    timeout = 0  # handle_request() is called only when a connection is pending
    request_queue_size = 128  # with a short queue, a burst of connections waits for retransmissions

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], family: int, max_connections: int
    ) -> None:
        self.address_family = family
        self._max_connections = max_connections
        self._lock = threading.Lock()
        """Guards the connections: each thread removes its own when it ends."""
        self._connections: set[socket.socket] = set()
        self.accept_failed = False
        """Whether the last connection could not be accepted. It stays in the backlog."""
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Binds without a reverse lookup of this machine's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> Any:
        self.accept_failed = True
        try:
            accepted = super().get_request()
        except OSError as error:  # no file descriptor, most likely
            logger.warning("Cannot accept an HTTP connection: %s", error)
            raise
        self.accept_failed = False
        return accepted

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
        """Logs the current exception; without a traceback if the client disconnected or was too slow."""
        error = sys.exception()
        if isinstance(error, OSError):
            logger.debug("An HTTP connection of %s was lost: %s", client_address[0], error)
        else:
            logger.error("An HTTP connection of %s failed", client_address[0], exc_info=error)

    def end_connections(self) -> None:
        """Closes all connections, including idle ones that are kept alive."""
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
    """Returns a host as written in front of a port: an IPv6 address in brackets."""
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
    """Reads from a socket until a deadline. A timeout per read would let a client send one byte at a time."""

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
    """Handles GET and HEAD of a few fixed paths."""

    pages: ClassVar[Mapping[str, Page]] = {}
    hosts: ClassVar[AllowedHosts] = AllowedHosts()
    clock: ClassVar[Clock] = SYSTEM_CLOCK
    timeout = REQUEST_TIMEOUT_S  # for sending a whole response
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
        """Parses a request, and refuses requests that no scraper or probe sends."""
        if not super().parse_request():
            return False
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read, and must not be parsed as the next request
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
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
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
