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

from barnabas._kernels.pure import reactor as pure_reactor
from barnabas.network.channel_state import ChannelState
from barnabas.network.memory_pool import UNBOUNDED
from barnabas.network.mute import MUTED, NOT_MUTED, RESPONSE_PENDING
from barnabas.network.poller import READ, WRITE

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
    references: Any = None

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.room = 1 << 30
        self.sent = b""

    def fileno(self) -> int:
        return 7

    def recv(self, size: int) -> bytes:
        if not self.chunks:
            raise BlockingIOError
        return self.chunks.pop(0)

    def send(self, data: Any) -> int:
        if not self.room:
            raise BlockingIOError
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)


class Answered:
    """A request as the network layer sees it."""

    connection_id = "c"
    response_dequeue_time_ns = 80

    def __init__(self) -> None:
        self.completed: list[tuple[int, object]] = []

    def complete(self, network_thread_time_ns: int, response: object) -> None:
        self.completed.append((network_thread_time_ns, response))


def cores(reactor: Any) -> tuple[Any, Any, Any]:
    """The three classes, with what they leave to others written down instead of done."""

    class Send(reactor.SendCore):  # type: ignore[misc]
        def _gather(self, pieces: Any) -> int:
            self._pieces = list(pieces)
            return sum(map(len, pieces))

        def _write_pieces(self, transport: Any) -> int:
            sent: int = transport.send(b"".join(self._pieces))
            self.remaining -= sent
            return sent

    class Channel(reactor.ChannelCore):  # type: ignore[misc]
        def __init__(self, wire: Wire) -> None:
            super().__init__("c", wire, 100, UNBOUNDED, None)
            self.state = ChannelState.READY
            self.events = READ

        def _refuse(self, size: int) -> None:
            raise ValueError(f"refused {size}")

        def _follow(self, view: memoryview, start: int) -> None:
            raise ValueError(f"refused {int.from_bytes(view[start : start + 4], 'big', signed=True)}")

        def _collect(self, view: memoryview) -> None:
            assert self.ahead is None
            self._head = bytes(view)  # as if all of it were the beginning of a length: it comes first the next time

        def handle_mute_event(self, event: object) -> None:
            self.mute_state = MUTED

    class Selector(reactor.SelectorCore):  # type: ignore[misc]
        def __init__(self, events: Callable[[float], list[tuple[int, int]]] = lambda _: []) -> None:
            super().__init__(events, iter(range(100, 10_000, 10)).__next__)
            self.seen: list[Any] = []

    for name in ("resume", "unmute", "_cannot_send_now", "_send_failed", "_watch", "_arrange", "_woken", "_prepared",
                 "_nothing_received", "_write", "_failed"):  # fmt: skip

        def note(self: Any, *arguments: Any, name: str = name) -> None:
            self.seen.append((name, *(one for one in arguments if not isinstance(one, Channel))))

        setattr(Selector, name, note)
    return Send, Channel, Selector


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


# ---------------------------------------------------------------------------------------------------- receiving


@pytest.mark.mechanism("N06")
def test_requests_come_out_as_they_went_in_however_they_were_cut(reactor: Any) -> None:
    _, channel_class, _ = cores(reactor)
    source = random.Random(5)
    payloads = [source.randbytes(source.choice((0, 1, 7, 100))) for _ in range(200)]
    stream, chunks = framed(*payloads), []
    while stream:
        size = source.choice((1, 3, 4, 5, 50, 400))
        chunks.append(stream[:size])
        stream = stream[size:]
    channel = channel_class(Wire(*chunks))
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
    _, channel_class, _ = cores(reactor)
    data = framed(b"one", b"two")
    channel = channel_class(Wire(data))
    first = channel.read()
    assert channel.has_bytes_buffered
    assert first.obj is data
    assert bytes(channel.read()) == b"two"
    assert not channel.has_bytes_buffered


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(reactor: Any, size: int) -> None:
    _, channel_class, _ = cores(reactor)
    with pytest.raises(ValueError, match=f"refused {size}"):
        channel_class(Wire(struct.pack(">i", size))).read()


@pytest.mark.mechanism("N06")
def test_the_end_of_the_stream_is_told(reactor: Any) -> None:
    _, channel_class, _ = cores(reactor)
    with pytest.raises(EOFError):
        channel_class(Wire(b"")).read()


