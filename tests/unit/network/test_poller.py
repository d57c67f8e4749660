"""Readiness, on every kind of poller that this platform has."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from barnabas.network.poller import (
    READ,
    WRITE,
    EpollPoller,
    Poller,
    PortablePoller,
    make_poller,
    readable,
    writable,
)
from network_fixtures import nothing_left_behind

pytestmark = pytest.mark.mechanism("N05")

WAIT_MS = 10_000
HAS_EPOLL = hasattr(select, "epoll")


@pytest.fixture(
    params=[pytest.param("epoll", marks=pytest.mark.skipif(not HAS_EPOLL, reason="Linux only")), "portable"]
)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    with nothing_left_behind():
        made: Poller = EpollPoller() if request.param == "epoll" else PortablePoller()
        yield made
        made.close()


@pytest.fixture
def pair(poller: Poller) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_socket_with_data_is_readable_until_it_was_read(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    assert poller.poll(0) == []
    theirs.send(b"x")
    for _ in range(3):
        ((fd, events),) = poller.poll(WAIT_MS)
        assert fd == ours.fileno()
        assert readable(events)
        assert not writable(events)
    ours.recv(1)
    assert poller.poll(0) == []


def test_writing_is_only_reported_where_it_was_asked_for(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    assert poller.poll(0) == []
    poller.modify(ours.fileno(), READ | WRITE)
    ((fd, events),) = poller.poll(WAIT_MS)
    assert (fd, bool(readable(events)), bool(writable(events))) == (ours.fileno(), False, True)
    theirs.send(b"x")
    ((_, events),) = poller.poll(WAIT_MS)
    assert readable(events)
    assert writable(events)
    poller.modify(ours.fileno(), READ)
    ((_, events),) = poller.poll(WAIT_MS)
    assert not writable(events)


def test_what_is_not_watched_is_not_reported(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    theirs.send(b"x")
    assert poller.poll(WAIT_MS)
    poller.unregister(ours.fileno())
    assert poller.poll(0) == []
    poller.register(ours.fileno(), READ)
    assert poller.poll(WAIT_MS)


def test_the_end_of_a_connection_is_readable(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    theirs.close()
    ((_, events),) = poller.poll(WAIT_MS)
    assert readable(events)
    assert ours.recv(1) == b""


def test_only_sockets_that_are_ready_are_named(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(20)]
    try:
        for ours, _ in pairs:
            poller.register(ours.fileno(), READ)
        for _, theirs in pairs[::3]:
            theirs.send(b"x")
        assert {fd for fd, _ in poller.poll(WAIT_MS)} == {ours.fileno() for ours, _ in pairs[::3]}
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()


def test_the_platform_gets_its_best_poller() -> None:
    poller = make_poller()
    assert isinstance(poller, EpollPoller if HAS_EPOLL else PortablePoller)
    poller.close()
