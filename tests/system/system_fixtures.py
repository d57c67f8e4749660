"""What the tests of whole servers share: a server that answers, clients that must not notice a fault, log lines.

Every fault test has the same shape: :func:`answering` starts a server, :class:`Bystanders` connects twenty clients that
do nothing wrong, one connection misbehaves, and then the bystanders are asked again. When the server is stopped,
``serving`` looks for what was left behind: threads, descriptors, counted connections, memory that the pool has not got
back.
"""

from __future__ import annotations

import logging
import queue
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from benchmarks.connections import DescriptorLimitError, allow_descriptors

from barnabas.metrics.yammer.meter import Meter
from barnabas.network.reactor.selector import SelectorStats
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import Client, Policy, Server, heartbeat, serving

BYSTANDERS = 20
LARGE = 1 << 18
"""More than the buffers of both sockets hold together, if these are small."""
SMALL_BUFFERS: dict[str, Any] = {"socket_send_buffer_bytes": 16_384, "socket_receive_buffer_bytes": 16_384}
"""Fixed sizes, because a buffer that the kernel is left to size grows to several megabytes."""

PARKED = 1_000_000
"""Requests with a correlation id from here on are not answered by :class:`Answers`: the test does that."""


class Answers:
    """A handler that answers each request at once, and counts the requests of each client."""

    def __init__(self, body: Callable[[Request], bytes] = lambda _request: b"") -> None:
        self.server: Server | None = None
        self.handled: Counter[str] = Counter()
        self._body = body

    def __call__(self, request: Request, local: RequestLocal) -> None:
        assert self.server is not None
        self.handled[client_of(request.connection_id)] += 1
        if request.correlation_id >= PARKED:
            self.server.arrived.put(request)
        else:
            self.server.answer(request, self._body(request))


@contextmanager
def answering(policy: Policy, answers: Answers | None = None, **settings: Any) -> Iterator[Server]:
    """A server whose handler answers, by default with nothing but the correlation id."""
    answers = answers or Answers()
    with serving(policy, answers, started=False, **settings) as server:
        answers.server = server
        server.start()
        yield server


class Bystanders:
    """Connections that do nothing wrong and must be served whatever happens to others."""

    def __init__(self, server: Server, count: int = BYSTANDERS) -> None:
        self._clients = [server.connect() for _ in range(count)]
        self._number = 0
        self.ask_all()

    def ask_all(self) -> None:
        """A request on each of them, all sent before the first answer is read."""
        self._number += 1
        for client in self._clients:
            client.send(heartbeat(self._number))
        for client in self._clients:
            assert client.receive()[0] == self._number

    def ask_one(self) -> None:
        """One request on one of them, each time another one."""
        self._number += 1
        assert self._clients[self._number % len(self._clients)].ask(self._number) == self._number

    def __len__(self) -> int:
        return len(self._clients)


def drain(client: Client) -> bytes:
    """All that comes until the server closes the connection, in whatever way."""
    data = bytearray()
    with suppress(ConnectionResetError):
        while part := client.socket.recv(1 << 16):
            data += part
    return bytes(data)


# ---------------------------------------------------------------------------------------------------- what is seen


def client_of(connection_id: str) -> str:
    """``host:port`` of the client, from the id that the server gives to its connection."""
    return connection_id.split("-")[1]


def stats_of(server: Server, name: str) -> int:
    """A counter of the selectors, all of them together."""
    assert name in dir(SelectorStats)
    return sum(int(getattr(processor.selector.stats, name)) for processor in server.sockets.processors)


def bad_requests(server: Server) -> int:
    return sum(processor.bad_requests for processor in server.sockets.processors)


def errors_of(server: Server) -> dict[tuple[str, str], int]:
    """How many requests have ended with an error, by API and error."""
    return {
        (mbean.tags["request"], mbean.tags["error"]): metric.count
        for mbean, metric in server.registry.metrics.items()
        if isinstance(metric, Meter) and "error" in mbean.tags
    }


def lines_about(caplog: pytest.LogCaptureFixture, address: str) -> list[str]:
    """The levels of all log lines that name this client's connection, in order."""
    return [record.levelname for record in list(caplog.records) if f"-{address}-" in record.getMessage()]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """All lines from warning upwards, whoever they are about."""
    return [record.getMessage() for record in list(caplog.records) if record.levelno >= logging.WARNING]


@contextmanager
def log_lines(logger: str, level: int) -> Iterator[queue.Queue[str]]:
    """The lines of one logger as they come, to wait for one of them."""
    lines: queue.Queue[str] = queue.Queue()

    class ToQueue(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.put(record.getMessage())

    handler = ToQueue(level)
    logging.getLogger(logger).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(logger).removeHandler(handler)


# ---------------------------------------------------------------------------------------------------- descriptors


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Allows that many open files meanwhile; skips the test where this user may not have them."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_descriptors(count)
    except DescriptorLimitError as reason:
        pytest.skip(str(reason))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
