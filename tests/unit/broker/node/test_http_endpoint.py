"""``/metrics`` and ``/health`` of a running node, and the little server behind them."""

from __future__ import annotations

import errno
import http.client
import json
import queue
import select
import selectors
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.broker.node import http_endpoint
from barnabas.broker.node.http_endpoint import REQUEST_TIMEOUT_S, HttpEndpoint
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.embedded import EmbeddedBroker

WAIT_S = 60
LIMIT_S = 60


def get(address: str) -> tuple[int, str, str]:
    try:
        with urlopen(address, timeout=WAIT_S) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


# ---------------------------------------------------------------------------------------------------- the server


@pytest.fixture
def state() -> dict[str, object]:
    return {"status": "up"}


@pytest.fixture
def endpoint(state: dict[str, object]) -> Iterator[HttpEndpoint]:
    def metrics() -> str:
        if "broken" in state:
            raise RuntimeError("no metrics today")
        return "up 1\n"

    endpoint = HttpEndpoint("127.0.0.1", 0, metrics, lambda: state, {"/quotas": lambda: {"rows": []}})
    yield endpoint
    endpoint.close()


def test_pages(endpoint: HttpEndpoint) -> None:
    assert get(f"{endpoint.address}/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", "up 1\n")
    assert get(f"{endpoint.address}/metrics?name=up")[0] == 200
    assert get(f"{endpoint.address}/quotas") == (200, "application/json", '{"rows": []}\n')
    status, _, text = get(f"{endpoint.address}/")
    assert status == 404
    assert "/metrics, /health" in text


def test_health_is_a_readiness_probe_as_it_stands(endpoint: HttpEndpoint, state: dict[str, object]) -> None:
    assert get(f"{endpoint.address}/health") == (200, "application/json", '{"status": "up"}\n')
    state["status"] = "down"
    assert get(f"{endpoint.address}/health") == (503, "application/json", '{"status": "down"}\n')


