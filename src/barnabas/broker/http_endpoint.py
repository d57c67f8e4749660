"""A small HTTP server beside the broker: ``/metrics`` for Prometheus, ``/health`` for whoever restarts things.

``/quotas`` shows what clients have used of their quotas; see `barnabas.broker.node_quotas`. ``/health`` is 200 while the broker serves and 503 otherwise, with the state as JSON, so that it can be a readiness
probe as it stands. ``/metrics`` is what the JMX exporter would show of Apache Kafka; see `barnabas.metrics.prometheus`.

It is off unless ``barnabas.http.listener`` says where to listen, and it is started last: nothing waits for it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
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
        self._server = ThreadingHTTPServer((host, port), type("Pages", (_Pages,), {"pages": pages}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="barnabas-http", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
