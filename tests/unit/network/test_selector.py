"""The reactor: one receive per channel and poll, none from a muted channel, one channel's trouble is its own."""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError
from barnabas.network.channel import ANONYMOUS, Authenticator, ChannelState, KafkaChannel
from barnabas.network.memory_pool import SimpleMemoryPool
from barnabas.network.mute import ChannelMuteEvent
from barnabas.network.poller import READ, WRITE, Poller, make_poller
from barnabas.network.selector import CloseMode, Selector
from barnabas.network.send import NetworkSend
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from network_fixtures import WAIT_S, Client, nothing_left_behind, tcp_pair

WAIT_MS = WAIT_S * 1000


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


class CountingPoller:
    """Remembers how long it was told to wait and what it found."""

    def __init__(self) -> None:
        self._poller: Poller = make_poller()
        self.timeouts: list[float] = []
        self.found: list[list[tuple[int, int]]] = []
        self.register = self._poller.register
        self.modify = self._poller.modify
        self.unregister = self._poller.unregister
        self.close = self._poller.close

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        self.timeouts.append(timeout_ms)
        self.found.append(self._poller.poll(timeout_ms))
        return self.found[-1]


class Bench:
    """A selector and its connections."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = MockClock()
        self.poller = CountingPoller()
        self.selector = Selector(clock=self.clock, poller=self.poller, **arguments)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.clients: list[Client] = []

    def connect(self, name: str = "c", *, buffers: int | None = None) -> tuple[KafkaChannel, Client]:
        client = Client.connect(self._listening.getsockname()[1], receive_buffer=buffers)
        self.clients.append(client)
        accepted, _ = self._listening.accept()
        accepted.setblocking(False)
        if buffers is not None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
        return self.selector.register(name, accepted), client

    def poll(self, timeout_ms: float = WAIT_MS) -> list[tuple[str, bytes]]:
        self.selector.poll(timeout_ms)
        return [(channel.id, bytes(payload)) for channel, payload in self.selector.completed_receives]

    def poll_until_lost(self) -> list[tuple[str, ChannelState]]:
        for _ in range(100):
            self.poll(100)
            if self.selector.disconnected:
                return [(channel.id, state) for channel, state in self.selector.disconnected]
        raise AssertionError("no connection was lost")

    def answer(self, channel: KafkaChannel, payload: bytes = b"") -> None:
        if self.selector.send(channel, NetworkSend([framed(payload)])):
            self.selector.response_sent(channel)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._listening.close()
        self.selector.close_all()


@contextmanager
def bench(**arguments: Any) -> Iterator[Bench]:
    with nothing_left_behind():
        made = Bench(**arguments)
        try:
            yield made
        finally:
            made.close()


# ---------------------------------------------------------------------------------------------------- N08


@pytest.mark.mechanism("N08")
def test_at_most_one_request_of_a_channel_comes_out_of_one_poll() -> None:
    with bench() as b:
        _, client = b.connect()
        _, other = b.connect("d")
        client.send(framed(b"1", b"2", b"3"))
        assert b.poll() == [("c", b"1")]
        other.send(framed(b"x"))
        seen = b.poll()
        while len(seen) < 3:
            more = b.poll()
            assert len({name for name, _ in more}) == len(more)
            seen += more
        assert sorted(seen) == [("c", b"2"), ("c", b"3"), ("d", b"x")]


@pytest.mark.mechanism("N08")
def test_requests_that_were_read_ahead_are_not_waited_for() -> None:
    with bench() as b:
        _, client = b.connect()
        client.send(framed(b"1", b"2", b"3"))
        b.poll()
        b.poll()
        b.poll()
        assert b.poller.timeouts == [WAIT_MS, 0, 0]


@pytest.mark.mechanism("N08")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_nothing_comes_from_a_channel_whose_request_is_being_handled(bounded: bool) -> None:
    settings = {"memory_pool": SimpleMemoryPool(1000, 1000)} if bounded else {}
    with bench(**settings) as b:
        channel, client = b.connect()
        other, neighbour = b.connect("d")
        client.send(framed(b"1", b"2"))
        neighbour.send(framed(b"x"))
        received: list[tuple[str, bytes]] = []
        while len(received) < 2:
            received += b.poll()
        assert sorted(received) == [("c", b"1"), ("d", b"x")]
        b.selector.request_received(channel)
        client.send(framed(b"3"))
        neighbour.send(framed(b"y"))
        assert b.poll() == [("d", b"y")]
        for _ in range(3):
            assert b.poll(0) == []
        b.answer(channel, b"answer")
        assert b.poll() == [("c", b"2")]
        assert b.poll() == [("c", b"3")]
        assert client.socket.recv(100) == framed(b"answer")
        assert not other.is_muted


@pytest.mark.mechanism("N08")
def test_a_muted_channel_with_data_does_not_keep_the_loop_busy() -> None:
    """A level-triggered poller would report it for as long as it is not read."""
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1"))
        b.poll()
        b.selector.request_received(channel)
        client.send(framed(b"2"))
        assert b.poll() == []
        assert b.poller.found[-1], "it was found readable"
        assert channel.events == 0
        b.poll(0)
        assert b.poller.found[-1] == []
        b.answer(channel)
        assert b.poll() == [("c", b"2")]


@pytest.mark.mechanism("N08")
def test_a_client_that_waits_for_its_answers_is_never_taken_out_of_the_poller() -> None:
    with bench() as b:
        channel, client = b.connect()
        for number in range(5):
            client.send(framed(b"%d" % number))
            assert b.poll() == [("c", b"%d" % number)]
            b.selector.request_received(channel)
            assert channel.events == READ
            b.answer(channel)
            assert channel.events == READ


@pytest.mark.mechanism("N08")
def test_a_request_from_a_muted_channel_is_a_bug_that_is_noticed() -> None:
    with bench() as b:
        channel, _ = b.connect()
        b.selector.request_received(channel)
        with pytest.raises(RuntimeError, match="MUTED_AND_RESPONSE_PENDING"):
            b.selector.request_received(channel)


@pytest.mark.mechanism("N08")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_request_comes_out_once_in_order_and_alone(bounded: bool, data: st.DataObject) -> None:
    """Any pipeline, sent in any pieces, handled at any time: never two requests of one connection at once."""
    names = "abc"
    sizes = {name: data.draw(st.lists(st.sampled_from([0, 1, 5, 200, 3000]), max_size=5), name) for name in names}
    pool = SimpleMemoryPool(4000, 3004) if bounded else None
    with bench(**({"memory_pool": pool, "seed": 1} if pool else {})) as b:
        connections = {name: b.connect(name) for name in names}
        payloads = {
            name: [struct.pack(">i", number) + bytes(size) for number, size in enumerate(sizes[name])] for name in names
        }
        unsent = {name: framed(*payloads[name]) for name in names}
        received: dict[str, list[bytes]] = {name: [] for name in names}
        in_flight: set[str] = set()
        choose = random.Random(data.draw(st.integers(0, 2**32), "seed"))
        for step in range(5000):
            waiting = [name for name in names if unsent[name]]
            if not waiting and not in_flight and all(received[name] == payloads[name] for name in names):
                break
            action = choose.choice(("send", "poll", "answer"))
            if action == "send" and waiting:
                name = choose.choice(waiting)
                count = choose.choice((1, 3, 7, 500, 1 << 20))
                connections[name][1].send(unsent[name][:count])
                unsent[name] = unsent[name][count:]
            elif action == "answer" and in_flight:
                name = choose.choice(sorted(in_flight))
                in_flight.discard(name)
                if pool:
                    pool.release(len(received[name][-1]))
                b.answer(connections[name][0])
            else:
                for name, payload in b.poll(0 if step < 4000 else 5):
                    assert name not in in_flight
                    in_flight.add(name)
                    received[name].append(payload)
                    b.selector.request_received(connections[name][0])
                    assert received[name] == payloads[name][: len(received[name])]
        assert received == payloads
        if pool:
            assert pool.available == pool.size


# ---------------------------------------------------------------------------------------------------- N06


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_cannot_be_ends_that_connection_only(size: int, caplog: pytest.LogCaptureFixture) -> None:
    with bench(max_receive_size=100) as b, caplog.at_level(logging.WARNING):
        _, bad = b.connect("bad")
        _, good = b.connect("good")
        bad.send(struct.pack(">i", size) + b"whatever")
        assert b.poll_until_lost() == [("bad", ChannelState.READY)]
        bad.await_close()
        good.send(framed(b"x" * 100))
        assert b.poll() == [("good", b"x" * 100)]
        assert b.selector.stats.invalid_receives == 1
        assert list(b.selector.channels) == ["good"]
    assert [record.message for record in caplog.records] == [
        f"Closing connection bad: a request of {size} bytes from bad; allowed are 0 to 100"
    ]


@pytest.mark.mechanism("N06")
def test_requests_before_a_bad_one_are_handed_out() -> None:
    with bench(max_receive_size=100) as b:
        _, client = b.connect()
        client.send(framed(b"good"), b"\xff\xff\xff\xff")
        assert b.poll() == [("c", b"good")]
        assert b.poll_until_lost() == [("c", ChannelState.READY)]


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize(
    "begun", [b"", b"\0", b"\0\0\0\5", b"\0\0\0\5ab"], ids=["nothing", "a-length", "no-payload", "half"]
)
@pytest.mark.parametrize("rude", [False, True], ids=["close", "reset"])
def test_a_peer_that_vanishes_in_the_middle_of_a_request_is_lost(begun: bytes, rude: bool) -> None:
    with bench() as b:
        channel, client = b.connect()
        if begun:
            client.send(begun)
            assert b.poll() == []
        client.reset() if rude else client.close()
        assert b.poll_until_lost() == [("c", ChannelState.READY)]
        assert channel.transport.socket.fileno() == -1
        assert channel.error is not None
        assert (b.selector.channels, b.selector.closing_channels) == ({}, {})


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
        assert b.poll() == []
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


# ---------------------------------------------------------------------------------------------------- N10


@pytest.mark.mechanism("N10")
def test_an_answer_that_fits_goes_out_at_once() -> None:
    with bench() as b:
        channel, client = b.connect()
        assert b.selector.send(channel, NetworkSend([b"\0\0\0\4answ"]))
        assert client.socket.recv(100) == b"\0\0\0\4answ"
        assert (channel.events, b.selector.stats.bytes_sent) == (READ, 8)


@pytest.mark.mechanism("N10")
def test_an_answer_that_does_not_fit_goes_out_bit_by_bit() -> None:
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        answer = bytes(range(256)) * 1_200
        send = NetworkSend([answer])
        assert not b.selector.send(channel, send)
        assert channel.events & WRITE
        with pytest.raises(RuntimeError, match="still sending"):
            b.selector.send(channel, NetworkSend([b"second"]))
        got = bytearray()
        while len(got) < len(answer):
            got += client.socket.recv(1 << 20)
            b.poll(0)
        while not send.completed:
            b.poll(0)
        assert got == answer
        assert not channel.events & WRITE
        assert channel.send is None
        assert b.selector.stats.bytes_sent == len(answer)


@pytest.mark.mechanism("N10")
def test_a_finished_send_is_reported_once() -> None:
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        send = NetworkSend([bytes(300_000)])
        b.selector.send(channel, send)
        reported: list[tuple[KafkaChannel, NetworkSend]] = []
        received = 0
        while received < send.size or not reported:
            if received < send.size:
                received += len(client.socket.recv(1 << 20))
            b.poll(10)
            reported += b.selector.completed_sends
        assert reported == [(channel, send)]
        b.poll(0)
        assert b.selector.completed_sends == []


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("muted", [False, True], ids=["client", "server"])
def test_a_peer_that_vanishes_while_its_answer_goes_out_is_lost_for_good(muted: bool) -> None:
    """Also if its request is still counted as being handled: nothing would ever come to end that."""
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        client.send(framed(b"1", b"2"))
        b.poll()
        if muted:
            b.selector.request_received(channel)
        send = NetworkSend([bytes(300_000)])
        assert not b.selector.send(channel, send)
        client.reset()
        assert b.poll_until_lost() == [("c", ChannelState.FAILED_SEND)]
        assert channel.send is send, "the owner sees which answer was lost"
        assert isinstance(channel.error, OSError)
        assert (b.selector.channels, b.selector.closing_channels) == ({}, {})


@pytest.mark.mechanism("N10")
def test_an_answer_to_a_peer_that_is_gone_loses_the_connection() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1"))
        b.poll()
        b.selector.request_received(channel)
        client.reset()
        send = NetworkSend([b"answer"])
        for _ in range(100):
            if not b.selector.send(channel, NetworkSend([b"answer"])):
                break
        assert [(lost.id, state) for lost, state in _lost(b)] == [("c", ChannelState.FAILED_SEND)]
        assert not send.completed


def _lost(b: Bench) -> list[tuple[KafkaChannel, ChannelState]]:
    b.poll(0)
    return b.selector.disconnected


@pytest.mark.mechanism("N10")
def test_a_throttled_channel_is_read_on_after_its_throttle() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        b.poll()
        b.selector.request_received(channel)
        channel.handle_mute_event(ChannelMuteEvent.THROTTLE_STARTED)
        b.answer(channel, b"answer")
        assert client.socket.recv(100) == framed(b"answer"), "the answer does not wait"
        for _ in range(3):
            assert b.poll(0) == []
        channel.handle_mute_event(ChannelMuteEvent.THROTTLE_ENDED)
        b.selector.unmute(channel)
        assert b.poll() == [("c", b"2")]


# ---------------------------------------------------------------------------------------------------- N18


@pytest.mark.mechanism("N18")
def test_idle_connections_are_closed_least_recently_active_first() -> None:
    with bench(connections_max_idle_ms=1000) as b:
        clients = {name: b.connect(name)[1] for name in "abc"}
        for name in "bca":
            b.clock.advance(10)
            clients[name].send(framed(b"x"))
            assert b.poll() == [(name, b"x")]
        b.clock.advance(980)
        b.poll(0)
        assert len(b.selector.channels) == 3
        b.clock.advance(100)
        lost = [b.poll_until_lost() for _ in range(3)]
        assert lost == [[(name, ChannelState.EXPIRED)] for name in "bca"]
        assert b.selector.stats.idle_closed == 3
        for client in clients.values():
            client.await_close()


@pytest.mark.mechanism("N18")
def test_a_connection_that_is_active_is_never_closed() -> None:
    with bench(connections_max_idle_ms=1000) as b:
        _, quiet = b.connect("quiet")
        channel, client = b.connect("active")
        for _ in range(10):
            b.clock.advance(600)
            client.send(framed(b"x"))
            assert ("active", b"x") in b.poll()
        assert list(b.selector.channels) == ["active"]
        assert channel.state is ChannelState.READY
        quiet.await_close()


@pytest.mark.mechanism("N18")
def test_getting_an_answer_counts_as_activity() -> None:
    """A long poll: the request came a while ago, its answer is just out, and the client has not asked again yet."""
    with bench(connections_max_idle_ms=1000) as b:
        channel, client = b.connect()
        client.send(framed(b"wait for data"))
        b.poll()
        b.selector.request_received(channel)
        b.clock.advance(900)
        b.poll(0)
        b.answer(channel, b"data")
        b.clock.advance(900)
        b.poll(0)
        assert list(b.selector.channels) == ["c"]
        b.clock.advance(200)
        assert b.poll_until_lost() == [("c", ChannelState.EXPIRED)]


@pytest.mark.mechanism("N18")
def test_connections_without_an_idle_limit_stay() -> None:
    with bench() as b:
        b.connect()
        b.clock.advance(10**9)
        b.poll(0)
        assert list(b.selector.channels) == ["c"]


class FailingAuthenticator:
    """Lets the connection say something first, and does not believe it."""

    complete = False
    principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None:
        channel.transport.recv(100)
        raise AuthenticationError("wrong password")


def failing(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
    return PlaintextTransportLayer(sock), FailingAuthenticator()


@pytest.mark.mechanism("N18")
def test_a_failed_authentication_is_closed_after_its_delay() -> None:
    with bench(channel_factory=failing, failed_authentication_delay_ms=100) as b:
        clients = []
        for name in "ab":
            channel, client = b.connect(name)
            client.send(b"password")
            b.poll()
            assert channel.state is ChannelState.AUTHENTICATION_FAILED
            clients.append(client)
            b.clock.advance(60)
        clients[1].send(b"another attempt")
        assert b.poll_until_lost() == [("a", ChannelState.AUTHENTICATION_FAILED)], "120 and 60 ms ago"
        assert b.poller.found[-1] == [], "the other one is not listened to any more"
        assert list(b.selector.channels) == ["b"]
        b.clock.advance(40)
        assert b.poll_until_lost() == [("b", ChannelState.AUTHENTICATION_FAILED)]
        assert b.selector.stats.failed_authentications == 2


@pytest.mark.mechanism("N18")
def test_the_delay_of_a_failed_authentication_is_exact() -> None:
    with bench(channel_factory=failing, failed_authentication_delay_ms=100) as b:
        _, client = b.connect()
        client.send(b"password")
        b.poll()
        b.clock.advance(99)
        b.poll(0)
        assert list(b.selector.channels) == ["c"]
        assert client.is_silent
        b.clock.advance(1)
        b.poll(0)
        assert [(channel.id, state) for channel, state in b.selector.disconnected] == [
            ("c", ChannelState.AUTHENTICATION_FAILED)
        ]
        client.await_close()


@pytest.mark.mechanism("N18")
def test_without_a_delay_a_failed_authentication_is_closed_at_once() -> None:
    with bench(channel_factory=failing) as b:
        _, client = b.connect()
        client.send(b"password")
        assert b.poll_until_lost() == [("c", ChannelState.AUTHENTICATION_FAILED)]


@pytest.mark.mechanism("N18")
def test_a_connection_that_waits_for_its_delayed_close_can_be_closed_before() -> None:
    with bench(channel_factory=failing, failed_authentication_delay_ms=100) as b:
        channel, client = b.connect()
        client.send(b"password")
        b.poll()
        b.selector.close(channel)
        b.clock.advance(100)
        b.poll(0)
        assert b.selector.disconnected == []
        assert b.selector.stats.connections_closed == 1


# ---------------------------------------------------------------------------------------------------- N21


@pytest.mark.mechanism("N21")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("while_handling", [False, True], ids=["before", "while-handling"])
def test_what_a_peer_sent_before_it_closed_is_handed_out(bounded: bool, while_handling: bool) -> None:
    pool = SimpleMemoryPool(1000, 1000)
    with bench(**({"memory_pool": pool} if bounded else {})) as b:
        channel, client = b.connect()
        payloads = [b"%d" % number for number in range(5)]
        client.send(framed(*payloads))
        if not while_handling:
            client.close()
        received = []
        for number in range(5):
            ((_, payload),) = b.poll()
            received.append(payload)
            b.selector.request_received(channel)
            if bounded:
                pool.release(len(payload))
            if number == 0 and while_handling:
                client.close()
            assert b.poll(0) == []
            assert b.poll(0) == []
            assert b.selector.disconnected == []
            b.selector.response_sent(channel)
        assert received == payloads
        assert b.poll_until_lost() == [("c", ChannelState.READY)]


@pytest.mark.mechanism("N21")
def test_a_channel_that_is_lost_is_kept_until_its_requests_are_handled() -> None:
    with bench(connections_max_idle_ms=1000) as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2", b"3"))
        assert b.poll() == [("c", b"1")]
        b.selector.request_received(channel)
        b.clock.advance(1001)
        b.poll(0)
        assert b.selector.channel("c") is None
        assert b.selector.open_or_closing("c") is channel
        assert b.selector.lowest_priority_channel() is channel
        assert b.selector.disconnected == []
        b.selector.response_sent(channel)
        assert b.poll(0) == [("c", b"2")]
        b.selector.request_received(channel)
        b.selector.response_sent(channel)
        assert b.poll(0) == [("c", b"3")]
        b.selector.request_received(channel)
        b.selector.response_sent(channel)
        assert b.poll_until_lost() == [("c", ChannelState.EXPIRED)]
        assert b.selector.closing_channels == {}


@pytest.mark.mechanism("N21")
def test_an_answer_for_a_channel_that_is_lost_ends_it() -> None:
    with bench(connections_max_idle_ms=1000) as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        b.poll()
        b.selector.request_received(channel)
        b.clock.advance(1001)
        b.poll(0)
        assert not b.selector.send(channel, NetworkSend([b"answer"]))
        assert b.poll_until_lost() == [("c", ChannelState.EXPIRED)]
        client.await_close()


@pytest.mark.mechanism("N21")
@pytest.mark.parametrize("mode", [CloseMode.NOTIFY_ONLY, CloseMode.DISCARD_NO_NOTIFY])
def test_other_ways_to_close_drop_what_is_there(mode: CloseMode) -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        b.poll()
        b.selector.request_received(channel)
        b.selector.close(channel, mode)
        assert b.poll(0) == []
        assert [lost.id for lost, _ in b.selector.disconnected] == (["c"] if mode is CloseMode.NOTIFY_ONLY else [])
        client.await_close()
        assert b.selector.open_or_closing("c") is None


# ---------------------------------------------------------------------------------------------------- N05, N19


@pytest.mark.mechanism("N05")
def test_another_thread_can_end_the_wait() -> None:
    with bench() as b:
        thread = threading.Thread(target=b.selector.wakeup)
        thread.start()
        b.poll()  # would wait for as long as a test may take
        thread.join()
        b.poll(0)
        assert b.poller.found[-1] == [], "the wake-up is used up"
        for _ in range(100_000):
            b.selector.wakeup()
        b.poll()
        b.poll(0)
        assert b.poller.found[-1] == [], "and so are a hundred thousand of them"


@pytest.mark.mechanism("N19")
def test_two_connections_cannot_have_the_same_id() -> None:
    with bench() as b, tcp_pair() as (server, _):
        b.connect()
        with pytest.raises(ValueError, match="a connection c already"):
            b.selector.register("c", server)
        with pytest.raises(ValueError, match="a connection c already"):
            b.selector.connect("c", ("127.0.0.1", 1), family=socket.AF_INET, send_buffer=-1, receive_buffer=-1)
        assert len(b.selector.channels) == 1


@pytest.mark.mechanism("N05")
def test_the_connection_to_close_first_is_the_one_idle_longest() -> None:
    with bench(connections_max_idle_ms=1000) as b:
        assert b.selector.lowest_priority_channel() is None
        a, client = b.connect("a")
        b.clock.advance(1)
        other, _ = b.connect("b")
        assert b.selector.lowest_priority_channel() is a
        b.clock.advance(1)
        client.send(framed(b"x"))
        b.poll()
        assert b.selector.lowest_priority_channel() is other


# ---------------------------------------------------------------------------------------------------- as a client


@pytest.mark.mechanism("N06")
def test_the_same_selector_makes_connections() -> None:
    with bench() as b, socket.create_server(("127.0.0.1", 0)) as listening:
        b.selector.connect(
            "out", listening.getsockname(), family=socket.AF_INET, send_buffer=20_000, receive_buffer=20_000
        )
        channel = b.selector.channels["out"]
        assert not b.selector.send(channel, NetworkSend([b"early"])), "kept until the connection is there"
        while not b.selector.connected:
            b.poll()
        assert b.selector.connected == [channel]
        assert b.selector.is_channel_ready("out")
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(WAIT_S)
            while channel.send is not None:
                b.poll()
            assert peer.recv(100) == b"early"
            peer.sendall(framed(b"answer"))
            assert b.poll() == [("out", b"answer")]
        sock = channel.transport.socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert b.poll_until_lost() == [("out", ChannelState.READY)]


@pytest.mark.mechanism("N06")
def test_a_connection_that_is_refused_is_lost() -> None:
    with bench() as b:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            free = listening.getsockname()
        b.selector.connect("out", free, family=socket.AF_INET, send_buffer=-1, receive_buffer=-1)
        assert b.poll_until_lost() == [("out", ChannelState.NOT_CONNECTED)]
        assert not b.selector.is_channel_ready("out")
        assert b.selector.connected == []


@pytest.mark.mechanism("N22")
def test_closing_the_selector_closes_everything() -> None:
    with nothing_left_behind():
        b = Bench(connections_max_idle_ms=1000)
        channel, client = b.connect("kept")
        client.send(framed(b"1"))
        b.poll()
        b.selector.request_received(channel)
        b.clock.advance(1001)
        b.poll(0)
        for number in range(10):
            b.connect(str(number))
        assert repr(b.selector) == "Selector(10 open, 1 closing)"
        b.selector.close_all()
        for other in b.clients:
            other.await_close()
        b.selector.wakeup()  # nobody is waiting any more, and nobody minds
        for other in b.clients:
            other.close()
        b._listening.close()