def test_a_page_that_cannot_be_made_is_an_error_and_nothing_more(
    endpoint: HttpEndpoint, state: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    state["broken"] = True
    assert get(f"{endpoint.address}/metrics")[0] == 500
    assert "no metrics today" in caplog.text
    assert get(f"{endpoint.address}/health")[0] == 200


def test_only_the_head(endpoint: HttpEndpoint) -> None:
    connection = http.client.HTTPConnection(urlsplit(endpoint.address).netloc, timeout=WAIT_S)
    connection.request("HEAD", "/metrics")
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Length"], response.read()) == (200, "5", b"")
    connection.close()


def test_it_ends_at_once_whoever_is_connected(state: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus keeps its connection for the next time, and somebody connects and says nothing."""
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 10 * LIMIT_S)
    before = set(threading.enumerate())
    endpoint = HttpEndpoint("127.0.0.1", 0, lambda: "", lambda: state)
    place = urlsplit(endpoint.address)
    kept = http.client.HTTPConnection(place.netloc, timeout=WAIT_S)
    kept.request("GET", "/health")
    kept.getresponse().read()
    with socket.create_connection((place.hostname, place.port), timeout=WAIT_S) as silent:
        assert get(f"{endpoint.address}/health")[0] == 200
        started = time.monotonic()
        endpoint.close()
        assert time.monotonic() - started < 5 * LIMIT_S, "well before the request would be too late"
        assert silent.recv(1) == b""
    kept.close()
    assert set(threading.enumerate()) - before == set()


def test_a_taken_port_says_which(endpoint: HttpEndpoint) -> None:
    port = urlsplit(endpoint.address).port
    assert port is not None
    with pytest.raises(OSError, match=f"cannot open http://127.0.0.1:{port}: Address already in use"):
        HttpEndpoint("127.0.0.1", port, str, dict)
    with pytest.raises(OSError, match=r"cannot open http://no\.such\.host\.invalid:1"):
        HttpEndpoint("no.such.host.invalid", 1, str, dict)


def ask(endpoint: HttpEndpoint, text: str) -> bytes:
    """All that comes back for a request, until the server closes the connection."""
    place = urlsplit(endpoint.address)
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        with suppress(OSError):  # a refused connection may be gone already
            connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            return stream.read()


def is_up(endpoint: HttpEndpoint) -> bool:
    try:
        return ask(endpoint, "GET /health HTTP/1.0\n\n").startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        return False


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9644", 200),
        ("[::1]:9644", 200),
        ("192.0.2.7", 200),
        ("localhost:1", 200),
        ("app.localhost", 200),
        ("Broker-1.Example.", 200),
        ("evil.example:9644", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_foreign_name_is_refused(state: dict[str, object], host: str, status: int) -> None:
    endpoint = HttpEndpoint("127.0.0.1", 0, str, lambda: state, hosts=["broker-1.example"])
    try:
        answer = ask(endpoint, f"GET /health HTTP/1.1\nHost: {host}\n\n")
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert (b'"up"' in answer) is (status == 200)
    finally:
        endpoint.close()


def test_names_can_be_allowed(state: dict[str, object]) -> None:
    endpoint = HttpEndpoint("127.0.0.1", 0, str, lambda: state, hosts=["*"])
    assert b"200 OK" in ask(endpoint, "GET /health HTTP/1.1\nHost: any.example\n\n")
    endpoint.close()


def test_requests_that_no_scraper_sends(endpoint: HttpEndpoint) -> None:
    assert ask(endpoint, "GET /health HTTP/1.0\n\n").startswith(b"HTTP/1.1 200 ")
    assert ask(endpoint, "GET /health HTTP/1.1\n\n").startswith(b"HTTP/1.1 400 ")
    assert ask(endpoint, "GET /health HTTP/1.1\nHost: localhost\nHost: evil\n\n").startswith(b"HTTP/1.1 400 ")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "BREW"):
        answer = ask(endpoint, f"{method} /quotas HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n")
        assert answer.startswith(b"HTTP/1.1 405 "), method
        assert b"Allow: GET, HEAD" in answer
    smuggled = "GET /metrics HTTP/1.1\nHost: localhost\n\n"
    answer = ask(endpoint, f"GET /health HTTP/1.1\nHost: localhost\nContent-Length: {len(smuggled)}\n\n{smuggled}")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_connections_are_bounded(state: dict[str, object]) -> None:
    endpoint = HttpEndpoint("127.0.0.1", 0, str, lambda: state, max_connections=3)
    place = urlsplit(endpoint.address)
    before = threading.active_count()
    silent = [socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) for _ in range(3)]
    try:
        refused = [socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) for _ in range(50)]
        for connection in refused:
            assert connection.recv(100).startswith(b"HTTP/1.1 503 ")
            connection.close()
        assert threading.active_count() <= before + 3
        silent.pop().close()
        until(lambda: is_up(endpoint), "a free place", LIMIT_S)
    finally:
        for connection in silent:
            connection.close()
        endpoint.close()


def test_without_descriptors_it_pauses_instead_of_spinning(
    state: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that it cannot accept stays in the backlog, and would be reported again at once."""
    waits: queue.Queue[tuple[float | None, int]] = queue.Queue()

    class NotingSelector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            waits.put((timeout, len(self.get_map())))
            return super().select(timeout)

    failures = [OSError(errno.EMFILE, "Too many open files")]
    accept = socketserver.TCPServer.get_request

    def scripted(server: socketserver.TCPServer) -> Any:
        if failures:
            raise failures.pop()
        return accept(server)

    monkeypatch.setattr(selectors, "DefaultSelector", NotingSelector)
    monkeypatch.setattr(socketserver.TCPServer, "get_request", scripted)
    monkeypatch.setattr(http_endpoint, "ACCEPT_RETRY_S", 0.01)
    endpoint = HttpEndpoint("127.0.0.1", 0, lambda: "", lambda: state)
    try:
        assert get(f"{endpoint.address}/health")[0] == 200
        found = [waits.get(timeout=WAIT_S) for _ in range(3)]
        assert found == [(None, 2), (0.01, 1), (None, 2)], "the second wait is not ended by the same connection again"
    finally:
        endpoint.close()


def test_a_client_that_sends_a_byte_at_a_time_is_cut_off(state: dict[str, object]) -> None:
    """No single read takes long, and still the request does not arrive in time."""
    clock = MockClock()
    endpoint = HttpEndpoint("127.0.0.1", 0, str, lambda: state, clock=clock)
    place = urlsplit(endpoint.address)
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = 0
        try:
            while sent < 10_000:
                slow.sendall(b"x")
                sent += 1
                clock.advance(REQUEST_TIMEOUT_S * 100)
                # Ten thousand bytes take a minute at this pace, however late the server reads the first.
                if select.select([slow], [], [], 0.006)[0]:
                    assert slow.recv(100) == b""
                    break
        except ConnectionError:
            pass
        assert sent < 10_000
    endpoint.close()


def test_a_client_that_leaves_is_not_worth_a_traceback(
    endpoint: HttpEndpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    place = urlsplit(endpoint.address)
    for _ in range(5):
        with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
            # Closed with a reset, and not in good order.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: "was lost" in caplog.text, "the end of a connection", LIMIT_S)
    assert get(f"{endpoint.address}/health")[0] == 200
    assert "Traceback" not in caplog.text + capfd.readouterr().err


# ---------------------------------------------------------------------------------------------------- a node

DASHBOARD = {
    "kafka_server_brokertopicmetrics_messagesin_total": 5,
    "kafka_server_brokertopicmetrics_bytesin_total": None,
    "kafka_server_brokertopicmetrics_bytesout_total": None,
    "kafka_server_brokertopicmetrics_totalproducerequests_total": 5,
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": None,
    "kafka_server_brokertopicmetrics_failedproducerequests_total": 0,
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": 0,
    'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}': 5,
    "kafka_server_replicamanager_underreplicatedpartitions": 0,
    "kafka_server_replicamanager_underminisrpartitioncount": 0,
    "kafka_server_replicamanager_offlinereplicacount": 0,
    "kafka_server_replicamanager_partitioncount": 2,
    "kafka_server_replicamanager_leadercount": 2,
    "kafka_server_replicamanager_isrshrinks_total": 0,
    "kafka_server_replicamanager_isrexpands_total": 0,
    "kafka_server_kafkaserver_brokerstate": 3,
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": None,
    'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Produce"}': 0,
    'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"}': 0,
    "kafka_controller_kafkacontroller_activecontrollercount": 1,
    "kafka_controller_kafkacontroller_activebrokercount": 1,
    "kafka_controller_kafkacontroller_fencedbrokercount": 0,
    "kafka_controller_kafkacontroller_globaltopiccount": 1,
    "kafka_controller_kafkacontroller_globalpartitioncount": 2,
    "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 0,
    "kafka_network_socketserver_networkprocessoravgidle_percent": None,
    "kafka_network_requestchannel_requestqueuesize": 0,
    "kafka_network_requestchannel_responsequeuesize": 0,
    'kafka_network_requestmetrics_totaltimems_count{request="Produce"}': 5,
    'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}': None,
    'kafka_network_requestmetrics_localtimems{request="FetchConsumer",quantile="0.50"}': None,
    'kafka_network_requestmetrics_requests_total{request="Produce",version="12"}': 5,
    'kafka_log_log_size{topic="orders",partition="0"}': None,
    'kafka_log_log_logendoffset{topic="orders",partition="0"}': 5,
    'kafka_log_log_logstartoffset{topic="orders",partition="1"}': 0,
    'kafka_log_log_numlogsegments{topic="orders",partition="0"}': 1,
    "kafka_log_logmanager_offlinelogdirectorycount": 0,
    'kafka_cluster_partition_underreplicated{topic="orders",partition="0"}': 0,
    'kafka_cluster_partition_insyncreplicascount{topic="orders",partition="0"}': 1,
    'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT",networkProcessor="0"}': 1,
    "process_cpu_seconds_total": None,
    "process_resident_memory_bytes": None,
    "process_open_fds": None,
}
"""What panels of common dashboards ask for, and its value where that is known; otherwise something not negative."""


def test_dashboards_find_what_they_ask_for() -> None:
    with (
        EmbeddedBroker(overrides={"barnabas.http.listener": "127.0.0.1:0"}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        address = broker.server.http_address
        assert address is not None
        client.create_topic("orders", 2)
        for _ in range(5):
            assert client.produce("orders", 0, b"value")[0] is Errors.NONE
        client.fetch_all("orders", 0)
        get(f"{address}/metrics")  # collects what was counted meanwhile
        status, content_type, text = get(f"{address}/metrics")
        assert status == 200
        assert content_type.startswith("text/plain; version=0.0.4")
        values = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if not line.startswith("#")
        }
        for name, expected in DASHBOARD.items():
            assert name in values, name
            assert values[name] >= 0, name
            assert expected is None or values[name] == expected, (name, values[name])

        status, _, text = get(f"{address}/health")
        assert status == 200
        assert json.loads(text) == {
            "status": "up",
            "node": 1,
            "cluster": broker.cluster_id,
            "broker": "RUNNING",
            "active_controller": True,
        }


def test_a_node_without_a_listener_for_it_has_none() -> None:
    with EmbeddedBroker() as broker:
        assert broker.server.http_address is None
