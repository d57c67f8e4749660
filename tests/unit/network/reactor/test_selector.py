"""The reactor: one receive per channel and poll, none from a muted channel, wake-ups, both ends of connections."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels.channel_state import MAX_UNPOLLED
from barnabas.network.reactor.channel import ChannelState
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.reactor.poller import READ
from barnabas.network.reactor.send import NetworkSend
from network_fixtures import WAIT_S, nothing_left_behind, tcp_pair
from unit.network.reactor.selector_bench import WAIT_MS, Bench, bench, framed

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
def test_a_channel_that_was_read_ahead_is_not_read_again_because_its_socket_is_readable() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2", b"3"))
        assert b.poll() == [("c", b"1")]
        client.send(framed(b"4"))
        assert select.select([channel.fd], [], [], WAIT_S)[0]
        for expected in (b"2", b"3", b"4"):
            assert b.poll() == [("c", expected)]


@pytest.mark.mechanism("N08")
def test_requests_that_were_read_ahead_are_not_waited_for() -> None:
    with bench() as b:
        _, client = b.connect()
        client.send(framed(b"1", b"2", b"3"))
        received = [request for _ in range(3) for request in b.poll()]
        assert received == [("c", b"1"), ("c", b"2"), ("c", b"3")]
        assert b.poller.timeouts == [WAIT_MS]


@pytest.mark.mechanism("N08")
def test_requests_that_were_read_ahead_delay_the_other_channels_by_a_few_requests() -> None:
    with bench() as b:
        _, client = b.connect()
        _, neighbour = b.connect("d")
        client.send(framed(*(b"%d" % number for number in range(20))))
        assert b.poll() == [("c", b"0")]
        neighbour.send(framed(b"x"))
        received = [request for _ in range(MAX_UNPOLLED + 1) for request in b.poll()]
        assert received == [("c", b"%d" % number) for number in range(1, MAX_UNPOLLED + 2)] + [("d", b"x")]
        assert b.poller.timeouts == [WAIT_MS, 0]


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
def test_a_client_that_waits_for_its_responses_is_never_taken_out_of_the_poller() -> None:
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
def test_a_client_that_does_not_wait_for_its_responses_is_read_without_asking_the_poller() -> None:
    """It is taken out once. From then on a read follows every response, and it is put back when that finds nothing."""
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"0"))
        b.poll()
        b.selector.request_received(channel)
        client.send(framed(b"1"))
        b.poll()
        for number in range(1, 5):
            assert channel.events == 0
            b.answer(channel)
            assert b.poll() == [("c", b"%d" % number)]
            assert b.poller.timeouts.count(WAIT_MS) == 2, "the poller is not asked to wait"
            b.selector.request_received(channel)
            client.send(framed(b"%d" % (number + 1)))
        b.answer(channel)
        assert b.poll() == [("c", b"5")]
        b.selector.request_received(channel)
        b.answer(channel)
        assert b.poll(0) == []
        assert channel.events == READ
        client.send(framed(b"6"))
        assert b.poll() == [("c", b"6")]


class Handled:
    """A request as the selector sees it."""

    connection_id = "c"
    response_dequeue_time_ns = 0

    def complete(self, network_thread_time_ns: int, response: object) -> None: ...


@pytest.mark.mechanism("N10")
@pytest.mark.skipif(not hasattr(socket, "MSG_MORE"), reason="the system sends each response at once")
def test_a_response_that_waits_for_the_next_one_leaves_with_the_next_poll() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        assert b.poll() == [("c", b"1")]
        b.selector.request_received(channel)
        b.selector.respond(NetworkSend([framed(b"one")], Handled()))
        assert client.is_silent
        assert b.poll() == [("c", b"2")], "taken without asking the poller"
        assert client.is_silent
        b.selector.request_received(channel)
        b.poll(0)
        assert client.socket.recv(100) == framed(b"one"), "the second request takes long"
        b.selector.respond(NetworkSend([framed(b"two")], Handled()))
        assert client.socket.recv(100) == framed(b"two")


@pytest.mark.mechanism("N10")
def test_a_response_that_waits_for_the_next_one_leaves_before_the_connection_is_closed() -> None:
    """The next request may be one that closes the connection: with acks=0 that is how a client learns of an error."""
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        assert b.poll() == [("c", b"1")]
        b.selector.request_received(channel)
        b.selector.respond(NetworkSend([framed(b"one")], Handled()))
        client.send(b"a part that was not read: the socket is reset when it is closed")
        b.selector.close(channel)
        assert client.socket.recv(100) == framed(b"one")
        assert not b.selector.reactor.held


@pytest.mark.mechanism("N08")
def test_a_channel_that_is_not_muted_goes_on_after_the_last_request_that_was_read_ahead() -> None:
    """As in a client, whose channels are muted only at times."""
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        assert b.poll() == [("c", b"1")]
        b.selector.mute(channel)
        client.send(framed(b"3"))
        assert b.poll() == []
        assert channel.events == 0
        b.selector.unmute(channel)
        assert b.poll() == [("c", b"2")]
        assert b.poll() == [("c", b"3")]


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


# ---------------------------------------------------------------------------------------------------- parts


def before_each_wait(b: Bench, *steps: Callable[[], object]) -> None:
    """Has these done one by one, each before the poller waits once more."""
    wait, left = b.selector.reactor.wait, list(steps)

    def stepping(timeout_ms: float) -> list[tuple[int, int]]:
        if left:
            left.pop(0)()
        return wait(timeout_ms)

    b.selector.reactor.wait = stepping


REQUEST = framed(bytes(range(250)) * 1_000)
"""Not so large that it would be received in large pieces."""


@pytest.mark.mechanism("N06")
def test_a_poll_goes_on_while_a_request_arrives_in_parts() -> None:
    with bench() as b:
        _, client = b.connect()
        tick = partial(b.clock.advance, 100)
        sends = [partial(client.send, REQUEST[at : at + 10_000]) for at in range(0, 30_000, 10_000)]
        before_each_wait(b, sends[0], lambda: (sends[1](), tick()), sends[2], partial(client.send, REQUEST[30_000:]))
        assert b.poll() == [("c", REQUEST[4:])]
        assert b.poller.timeouts[0] == WAIT_MS
        assert set(b.poller.timeouts[2:]) == {WAIT_MS - 100}, "it waits for what is left of its time"


@pytest.mark.mechanism("N10")
def test_a_poll_goes_on_while_a_message_goes_out_in_parts() -> None:
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        message = REQUEST[:300_000]
        send = NetworkSend([message])
        assert not b.selector.send(channel, send)
        got = bytearray()
        before_each_wait(b, *[lambda: got.extend(client.socket.recv(1 << 20))] * 1_000)
        b.poll()
        assert b.selector.completed_sends == [(channel, send)]
        assert len(b.poller.timeouts) > 3
        while len(got) < len(message):
            got += client.socket.recv(1 << 20)
        assert got == message


@pytest.mark.mechanism("N06")
def test_a_poll_with_no_time_left_does_not_go_on() -> None:
    with bench() as b:
        _, client = b.connect()
        client.send(REQUEST[:10_000])
        assert select.select([b.selector.channels["c"].fd], [], [], WAIT_S)[0]
        assert b.poll(0) == []
        assert b.poller.timeouts == [0]

        def late() -> None:
            client.send(REQUEST[10_000:20_000])
            b.clock.advance(50)

        before_each_wait(b, late)
        assert b.poll(50) == []
        assert b.poller.timeouts == [0, 50]


@pytest.mark.mechanism("N05")
def test_a_poll_that_is_woken_does_not_go_on() -> None:
    with bench() as b:
        channel, client = b.connect()
        before_each_wait(b, partial(client.send, REQUEST[:10_000]), b.selector.wakeup)
        assert b.poll() == []
        assert len(b.poller.timeouts) == 2
        client.send(REQUEST[10_000:20_000])
        assert select.select([channel.fd], [], [], WAIT_S)[0]
        b.selector.wakeup()
        assert b.poll() == []
        assert len(b.poller.timeouts) == 3, "both at once"


@pytest.mark.mechanism("N06")
def test_what_others_send_ends_a_poll_that_goes_on() -> None:
    with bench() as b:
        _, client = b.connect()
        _, other = b.connect("d")
        before_each_wait(b, partial(client.send, REQUEST[:10_000]), partial(other.send, framed(b"x")))
        assert b.poll() == [("d", b"x")]
        before_each_wait(b, partial(client.send, REQUEST[10_000:20_000]), other.close)
        assert b.poll() == []
        assert [channel.id for channel, _ in b.selector.disconnected] == ["d"]


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
