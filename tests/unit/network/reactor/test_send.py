"""What goes out: any pieces, over a socket that takes any part of them at a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.network.reactor.send import FileRegion, NetworkSend
from network_fixtures import ChunkTransport

pytestmark = pytest.mark.mechanism("N10")

CONTENT = bytes(range(256)) * 8


@pytest.fixture(scope="module")
def content_fd() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(CONTENT)
        file.flush()
        yield file.fileno()


def as_view(data: bytes) -> Any:
    return memoryview(data)


BUFFERS = st.binary(max_size=40)
PIECES = st.one_of(
    BUFFERS,
    BUFFERS.map(bytearray),
    BUFFERS.map(as_view),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
)


@given(st.lists(PIECES, min_size=1, max_size=8), st.lists(st.integers(0, 30)), st.booleans())
def test_all_bytes_go_out_once_and_in_order(content_fd: int, drawn: list[Any], takes: list[int], large: bool) -> None:
    if large:  # beyond what is joined into one buffer
        drawn = [*drawn, b"L" * 70_000, b"end"]
    pieces = [FileRegion(content_fd, *piece) if isinstance(piece, tuple) else piece for piece in drawn]
    expected = b"".join(
        CONTENT[piece[0] : piece[0] + piece[1]] if isinstance(piece, tuple) else bytes(piece) for piece in drawn
    )
    send = NetworkSend(pieces)
    transport = ChunkTransport(takes=takes)
    assert send.size == len(expected)
    written = 0
    for _ in range(len(takes) + 1):
        part = send.write_to(transport)
        written += part
        assert len(transport.sent) == written == send.size - send.remaining
        if not send.remaining:
            break
    transport.takes = [1 << 20] * 30
    while send.remaining:
        assert send.write_to(transport) > 0
    assert transport.sent == expected


def test_small_pieces_go_out_in_one_call() -> None:
    transport = ChunkTransport(takes=[1000])
    send = NetworkSend([b"head", memoryview(b"er"), bytearray(b"body")])
    assert send.write_to(transport) == 10
    assert not send.remaining
    assert transport.takes == []


def test_many_large_pieces_go_out_in_few_calls_within_the_limit_of_the_system() -> None:
    calls: list[int] = []
    transport = ChunkTransport(takes=[1 << 22] * 10)
    plain = transport.sendmsg

    def sendmsg(buffers: list[Any]) -> int:
        calls.append(len(buffers))
        return plain(buffers)

    transport.sendmsg = sendmsg
    send = NetworkSend([b"x" * 2000] * 1200)
    send.write_to(transport)
    assert not send.remaining
    assert calls == [512, 512, 176]


def test_small_pieces_between_large_ones_are_joined() -> None:
    calls: list[list[bytes]] = []
    transport = ChunkTransport(takes=[1 << 22] * 10)
    plain = transport.sendmsg

    def sendmsg(buffers: list[Any]) -> int:
        calls.append([bytes(buffer) for buffer in buffers])
        return plain(buffers)

    transport.sendmsg = sendmsg
    records = bytearray(b"r" * 70_000)
    send = NetworkSend([b"length", b"header", b"", records, b"a", b"b", records, b"end"])
    records[:4] = b"late"  # large pieces are not copied
    send.write_to(transport)
    assert not send.remaining
    assert calls == [[b"lengthheader", bytes(records), b"ab", bytes(records), b"end"]]


def calls_of(transport: ChunkTransport) -> list[tuple[str, int]]:
    """From now on: which methods of the transport are called, and how much it takes each time."""
    calls: list[tuple[str, int]] = []

    def noted(name: str) -> Any:
        plain = getattr(transport, name)

        def call(*arguments: Any) -> int:
            taken: int = plain(*arguments)
            calls.append((name, taken))
            return taken

        return call

    for name in ("send", "send_more", "sendmsg", "send_file"):
        setattr(transport, name, noted(name))
    return calls


def test_a_small_part_of_a_file_goes_out_in_one_call_with_what_is_around_it(content_fd: int) -> None:
    transport = ChunkTransport(takes=[1 << 20] * 9)
    calls = calls_of(transport)
    send = NetworkSend([b"head", b"er", FileRegion(content_fd, 3, 500), b"tail", FileRegion(content_fd, 0, 10)])
    send.write_to(transport)
    assert calls == [("send", send.size)]
    assert transport.sent == b"header" + CONTENT[3:503] + b"tail" + CONTENT[:10]


def test_the_head_of_a_large_part_of_a_file_is_not_sent_off_alone(tmp_path: Path) -> None:
    content = os.urandom(70_000)
    (tmp_path / "f").write_bytes(content)
    with (tmp_path / "f").open("rb") as file:
        region = FileRegion(file.fileno(), 0, 70_000)
        transport = ChunkTransport(takes=[1 << 20] * 9)
        calls = calls_of(transport)
        NetworkSend([b"he", b"ad", region, b"mid", b"dle", region, b"e", b"nd"]).write_to(transport)
    assert calls == [("send_more", 4), ("send_file", 70_000), ("send_more", 6), ("send_file", 70_000), ("send", 3)]
    assert transport.sent == b"head" + content + b"middle" + content + b"end"


def test_a_socket_that_took_a_part_is_full_and_is_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(70_000))
    with (tmp_path / "f").open("rb") as file:
        transport = ChunkTransport(takes=[1 << 20, 100, 1 << 20, 2, 1 << 20])
        calls = calls_of(transport)
        send = NetworkSend([b"head", FileRegion(file.fileno(), 0, 70_000), b"tail"])
        assert [send.write_to(transport) for _ in range(3)] == [104, 69_902, 2]
    assert calls == [("send_more", 4), ("send_file", 100), ("send_file", 69_900), ("send", 2), ("send", 2)]
    assert not send.remaining


def test_a_file_that_shrank_ends_the_send_with_an_error_instead_of_a_loop(content_fd: int) -> None:
    transport = ChunkTransport(takes=[1 << 20] * 10)
    send = NetworkSend([b"head", FileRegion(content_fd, len(CONTENT) - 10, 20)])
    assert send.write_to(transport) == 14, "what is left of it"
    with pytest.raises(EOFError, match="shrank"):
        send.write_to(transport)


def test_a_full_socket_takes_nothing_and_loses_nothing() -> None:
    transport = ChunkTransport()
    send = NetworkSend([b"answer"])
    assert send.write_to(transport) == 0
    assert send.remaining == 6
    assert repr(send) == "NetworkSend(0 of 6 bytes sent)"


def test_an_empty_message_is_complete_at_once() -> None:
    send = NetworkSend([b""])
    send.write_to(ChunkTransport())
    assert not send.remaining


def test_a_region_is_as_long_as_it_says() -> None:
    region = FileRegion(os.open(os.devnull, os.O_RDONLY), 7, 30)
    try:
        assert len(region) == 30
        assert f"position={region.position}, count=30" in repr(region)
    finally:
        os.close(region.fd)
