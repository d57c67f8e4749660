"""Connections up to the limit on open files: the logs keep descriptors of their own, and nothing is lost or offline."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.common.errors import Errors

LIMIT = 200
"""Of the broker's process: 168 for connections and logs, 32 for logs alone."""
BATCHES = 12
VALUE = bytes(40_000)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")


class LimitedBroker(BrokerProcess):
    """A broker that can have so many files open, and no more."""

    def __init__(self, data: Path, limit: int, **settings: object) -> None:
        super().__init__(data, overrides=settings)
        self._command = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *self._command]


@contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many of them, each accepted or still waiting for it."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            opened.append(sock)
        yield opened


def test_logs_work_while_connections_take_all_they_can_get(tmp_path: Path) -> None:
    # All connections wait in the backlog if the broker gets no processor for a while. Where they did not fit, their
    # clients would try again after 1, 3, 7, 15 and 31 seconds.
    settings = {"log.segment.bytes": 1 << 20, "socket.listen.backlog.size": 2 * LIMIT}
    broker = LimitedBroker(tmp_path / "data", LIMIT, **settings)
    with broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders", configs={"internal.segment.bytes": 100_000})
        for _ in range(BATCHES):
            assert client.produce("orders", 0, VALUE)[0] is Errors.NONE
        assert broker.stop() == 0
    assert len(list((tmp_path / "data" / "orders-0").glob("*.log"))) > 4
    # Started again, it has opened none of the indexes yet.
    with broker, WireClient(broker.bootstrap_servers) as client:
        with connections(broker.port, 2 * LIMIT):
            until(lambda: "No more connections are accepted" in broker.text(), broker.text)
            assert broker.descriptors <= LIMIT - 32 + 2
            for offset in range(BATCHES):
                error, values = client.fetch("orders", 0, offset)
                assert (error, values[:1]) == (Errors.NONE, [VALUE])
            for _ in range(BATCHES):  # rolls some segments
                assert client.produce("orders", 0, VALUE)[0] is Errors.NONE
            client.create_topic("new")
            until(lambda: client.produce("new", 0, b"value")[0] is Errors.NONE, broker.text)
            # More than there are descriptors for: these wait, and the rest goes on.
            names = [f"more-{number:02}" for number in range(40)]
            assert set(client.create_topics([(name, 1) for name in names])) == {Errors.NONE}
            until(lambda: "more-39-0 has no log yet" in broker.text(), broker.text)
            assert client.produce(names[-1], 0, b"value")[0] is Errors.NOT_LEADER_OR_FOLLOWER
            assert client.produce("orders", 0, VALUE)[0] is Errors.NONE
        for name in names:
            until(lambda: client.produce(name, 0, b"value")[0] is Errors.NONE, broker.text)  # noqa: B023
        with WireClient(broker.bootstrap_servers) as another:
            assert another.fetch("new", 0) == (Errors.NONE, [b"value"])
        assert "goes offline" not in broker.text()
        assert broker.text().count("No more connections are accepted") < 10
        assert broker.stop() == 0


def test_a_limit_too_low_for_the_logs_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders", 100)
        until(lambda: client.produce("orders", 99, b"value")[0] is Errors.NONE, broker.text)
    limited = LimitedBroker(tmp_path / "data", 100)
    limited.spawn()
    assert limited.process.wait(180) == 1
    assert "The limit on open files is too low for the logs in" in limited.text()
    assert "ulimit -n" in limited.text()
    with broker, WireClient(broker.bootstrap_servers) as client:
        assert client.fetch("orders", 99) == (Errors.NONE, [b"value"])
