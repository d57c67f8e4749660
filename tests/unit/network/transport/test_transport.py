"""The plaintext transport: bytes in and out of a socket, and file regions out of it."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas._kernels.sendfile import send_file as portable_send_file
from barnabas.network.transport import PlaintextTransportLayer
from network_fixtures import WAIT_S, nothing_left_behind, tcp_pair


@pytest.fixture
def pair() -> Iterator[tuple[PlaintextTransportLayer, socket.socket]]:
    with nothing_left_behind(), tcp_pair(send_buffer=8192, receive_buffer=8192) as (server, client):
        yield PlaintextTransportLayer(server), client


@pytest.mark.mechanism("N06")
def test_receiving_never_waits(pair: tuple[PlaintextTransportLayer, socket.socket]) -> None:
    transport, client = pair
    assert transport.is_ready
    assert not transport.has_bytes_buffered
    with pytest.raises(BlockingIOError):
        transport.recv(10)
    with pytest.raises(BlockingIOError):
        transport.recv_into(bytearray(10))
    client.sendall(b"abcdef")
    assert select.select([transport.fileno()], [], [], WAIT_S)[0]
    assert transport.recv(2) == b"ab"
    buffer = bytearray(10)
    assert transport.recv_into(buffer) == 4
    assert buffer[:4] == b"cdef"
    client.close()
    assert select.select([transport.fileno()], [], [], WAIT_S)[0]
    assert transport.recv(1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system waits for a number of bytes")
def test_it_is_readable_when_as_much_has_arrived_as_is_expected() -> None:
    with tcp_pair() as (server, client):
        transport = PlaintextTransportLayer(server)
        transport.expect(1000)
        client.sendall(bytes(999))
        assert not select.select([server], [], [], 0)[0]
        client.sendall(b"x")
        assert select.select([server], [], [], WAIT_S)[0]
        assert len(transport.recv(2000)) == 1000
        transport.expect(1)
        client.sendall(b"y")
        assert select.select([server], [], [], WAIT_S)[0]
        assert transport.recv(10) == b"y"
        transport.expect(1000)
        client.close()
        assert select.select([server], [], [], WAIT_S)[0], "the end is always news"


@pytest.mark.mechanism("N10")
def test_sending_never_waits(pair: tuple[PlaintextTransportLayer, socket.socket]) -> None:
    transport, client = pair
    sent = 0

    def fill() -> None:
        nonlocal sent
        while True:
            sent += transport.send(b"x" * 65536)

    with pytest.raises(BlockingIOError):
        fill()
    with pytest.raises(BlockingIOError):
        transport.sendmsg([b"y", b"z"])
    assert sum(len(client.recv(65536)) for _ in iter(lambda: select.select([client], [], [], 0)[0], [])) <= sent


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize(("is_usual", "has_sendfile"), [(True, True), (False, True), (False, False)])
def test_a_part_of_a_file_goes_out_as_it_is(
    pair: tuple[PlaintextTransportLayer, socket.socket],
    tmp_path: Path,
    is_usual: bool,
    has_sendfile: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport, client = pair
    send_file = transport.send_file if is_usual else partial(portable_send_file, transport.fileno())
    if not has_sendfile:
        monkeypatch.delattr(os, "sendfile")
    content = os.urandom(400_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    received = bytearray()
    try:
        position, stop, blocked = 1000, 350_000, 0
        while position < stop:
            try:
                sent = send_file(fd, position, stop - position)
            except BlockingIOError:
                blocked += 1
                if select.select([client], [transport.fileno()], [], WAIT_S)[0]:
                    received += client.recv(1 << 16)
            else:
                assert 0 < sent <= stop - position
                position += sent
        while len(received) < 349_000:
            received += client.recv(1 << 16)
        assert received == content[1000:350_000]
        assert blocked, "the socket's buffers hold far less than that"
        assert send_file(fd, 400_000, 10) == 0, "nothing is there, and it says so"
    finally:
        os.close(fd)


@pytest.mark.mechanism("N10")
def test_a_peer_that_is_gone_is_an_error_and_not_a_full_socket(
    pair: tuple[PlaintextTransportLayer, socket.socket], tmp_path: Path
) -> None:
    transport, client = pair
    client.close()
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 100_000)
    fd = os.open(path, os.O_RDONLY)
    try:
        transport.send_file(fd, 0, 100_000)
        assert select.select([transport.fileno()], [], [], WAIT_S)[0], "the peer's reset is here"
        with pytest.raises(ConnectionError):
            transport.send_file(fd, 0, 100_000)
    finally:
        os.close(fd)


@pytest.mark.mechanism("N06")
def test_an_outgoing_connection_is_there_or_not_yet_or_failed() -> None:
    with nothing_left_behind():
        with socket.socket() as fresh:
            assert not PlaintextTransportLayer(fresh).finish_connect()
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as sock:
            sock.connect(listening.getsockname())
            assert PlaintextTransportLayer(sock).finish_connect()
            free = listening.getsockname()
        with socket.socket() as sock:
            sock.setblocking(False)
            sock.connect_ex(free)
            assert select.select([], [sock], [], WAIT_S)[1]
            with pytest.raises(ConnectionRefusedError):
                PlaintextTransportLayer(sock).finish_connect()


@pytest.mark.mechanism("N06")
def test_closing_closes_the_socket(pair: tuple[PlaintextTransportLayer, socket.socket]) -> None:
    transport, client = pair
    assert transport.fileno() == transport.socket.fileno()
    transport.close()
    assert transport.socket.fileno() == -1
    assert client.recv(1) == b""


@pytest.mark.mechanism("N06")
def test_a_transport_that_is_closed_leaves_alone_whoever_has_its_number_now(
    pair: tuple[PlaintextTransportLayer, socket.socket],
) -> None:
    transport, _ = pair
    number = transport.fileno()
    transport.close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert number in {ours.fileno(), theirs.fileno()}, "or this test proves nothing"
        theirs.setblocking(False)
        ours.send(b"x")
        for use in (lambda: transport.send(b"y"), lambda: transport.recv(10)):
            with pytest.raises(OSError, match="Bad file descriptor"):
                use()
        assert theirs.recv(10) == b"x"
        with pytest.raises(BlockingIOError):
            theirs.recv(10)


@pytest.mark.mechanism("N06")
def test_as_much_is_received_as_there_is_and_no_more_than_asked_for(
    pair: tuple[PlaintextTransportLayer, socket.socket],
) -> None:
    transport, client = pair
    client.sendall(b"0123456789")
    assert [transport.recv(size) for size in (0, 4, 100)] == [b"", b"0123", b"456789"]
    with pytest.raises(ValueError, match=r"negative|-1"):
        transport.recv(-1)


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("size", [0, 1, 1 << 17], ids=["nothing", "little", "much"])
def test_any_kind_of_buffer_can_be_sent(pair: tuple[PlaintextTransportLayer, socket.socket], size: int) -> None:
    transport, client = pair
    for kind in (bytes, bytearray, memoryview):
        sent = transport.send(kind(bytes(size)))
        assert sent <= size
        assert bool(sent) is bool(size)
        received = 0
        while received < sent:
            received += len(client.recv(sent - received))


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize(
    ("size", "large"),
    [(0, 0), (100, 100), (100, 600_000), (1 << 20, 1 << 20)],
    ids=["nothing", "little", "one-large", "much"],
)
def test_several_buffers_go_out_one_after_the_other(
    pair: tuple[PlaintextTransportLayer, socket.socket], size: int, large: int
) -> None:
    transport, client = pair
    buffers: list[Any] = [b"a" * size, bytearray(b"b" * large), memoryview(b"c" * size), b"d"]
    expected = b"".join(buffers)
    sent = transport.sendmsg(buffers)
    assert sent
    received = b""
    while len(received) < sent:
        received += client.recv(sent - len(received))
    assert received == expected[:sent]
    with pytest.raises(TypeError):
        transport.sendmsg([b"a", "text"])
