"""What is done for every request, in both implementations: reading whole requests, sending, muting."""

from __future__ import annotations

import importlib
import os
import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from barnabas._kernels.channel_mute import MUTED, NOT_MUTED, RESPONSE_PENDING, THROTTLED, THROTTLED_AND_RESPONSE_PENDING
from barnabas._kernels.channel_state import MAX_UNPOLLED, ChannelState, InvalidReceiveError
from barnabas._kernels.pure import reactor as pure_reactor
from barnabas.network.reactor.channel import ANONYMOUS
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.reactor.poller import READ, WRITE

IMPLEMENTATIONS: list[ModuleType] = [pure_reactor]
try:
    IMPLEMENTATIONS.append(importlib.import_module("barnabas._kernels.compiled.reactor"))
except ImportError:
    # Built without a compiler. A CI run must not lose half of these tests.
    assert os.environ.get("CI") != "true", "the compiled reactor is not built"
needs_both = pytest.mark.skipif(len(IMPLEMENTATIONS) < 2, reason="the compiled reactor is not built")


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda module: module.__name__.split(".")[-2])
def reactor(request: pytest.FixtureRequest) -> Any:
    return request.param


class Wire:
    """A transport that delivers what it is given, and takes as much as it is told to."""

    has_bytes_buffered = False
    send_whole: Any = None
    push: Any = None
    special_frame: Any = None

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.room = 1 << 30
        self.sent = b""

    def fileno(self) -> int:
        return 7

    def expect(self, count: int) -> None:
        """How much to wait for: of no concern here."""

    def recv(self, size: int) -> bytes:
        if not self.chunks:
            raise BlockingIOError
        chunk = self.chunks.pop(0)
        if len(chunk) > size:
            self.chunks.insert(0, chunk[size:])
        return chunk[:size]

    def recv_into(self, buffer: Any) -> int:
        if not self.chunks:
            raise BlockingIOError
        chunk = self.chunks.pop(0)
        taken = chunk[: len(buffer)]
        buffer[: len(taken)] = taken
        if len(chunk) > len(taken):
            self.chunks.insert(0, chunk[len(taken) :])
        return len(taken)

    def send(self, data: Any) -> int:
        if not self.room:
            raise BlockingIOError
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)


