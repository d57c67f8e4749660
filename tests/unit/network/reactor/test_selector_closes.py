"""How connections end: bad lengths, peers that vanish, idleness, failed authentication, requests that are left."""

from __future__ import annotations

import logging
import socket
import struct
from typing import Any

import pytest

from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.channel import Authenticator, ChannelState, KafkaChannel
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.reactor.selector import ENDED_PER_POLL, CloseMode
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from unit.network.reactor.selector_bench import PART_MS, bench, framed

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
            assert b.poll(PART_MS) == []
        client.reset() if rude else client.close()
        assert b.poll_until_lost() == [("c", ChannelState.READY)]
        assert channel.transport.socket.fileno() == -1
        assert channel.error is not None
        assert (b.selector.channels, b.selector.closing_channels) == ({}, {})


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("reads", [True, False], ids=["all_was_sent", "responses_are_unread"])
def test_one_poll_closes_only_some_of_many_lost_connections(reads: bool) -> None:
    """A request that arrives while hundreds of clients leave is handed out before the last of them is closed."""
    with bench() as b:
        count = 5 * ENDED_PER_POLL
        leaving = []
        for number in range(count):
            channel, client = b.connect(f"leaving-{number}", buffers=None if reads else 4096)
            leaving.append(client)
            if not reads:
                b.selector.mute(channel)
                assert not b.selector.send(channel, NetworkSend([bytes(1 << 20)])), "part of it waits for room"
        _, good = b.connect("good")
        for client in leaving:
            client.close()
        lost: list[str] = []
        sent = received = 0
        for _ in range(1000):
            if sent == received:
                good.send(framed(b"meanwhile"))
                sent += 1
            requests = b.poll(100)
            assert len(b.selector.disconnected) <= ENDED_PER_POLL
            lost += [channel.id for channel, _ in b.selector.disconnected]
            received += len(requests)
            if len(lost) == count:
                break
        assert sorted(lost) == sorted(f"leaving-{number}" for number in range(count))
        assert received > 1
        assert list(b.selector.channels) == ["good"]
        assert b.poll(0) == []
        assert b.poller.timeouts[-1] == 0


def test_a_channel_that_waits_to_be_closed_may_be_closed_by_its_owner() -> None:
    with bench() as b:
        names = [str(number) for number in range(3 * ENDED_PER_POLL)]
        connected = [b.connect(name) for name in names]
        for _, client in connected:
            client.close()
        b.poll(100)
        waiting = list(b.selector.channels.values())
        assert waiting
        for channel in waiting:
            b.selector.close(channel, CloseMode.DISCARD_NO_NOTIFY)
        b.poll(0)
        b.poll(0)
        assert b.selector.channels == {}
        assert b.selector.stats.connections_closed == len(names)


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
def test_getting_a_response_counts_as_activity() -> None:
    """A long poll: the request came a while ago, its response is just out, and the client has not asked again yet."""
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
def test_a_response_for_a_channel_that_is_lost_ends_it() -> None:
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


class InterruptedAuthenticator:
    """Reads the first frame, and finds that its response cannot be sent."""

    complete = False
    principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None:
        if channel.read() is not None:
            raise ConnectionResetError("the peer is gone")


@pytest.mark.mechanism("N21", "A04")
def test_a_lost_peer_that_has_not_authenticated_gets_no_request_handled() -> None:
    """Otherwise a client could send a request behind its first frame, reset the connection, and need no password."""

    def interrupted(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
        return PlaintextTransportLayer(sock), InterruptedAuthenticator()

    with bench(channel_factory=interrupted) as b:
        _, client = b.connect()
        client.send(framed(b"versions", b"create a topic"))
        assert b.poll() == []
        assert [(channel.id, state) for channel, state in b.selector.disconnected] == [("c", ChannelState.AUTHENTICATE)]
        for _ in range(3):
            assert b.poll(0) == []
        assert (b.selector.channels, b.selector.closing_channels, b.selector.reactor.buffered) == ({}, {}, {})
        client.await_close()
