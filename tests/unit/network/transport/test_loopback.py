"""Connections within one machine: which they are, and that they are not paced."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas.network.transport import PlaintextTransportLayer
from barnabas.network.transport.loopback import do_not_pace, on_one_machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a connection choose its algorithm")


@pytest.mark.parametrize(
    ("own", "peer", "same"),
    [
        (("127.0.0.1", 9092), ("127.0.0.1", 40000), True),
        (("127.0.0.1", 9092), ("127.8.8.8", 40000), True),
        (("192.0.2.7", 9092), ("192.0.2.7", 40000), True),
        (("192.0.2.7", 9092), ("192.0.2.8", 40000), False),
        (("::1", 9092, 0, 0), ("::1", 40000, 0, 0), True),
        (("::ffff:127.0.0.1", 9092, 0, 0), ("::ffff:127.0.0.2", 40000, 0, 0), True),
        (("::ffff:192.0.2.7", 9092, 0, 0), ("::ffff:192.0.2.8", 40000, 0, 0), False),
        (("fe80::1%eth0", 9092, 0, 2), ("fe80::2%eth0", 40000, 0, 2), False),
        (("192.0.2.7", 9092), ("not an address", 1), False),
    ],
)
def test_both_ends_on_one_machine(own: tuple[Any, ...], peer: tuple[Any, ...], same: bool) -> None:
    assert on_one_machine(own, peer) is same


class FakeSocket:
    """Knows its algorithm."""

    def __init__(self, algorithm: bytes, *, own: str = "127.0.0.1", family: int = socket.AF_INET) -> None:
        self.algorithm = algorithm
        self.own = own
        self.family = family
        self.refuses = False

    def getsockname(self) -> tuple[str, int]:
        return self.own, 9092

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        return self.algorithm.ljust(size, b"\0")

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        if self.refuses:
            raise PermissionError("not this one")
        self.algorithm = value


@pytest.mark.parametrize(
    ("sock", "peer", "after"),
    [
        (FakeSocket(b"bbr"), "127.0.0.1", b"reno"),
        (FakeSocket(b"bbr3"), "127.0.0.1", b"reno"),
        (FakeSocket(b"bbr", own="192.0.2.7"), "192.0.2.7", b"reno"),
        (FakeSocket(b"bbr", own="192.0.2.7"), "192.0.2.8", b"bbr"),  # a network, for which it was chosen
        (FakeSocket(b"cubic"), "127.0.0.1", b"cubic"),
        (FakeSocket(b"dctcp"), "127.0.0.1", b"dctcp"),
        (FakeSocket(b"bbr", family=socket.AF_UNIX), "127.0.0.1", b"bbr"),
    ],
)
def test_only_what_paces_within_a_machine_is_changed(sock: Any, peer: str, after: bytes) -> None:
    do_not_pace(sock, (peer, 40000))
    assert sock.algorithm == after


def test_a_system_that_refuses_is_left_alone() -> None:
    sock: Any = FakeSocket(b"bbr")
    sock.refuses = True
    do_not_pace(sock, ("127.0.0.1", 40000))
    assert sock.algorithm == b"bbr"


def algorithm(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.fixture
def paced_listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        pace(listener)
        yield listener


def pace(sock: socket.socket) -> None:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    except OSError as error:
        pytest.skip(f"this system has no bbr, or does not give it to us: {error}")


def test_what_a_client_connects_is_not_paced(paced_listener: socket.socket) -> None:
    with closing(socket.socket()) as client:
        pace(client)
        client.connect(paced_listener.getsockname())
        client.setblocking(False)
        assert algorithm(client) == b"bbr"
        assert PlaintextTransportLayer(client).finish_connect()
        assert algorithm(client) == b"reno"