# ---------------------------------------------------------------------------------------------------- sending


@pytest.mark.mechanism("N10")
def test_an_answer_that_goes_out_at_once_ends_its_request_and_unmutes_the_channel(reactor: Any) -> None:
    send_class, channel_class, selector_class = cores(reactor)
    selector, channel, request = selector_class(), channel_class(Wire()), Answered()
    selector.channels["c"] = channel
    selector.request_received(channel)
    assert channel.mute_state is RESPONSE_PENDING
    channel.network_thread_time_ns = 5
    response = send_class([b"answer"], request)
    assert selector.answer(response)
    assert (channel.transport.sent, request.completed) == (b"answer", [(5, response)])
    assert (channel.mute_state, channel.network_thread_time_ns) == (NOT_MUTED, 0)
    assert (selector.stats.bytes_sent, selector.seen) == (6, [])


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("room", [0, 2])
def test_an_answer_that_does_not_fit_waits_for_room(reactor: Any, room: int) -> None:
    send_class, channel_class, selector_class = cores(reactor)
    selector, channel, request = selector_class(), channel_class(Wire()), Answered()
    selector.channels["c"] = channel
    selector.request_received(channel)
    channel.transport.room = room
    response = send_class([b"answer"], request)
    assert selector.answer(response)
    assert (channel.send, response.remaining, response.completed) == (response, 6 - room, False)
    assert (channel.mute_state, request.completed) == (RESPONSE_PENDING, [])
    assert selector.seen == [("_watch", READ | WRITE)]
    channel.transport.room = 10
    response.write_to(channel.transport)
    assert (channel.transport.sent, response.completed) == (b"answer", True)


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("why", ["sending", "closing", "connecting"])
def test_what_cannot_be_sent_now_is_left_to_others(reactor: Any, why: str) -> None:
    send_class, channel_class, selector_class = cores(reactor)
    selector, channel = selector_class(), channel_class(Wire())
    if why == "sending":
        channel.send = send_class([b"before"])
    elif why == "closing":
        channel.closing = True
    else:
        selector._connecting.add(channel)
    response = send_class([b"answer"])
    assert not selector.send(channel, response)
    assert (selector.seen, channel.transport.sent) == ([("_cannot_send_now", response)], b"")


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("error", [ConnectionResetError("gone"), EOFError("the file shrank")])
def test_a_send_that_fails_is_left_to_others(reactor: Any, error: Exception) -> None:
    send_class, channel_class, selector_class = cores(reactor)

    class Broken(Wire):
        def send(self, data: Any) -> int:
            raise error

    selector, channel, response = selector_class(), channel_class(Broken()), send_class([b"answer"])
    assert not selector.send(channel, response)
    assert selector.seen == [("_send_failed", response, error)]


@pytest.mark.mechanism("N10")
def test_an_answer_for_a_channel_that_is_gone_is_not_sent(reactor: Any) -> None:
    send_class, _, selector_class = cores(reactor)
    assert not selector_class().answer(send_class([b"answer"], Answered()))


@pytest.mark.mechanism("N08")
def test_after_the_answer_the_channel_goes_on_where_it_was(reactor: Any) -> None:
    _, channel_class, selector_class = cores(reactor)
    selector, channel = selector_class(), channel_class(Wire(framed(b"1", b"2")))

    def answered() -> tuple[bool, list[Any]]:
        selector.seen.clear()
        selector._buffered.clear()
        channel.mute_state = RESPONSE_PENDING
        selector.response_sent(channel)
        assert channel.mute_state is NOT_MUTED
        return channel in selector._buffered, selector.seen

    assert answered() == (False, []), "the poller watches it"
    channel.read()
    assert answered() == (True, []), "the next request is there"
    channel.read()
    channel.events = 0
    assert answered() == (False, [("resume",)])
    channel.events = READ
    channel.transport.has_bytes_buffered = True
    assert answered() == (False, [("resume",)])
    channel.mute_state = MUTED
    selector.seen.clear()
    selector.response_sent(channel)
    assert (channel.mute_state, selector.seen) == (MUTED, [("unmute",)])


