"""Readiness, on every kind of poller that this platform has."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.network.reactor.poller import (
    READ,
    WRITE,
    EpollPoller,
    Poller,
    PortablePoller,
    make_poller,
    make_waker,
    readable,
    writable,
)
from network_fixtures import nothing_left_behind

pytestmark = pytest.mark.mechanism("N05")

WAIT_MS = 60_000
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


# ---------------------------------------------------------------------------------------------------- waking up


def test_a_wake_up_ends_one_wait(poller: Poller) -> None:
    waker = make_waker(poller)
    try:
        assert poller.poll(0) == []
        for _ in range(3):
            for _ in range(2):  # two are as good as one
                waker.wake()
            assert [fd for fd, _ in poller.poll(WAIT_MS)] == [waker.fd]
            waker.drain()
            assert poller.poll(0) == []
    finally:
        waker.close()


def test_a_wait_is_ended_by_another_thread(poller: Poller) -> None:
    waker = make_waker(poller)
    thread = threading.Thread(target=waker.wake)
    try:
        thread.start()
        assert [fd for fd, _ in poller.poll(WAIT_MS)] == [waker.fd]
    finally:
        thread.join()
        waker.close()


def test_a_waker_that_is_closed_leaves_alone_whoever_has_its_number_now(poller: Poller) -> None:
    waker = make_waker(poller)
    number = waker.fd
    waker.close()
    waker.close()
    reader, writer = os.pipe()
    try:
        assert number in {reader, writer}, "or this test proves nothing"
        waker.wake()
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 10)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_part_of_a_millisecond_is_waited_for(poller: Poller) -> None:
    """To wait for 0.3 ms must not be to look and return, or a loop with so little time left would spin."""
    started = time.perf_counter()
    for _ in range(5):
        assert poller.poll(0.3) == []
    assert time.perf_counter() - started >= 5 * 0.0003


def test_a_poller_that_is_closed_says_so(poller: Poller) -> None:
    if isinstance(poller, PortablePoller):
        pytest.skip("that is for the standard library to say")
    poller.close()
    with pytest.raises((OSError, ValueError)):
        poller.poll(0)