class Pipe(Wire):
    """A transport that keeps back what is sent with more to follow."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__(*chunks)
        self.kept = b""
        self.pushes = 0

    def send(self, data: Any) -> int:
        self.kept += data
        self.sent += self.kept
        self.kept = b""
        return len(data)

    def send_more(self, data: Any) -> int:
        self.kept += data
        return len(data)

    def push(self) -> None:
        self.pushes += 1
        self.send(b"")


class Answered:
    """A request as the network layer sees it."""

    connection_id = "c"
    response_dequeue_time_ns = 80

    def __init__(self) -> None:
        self.completed: list[tuple[int, object]] = []

    def complete(self, network_thread_time_ns: int, response: object) -> None:
        self.completed.append((network_thread_time_ns, response))


def channel_of(reactor: Any, wire: Wire, max_receive_size: int = 100) -> Any:
    """A channel that is ready, and watched for reading."""
    channel = reactor.KafkaChannel("c", wire, max_receive_size, UNBOUNDED, ANONYMOUS)
    channel.state = ChannelState.READY
    channel.events = READ
    return channel


def reactor_of(reactor: Any, events: Callable[[float], list[tuple[int, int]]] = lambda _: []) -> Any:
    return reactor.Reactor(events, iter(range(100, 10_000, 10)).__next__)


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


# ---------------------------------------------------------------------------------------------------- receiving


@pytest.mark.mechanism("N06")
def test_requests_come_out_as_they_went_in_however_they_were_cut(reactor: Any) -> None:
    source = random.Random(5)
    payloads = [source.randbytes(source.choice((0, 1, 7, 100))) for _ in range(200)]
    stream, chunks = framed(*payloads), []
    while stream:
        size = source.choice((1, 3, 4, 5, 50, 400))
        chunks.append(stream[:size])
        stream = stream[size:]
    channel = channel_of(reactor, Wire(*chunks))
    total = sum(map(len, chunks))
    received = []
    while channel.transport.chunks or channel.ahead is not None:
        if (payload := channel.read()) is not None:
            received.append(bytes(payload))
    assert received == payloads
    assert channel.bytes_received == total
    assert channel.read() is None, "nothing has arrived"


@pytest.mark.mechanism("N06")
def test_what_was_read_ahead_is_handed_out_without_a_copy_and_without_reading_again(reactor: Any) -> None:
    data = framed(b"one", b"two")
    channel = channel_of(reactor, Wire(data))
    first = channel.read()
    assert channel.has_bytes_buffered
    assert first.obj is data
    assert bytes(channel.read()) == b"two"
    assert not channel.has_bytes_buffered


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(reactor: Any, size: int) -> None:
    with pytest.raises(InvalidReceiveError, match=f"a request of {size} bytes from c; allowed are 0 to 100"):
        channel_of(reactor, Wire(struct.pack(">i", size))).read()


@pytest.mark.mechanism("N06")
def test_the_end_of_the_stream_is_told(reactor: Any) -> None:
    with pytest.raises(EOFError):
        channel_of(reactor, Wire(b"")).read()


# ---------------------------------------------------------------------------------------------------- sending


@pytest.mark.mechanism("N10")
def test_a_response_that_goes_out_at_once_ends_its_request_and_unmutes_the_channel(reactor: Any) -> None:
    selector, channel, request = reactor_of(reactor), channel_of(reactor, Wire()), Answered()
    selector.channels["c"] = channel
    selector.request_received(channel)
    assert channel.mute_state is RESPONSE_PENDING
    channel.network_thread_time_ns = 5
    response = reactor.NetworkSend([b"answer"], request)
    assert selector.respond(response) == reactor.SENT
    assert (channel.transport.sent, request.completed) == (b"answer", [(5, response)])
    assert (channel.mute_state, channel.network_thread_time_ns) == (NOT_MUTED, 0)
    assert selector.stats.bytes_sent == 6


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("room", [0, 2])
def test_a_response_that_does_not_fit_waits_for_room(reactor: Any, room: int) -> None:
    selector, channel, request = reactor_of(reactor), channel_of(reactor, Wire()), Answered()
    selector.channels["c"] = channel
    selector.request_received(channel)
    channel.transport.room = room
    response = reactor.NetworkSend([b"answer"], request)
    assert selector.respond(response) == reactor.PARTLY_SENT
    assert (channel.send, response.remaining) == (response, 6 - room)
    assert (channel.mute_state, request.completed) == (RESPONSE_PENDING, [])
    channel.transport.room = 10
    response.write_to(channel.transport)
    assert (channel.transport.sent, response.remaining) == (b"answer", 0)


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("why", ["sending", "closing", "connecting"])
def test_what_cannot_be_sent_now_is_told(reactor: Any, why: str) -> None:
    selector, channel = reactor_of(reactor), channel_of(reactor, Wire())
    if why == "sending":
        channel.send = reactor.NetworkSend([b"before"])
    elif why == "closing":
        channel.closing = True
    else:
        selector.connecting.add(channel)
    response = reactor.NetworkSend([b"answer"])
    assert selector.send(channel, response) == reactor.BUSY
    assert channel.transport.sent == b""


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("error", [ConnectionResetError("gone"), EOFError("the file shrank")])
def test_a_send_that_fails_raises(reactor: Any, error: Exception) -> None:

    class Broken(Wire):
        def send(self, data: Any) -> int:
            raise error

    selector, channel, response = reactor_of(reactor), channel_of(reactor, Broken()), reactor.NetworkSend([b"answer"])
    with pytest.raises(type(error)):
        selector.send(channel, response)
    assert channel.send is None


@pytest.mark.mechanism("N10")
def test_a_response_for_a_channel_that_is_gone_is_not_sent(reactor: Any) -> None:
    assert reactor_of(reactor).respond(reactor.NetworkSend([b"answer"], Answered())) == reactor.GONE


def pipelined(reactor: Any, *payloads: bytes, cut: int = 1000) -> tuple[Any, Any]:
    """A reactor that has received the first of several requests of one channel, which came at once."""
    channel = channel_of(reactor, Pipe(framed(*payloads)[:cut]), max_receive_size=1000)
    selector = reactor_of(reactor)
    selector.channels["c"] = selector.by_fd[7] = channel
    selector.buffered[channel] = None
    selector.move(0)
    return selector, channel


def respond(reactor: Any, selector: Any, channel: Any, data: bytes) -> int:
    """Handles the received request."""
    selector.completed_receives.clear()
    selector.request_received(channel)
    outcome: int = selector.respond(reactor.NetworkSend([data], Answered()))
    return outcome


@pytest.mark.mechanism("N10")
def test_responses_to_pipelined_requests_leave_together(reactor: Any) -> None:
    selector, channel = pipelined(reactor, b"1", b"2", b"3")
    for response in (b"one", b"two"):
        assert respond(reactor, selector, channel, response) == reactor.SENT
        assert channel.transport.sent == b"", "the next request is here, and so its response soon"
        selector.move(0)
    assert respond(reactor, selector, channel, b"three") == reactor.SENT
    selector.move(0)
    assert (channel.transport.sent, channel.transport.pushes) == (b"onetwothree", 0)


@pytest.mark.mechanism("N10")
def test_a_response_does_not_wait_for_one_that_takes_long(reactor: Any) -> None:
    selector, channel = pipelined(reactor, b"1", b"2")
    respond(reactor, selector, channel, b"one")
    selector.move(0)
    selector.completed_receives.clear()
    selector.request_received(channel)  # and the handler waits for something
    selector.move(300)
    assert (channel.transport.sent, channel.transport.pushes) == (b"one", 1)
    selector.move(300)
    assert channel.transport.pushes == 1


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("beginning", [2, 4, 104])
def test_a_response_does_not_wait_for_the_rest_of_the_next_request(reactor: Any, beginning: int) -> None:
    selector, channel = pipelined(reactor, b"1", b"2" * 1000, cut=5 + beginning)
    respond(reactor, selector, channel, b"one")
    assert channel.transport.sent == b"one"


@pytest.mark.mechanism("N10")
def test_a_transport_that_keeps_nothing_back_gets_each_response(reactor: Any) -> None:
    selector, channel = pipelined(reactor, b"1", b"2")
    channel.transport.push = None
    respond(reactor, selector, channel, b"one")
    assert channel.transport.sent == b"one"


@pytest.mark.mechanism("N08")
def test_after_the_response_the_channel_goes_on_where_it_was(reactor: Any) -> None:
    selector, channel = reactor_of(reactor), channel_of(reactor, Wire(framed(b"1", b"2")))

    def answered() -> tuple[bool, bool]:
        """Whether it is read without waiting, and whether it is to be resumed."""
        selector.buffered.clear()
        channel.mute_state = RESPONSE_PENDING
        resume = selector.response_sent(channel)
        assert channel.mute_state is NOT_MUTED
        return channel in selector.buffered, resume

    assert answered() == (False, False), "the poller watches it"
    channel.read()
    assert answered() == (True, False), "the next request is there"
    channel.read()
    channel.events = 0
    assert answered() == (False, True)
    channel.events = READ
    channel.transport.has_bytes_buffered = True
    assert answered() == (False, True)
    channel.mute_state = THROTTLED_AND_RESPONSE_PENDING
    assert not selector.response_sent(channel)
    assert channel.mute_state is THROTTLED


@pytest.mark.mechanism("N08")
def test_a_request_from_a_channel_that_is_muted_is_a_bug(reactor: Any) -> None:
    channel = channel_of(reactor, Wire())
    channel.mute_state = MUTED
    with pytest.raises(RuntimeError, match="MUTED"):
        reactor_of(reactor).request_received(channel)


# ---------------------------------------------------------------------------------------------------- the loop


@pytest.mark.mechanism("N08")
def test_a_poll_takes_one_request_of_each_channel_that_is_ready(reactor: Any) -> None:
    told: list[float] = []
    requests = framed(b"1", *[b"2"] * (MAX_UNPOLLED + 1))
    buffered, watched, muted = (channel_of(reactor, Wire(requests)) for _ in range(3))

    def events(timeout_ms: float) -> list[tuple[int, int]]:
        told.append(timeout_ms)
        return [(1, READ), (2, READ), (3, READ), (9, READ)]

    selector = reactor_of(reactor, events)
    selector.by_fd.update({1: buffered, 2: watched, 3: muted})
    buffered.read()
    muted.mute_state = MUTED
    for _ in range(MAX_UNPOLLED):
        selector.buffered[buffered] = None
        selector.move(300)
        assert told == [], "the sockets are not polled"
        assert len(selector.completed_receives) == 1
        selector.completed_receives.clear()
    selector.buffered[buffered] = None
    selector.stats.io_ns = 0
    now = selector.move(300)
    assert told == [0], "what is in memory is not waited for"
    assert [(channel, bytes(payload)) for channel, payload in selector.completed_receives] == [
        (buffered, b"2"),
        (watched, b"1"),
    ]
    assert selector.attention == [(muted, reactor.HELD, None), (9, reactor.UNKNOWN, None)]
    assert [channel.last_active_ns for channel in (buffered, watched, muted)] == [now] * 3
    assert (selector.stats.select_ns, selector.stats.io_ns) == (10, 10)
    selector.move(300)
    assert told[-1] == 300


@pytest.mark.mechanism("N06")
def test_the_trouble_of_one_channel_is_its_own(reactor: Any) -> None:
    bad, good = channel_of(reactor, Wire(struct.pack(">i", -1))), channel_of(reactor, Wire(framed(b"1")))
    selector = reactor_of(reactor, lambda _: [(1, READ), (2, READ)])
    selector.by_fd.update({1: bad, 2: good})
    selector.move(300)
    ((failed, flags, error),) = selector.attention
    assert (failed, flags, type(error)) == (bad, 0, InvalidReceiveError)
    assert [channel for channel, _ in selector.completed_receives] == [good]


@pytest.mark.mechanism("N06")
def test_what_is_not_common_is_left_to_others(reactor: Any) -> None:
    connecting, silent, sending = (channel_of(reactor, Wire()) for _ in range(3))
    connecting.state = ChannelState.NOT_CONNECTED
    sending.send = reactor.NetworkSend([b"x"])
    selector = reactor_of(reactor, lambda _: [(1, READ), (2, READ), (3, WRITE), (4, WRITE)])
    selector.by_fd.update({1: connecting, 2: silent, 3: sending, 4: silent})
    arranged: list[Any] = []
    selector.move(0, arranged.append)
    assert len(arranged) == 1
    assert selector.attention == [
        (connecting, READ | reactor.PREPARE, None),
        (silent, reactor.NOTHING, None),
        (sending, WRITE, None),
    ]


@pytest.mark.mechanism("N06")
def test_the_time_spent_on_a_channel_is_added_up_if_asked_for(reactor: Any) -> None:
    channel = channel_of(reactor, Wire(framed(b"1"), framed(b"2")))
    selector = reactor_of(reactor, lambda _: [(1, READ)])
    selector.by_fd[1] = channel
    selector.move(0)
    assert channel.network_thread_time_ns == 0
    selector.record_time_per_connection = True
    selector.move(0)
    assert channel.network_thread_time_ns == 10


@pytest.mark.mechanism("N20")
@pytest.mark.parametrize("room", [0, 10], ids=["on its way", "sent"])
def test_the_time_that_a_response_takes_is_added_if_asked_for(reactor: Any, room: int) -> None:
    selector, channel, request = reactor_of(reactor), channel_of(reactor, Wire()), Answered()
    selector.record_time_per_connection = True
    selector.channels["c"] = channel
    selector.request_received(channel)
    channel.network_thread_time_ns = 5
    channel.transport.room = room
    response = reactor.NetworkSend([b"answer"], request)
    assert selector.respond(response) == (reactor.SENT if room else reactor.PARTLY_SENT)
    spent = 5 + 110 - request.response_dequeue_time_ns  # the clock's second reading
    assert channel.network_thread_time_ns == (0 if room else spent)
    assert request.completed == ([(spent, response)] if room else [])