@pytest.mark.mechanism("N08")
def test_a_request_from_a_channel_that_is_muted_is_a_bug(reactor: Any) -> None:
    _, channel_class, selector_class = cores(reactor)
    channel = channel_class(Wire())
    channel.mute_state = MUTED
    with pytest.raises(RuntimeError, match="MUTED"):
        selector_class().request_received(channel)


# ---------------------------------------------------------------------------------------------------- the loop


@pytest.mark.mechanism("N08")
def test_a_poll_takes_one_request_of_each_channel_that_is_ready(reactor: Any) -> None:
    _, channel_class, selector_class = cores(reactor)
    told: list[float] = []
    buffered, watched, muted = (channel_class(Wire(framed(b"1", b"2"))) for _ in range(3))

    def events(timeout_ms: float) -> list[tuple[int, int]]:
        told.append(timeout_ms)
        return [(1, READ), (2, READ), (3, READ), (9, READ)]

    selector = selector_class(events)
    selector._by_fd.update({1: buffered, 2: watched, 3: muted})
    buffered.read()
    selector._buffered[buffered] = None
    muted.mute_state = MUTED
    now = selector._move(300)
    assert told == [0], "what is in memory is not waited for"
    assert [(channel, bytes(payload)) for channel, payload in selector.completed_receives] == [
        (buffered, b"2"),
        (watched, b"1"),
    ]
    assert selector.seen[-2:] == [("_watch", 0), ("_woken", 9)], "the muted one is no longer watched"
    assert [channel.last_active_ns for channel in (buffered, watched, muted)] == [now] * 3
    assert (selector.stats.select_ns, selector.stats.io_ns) == (10, 10)
    selector._move(300)
    assert told[-1] == 300


@pytest.mark.mechanism("N06")
def test_the_trouble_of_one_channel_is_its_own(reactor: Any) -> None:
    _, channel_class, selector_class = cores(reactor)
    bad, good = channel_class(Wire(struct.pack(">i", -1))), channel_class(Wire(framed(b"1")))
    selector = selector_class(lambda _: [(1, READ), (2, READ)])
    selector._by_fd.update({1: bad, 2: good})
    now = selector._move(300)
    (failure,) = [entry for entry in selector.seen if entry[0] == "_failed"]
    assert (str(failure[1]), failure[2]) == ("refused -1", now)
    assert [channel for channel, _ in selector.completed_receives] == [good]


@pytest.mark.mechanism("N06")
def test_what_is_not_common_is_left_to_others(reactor: Any) -> None:
    send_class, channel_class, selector_class = cores(reactor)
    connecting, silent, sending = (channel_class(Wire()) for _ in range(3))
    connecting.state = ChannelState.NOT_CONNECTED
    sending.send = send_class([b"x"])
    selector = selector_class(lambda _: [(1, READ), (2, READ), (3, WRITE), (4, WRITE)])
    selector._by_fd.update({1: connecting, 2: silent, 3: sending, 4: silent})
    selector._move(0)
    assert [entry[0] for entry in selector.seen] == ["_arrange", "_prepared", "_nothing_received", "_write"]


@pytest.mark.mechanism("N06")
def test_the_time_spent_on_a_channel_is_added_up_if_asked_for(reactor: Any) -> None:
    _, channel_class, selector_class = cores(reactor)
    channel = channel_class(Wire(framed(b"1"), framed(b"2")))
    selector = selector_class(lambda _: [(1, READ)])
    selector._by_fd[1] = channel
    selector._move(0)
    assert channel.network_thread_time_ns == 0
    selector.record_time_per_connection = True
    selector._move(0)
    assert channel.network_thread_time_ns == 10


@pytest.mark.mechanism("N20")
@pytest.mark.parametrize("room", [0, 10], ids=["on its way", "sent"])
def test_the_time_that_an_answer_takes_is_added_if_asked_for(reactor: Any, room: int) -> None:
    send_class, channel_class, selector_class = cores(reactor)
    selector, channel, request = selector_class(), channel_class(Wire()), Answered()
    selector.record_time_per_connection = True
    selector.channels["c"] = channel
    selector.request_received(channel)
    channel.network_thread_time_ns = 5
    channel.transport.room = room
    response = send_class([b"answer"], request)
    assert selector.answer(response)
    spent = 5 + 110 - request.response_dequeue_time_ns  # the clock's second reading
    assert channel.network_thread_time_ns == (0 if room else spent)
    assert request.completed == ([(spent, response)] if room else [])
