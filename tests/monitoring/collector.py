"""A small OpenTelemetry collector: receives OTLP over HTTP and decodes it."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES: dict[str, Any] = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
LIMIT_S = 60


class Collector:
    """Keeps what it has received; responds with `status`."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.metrics: list[Any] = []
        self.spans: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.refused = 0
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"collector": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> int:
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["content-encoding"] == "gzip"
        message = MESSAGES[path]()
        message.ParseFromString(gzip.decompress(body))
        with self._changed:
            self.headers.append(headers)
            if self.status != 200:
                self.refused += 1
            elif path == "/v1/metrics":
                self.metrics.append(message)
            else:
                groups = [scope for one in message.resource_spans for scope in one.scope_spans]
                self.spans += [span for scope in groups for span in scope.spans]
            self._changed.notify_all()
            return self.status

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, "the collector did not receive it"
                self._changed.wait(left)


class _Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(self.collector.receive(self.path, headers, body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
