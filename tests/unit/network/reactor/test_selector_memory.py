"""The reactor with a bounded memory pool: who waits, who goes on, and what comes back."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from barnabas._kernels.channel_state import READ_PER_TURN
from barnabas.common.clock import MockClock
from barnabas.network.reactor.channel import ANONYMOUS, Authenticator, ChannelState
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.reactor.poller import READ
from barnabas.network.reactor.selector import Selector
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from network_fixtures import nothing_left_behind
from unit.network.reactor.selector_bench import PART_MS, Bench, CountingPoller, bench, framed

# ---------------------------------------------------------------------------------------------------- N07


@pytest.mark.mechanism("N07")
def test_an_exhausted_pool_stops_the_reading_until_memory_is_back() -> None:
    pool = SimpleMemoryPool(10, 10)
    with bench(memory_pool=pool) as b:
        first, first_client = b.connect("first")
        second, second_client = b.connect("second")
        first_client.send(framed(b"0123456789"))
        assert b.poll() == [("first", b"0123456789")]
        b.selector.request_received(first)
        second_client.send(framed(b"abc"))
        assert b.poll() == []
        assert (second.out_of_memory, second.events) == (True, 0), "not watched, or the loop would spin"
        for _ in range(3):
            assert b.poll(0) == []
            assert b.poller.found[-1] == []
        pool.release(10)
        assert b.poll() == [("second", b"abc")]
        assert (second.out_of_memory, second.events) == (False, READ)
        pool.release(3)
        assert pool.available == 10
        b.answer(first)


@pytest.mark.mechanism("N07")
def test_a_channel_that_finds_no_memory_in_a_turn_that_has_read_much_is_resumed() -> None:
    """The turn has read READ_PER_TURN bytes, so the rest of large requests waits; this one also waits for memory."""
    size = 32 * 1024
    before = READ_PER_TURN // size
    pool = SimpleMemoryPool(before * size, size)
    with bench(memory_pool=pool) as b:
        clients = [b.connect(str(number))[1] for number in range(before + 1)]
        for client in clients:
            client.send(framed(bytes(size)))
        received: list[str] = []
        while len(received) < before:
            received += [name for name, _ in b.poll()]
        for _ in range(3):
            assert b.poll(0) == []
        assert b.poller.found[-1] == [], "not watched, or the loop would spin"
        for _ in range(before):
            pool.release(size)
        ((name, _),) = b.poll()
        assert sorted([*received, name], key=int) == [str(number) for number in range(before + 1)]
        pool.release(size)


@pytest.mark.mechanism("N07")
def test_memory_that_comes_back_does_not_unmute_a_channel() -> None:
    pool = SimpleMemoryPool(10, 10)
    with bench(memory_pool=pool) as b:
        channel, client = b.connect()
        client.send(framed(b"0123456789", b"next"))
        assert b.poll() == [("c", b"0123456789")]
        b.selector.request_received(channel)
        pool.release(10)
        for _ in range(3):
            assert b.poll(0) == []
        b.answer(channel)
        assert b.poll() == [("c", b"next")]


class FixedPoller(CountingPoller):
    """Reports what is ready in the order of registration, as epoll may do for as long as it likes."""

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        return sorted(super().poll(timeout_ms))


@pytest.mark.mechanism("N07")
@pytest.mark.parametrize("short", [False, True], ids=["enough-memory", "low-memory"])
def test_the_order_of_channels_is_shuffled_when_memory_is_low(short: bool) -> None:
    """Else the first ones would take what there is again and again, and the last ones starve."""
    pool = SimpleMemoryPool(1000, 1000)
    with nothing_left_behind():
        b = Bench.__new__(Bench)
        b.clock, b.poller, b.clients = MockClock(), FixedPoller(), []
        b.selector = Selector(clock=b.clock, poller=b.poller, memory_pool=pool, seed=4)
        b._listening = socket.create_server(("127.0.0.1", 0))
        try:
            names = [f"c{number}" for number in range(8)]
            clients = [b.connect(name)[1] for name in names]
            if short:
                assert pool.try_reserve(950)
            firsts = set()
            for _ in range(12):
                for client in clients:
                    client.send(framed(b"x"))
                order: list[str] = []
                while len(order) < 8:
                    order += [name for name, _ in b.poll()]
                for _ in order:
                    pool.release(1)
                firsts.add(order[0])
            assert (len(firsts) > 3) == short
            if not short:
                assert firsts == {"c0"}
        finally:
            b.close()


@pytest.mark.mechanism("N07")
@pytest.mark.parametrize("end", ["close", "reset", "idle", "server", "oversize"])
def test_the_memory_of_a_request_that_never_completes_comes_back(end: str) -> None:
    pool = SimpleMemoryPool(1000, 1000)
    with bench(memory_pool=pool, max_receive_size=1000, connections_max_idle_ms=1000) as b:
        channel, client = b.connect()
        client.send(struct.pack(">i", 600) + b"only a part")
        assert b.poll(PART_MS) == []
        assert pool.available == 400
        if end == "close":
            client.close()
            b.poll_until_lost()
        elif end == "reset":
            client.reset()
            b.poll_until_lost()
        elif end == "idle":
            b.clock.advance(1001)
            b.poll_until_lost()
        elif end == "server":
            b.selector.close(channel)
        else:
            client.send(bytes(600 - 11), b"\x7f\xff\xff\xff")
            assert len(b.poll()[0][1]) == 600
            pool.release(600)
            b.poll_until_lost()
        assert pool.available == 1000
        assert b.selector.channels == {}


class LeftoverTransport(PlaintextTransportLayer):
    """Keeps bytes inside, as TLS does: they have left the socket, and no poller sees them."""

    __slots__ = ("has_bytes_buffered", "kept")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.kept = bytearray()
        self.has_bytes_buffered = False
        plain = sock.recv

        def recv(size: int) -> bytes:
            if not self.kept:
                self.kept += plain(1 << 16)
            part = bytes(self.kept[:size])
            del self.kept[:size]
            self.has_bytes_buffered = bool(self.kept)
            return part

        def recv_into(buffer: Any) -> int:
            part = recv(len(buffer))
            buffer[: len(part)] = part
            return len(part)

        self.recv = recv
        self.recv_into = recv_into


def leftover(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
    return LeftoverTransport(sock), ANONYMOUS


@pytest.mark.mechanism("N08")
def test_bytes_inside_the_transport_are_read_without_the_socket_being_ready() -> None:
    pool = SimpleMemoryPool(1000, 1000)
    with bench(memory_pool=pool, channel_factory=leftover) as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2", b"3"))
        for expected in (b"1", b"2", b"3"):
            assert b.poll() == [("c", expected)]
            b.selector.request_received(channel)
            b.answer(channel)


@pytest.mark.mechanism("N21")
def test_a_lost_channel_that_had_to_wait_for_memory_is_read_on_when_there_is_some() -> None:
    pool = SimpleMemoryPool(10, 10)
    with bench(memory_pool=pool, channel_factory=leftover, connections_max_idle_ms=1000) as b:
        channel, client = b.connect()
        client.send(framed(b"0123456789", b"next"))
        assert b.poll() == [("c", b"0123456789")]
        b.selector.request_received(channel)
        b.clock.advance(1001)
        b.poll(0)
        assert channel.closing
        b.selector.response_sent(channel)
        assert b.poll(0) == []
        assert channel.out_of_memory
        pool.release(10)
        assert b.poll(0) == [("c", b"next")]
        b.selector.request_received(channel)
        pool.release(4)
        b.selector.response_sent(channel)
        assert b.poll_until_lost() == [("c", ChannelState.EXPIRED)]
