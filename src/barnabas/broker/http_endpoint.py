"""A small HTTP server beside the broker: ``/metrics`` for Prometheus, ``/health`` for whoever restarts things.

``/health`` is 200 while the broker serves and 503 otherwise, with the state as JSON, so that it can be a readiness
probe as it stands. ``/metrics`` is what the JMX exporter would show of Apache Kafka; see `barnabas.metrics.prometheus`.
``/quotas`` shows what clients have used of their quotas; see `barnabas.broker.node_quotas`.

It is off unless ``barnabas.http.listener`` says where to listen, and it is started last: nothing waits for it.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from barnabas.metrics.prometheus import CONTENT_TYPE

logger = logging.getLogger(__name__)

Health = Callable[[], Mapping[str, object]]
"""What ``/health`` shows; healthy if ``status`` is "up"."""

Document = Callable[[], Mapping[str, object]]
"""Something to be shown as JSON."""

Page = Callable[[], tuple[HTTPStatus, str, str]]
"""Status, content type and text."""

REQUEST_TIMEOUT_S = 10


class HttpEndpoint:
    """Serves a few pages until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], str],
        health: Health,
        documents: Mapping[str, Document] | None = None,
    ) -> None:
        """Opens the port; OSError if it is taken. ``documents`` are further pages, each of them JSON."""
        pages: dict[str, Page] = {
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, metrics()),
            "/health": lambda: _health(health()),
        }
        pages |= {path: partial(_document, document) for path, document in (documents or {}).items()}
        self._server = _open(host, port, type("Pages", (_Pages,), {"pages": pages}))
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

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], family: int) -> None:
        self.address_family = family
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without asking the name service for this machine's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def end_connections(self) -> None:
        """Also those that are kept for a next request."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _open(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server((info[4][0], port), handler, info[0])  # type: ignore[arg-type]
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


class _Pages(BaseHTTPRequestHandler):
    """GET and HEAD of a few fixed paths."""

    pages: ClassVar[Mapping[str, Page]] = {}
    timeout = REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "barnabas"
    sys_version = ""

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
