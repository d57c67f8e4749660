"""What one connection can do wrong, and that no other one notices.

Real sockets, all threads running, every hand-off policy. Each test ends with a look at what is left: ``serving`` fails
if a thread, a descriptor, a counted connection or request memory is.
"""

from __future__ import annotations

import gc
import itertools
import logging
import random
import resource
import selectors
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from barnabas._kernels.channel_state import READ_AHEAD
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.network.reactor.channel import KafkaChannel
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Message
from barnabas.server.request import Request
from network_fixtures import (
    INLINE,
    WAIT_S,
    Client,
    Policy,
    Server,
    every_policy,
    heartbeat,
    leave_group,
    open_descriptors,
)
from system.system_fixtures import (
    LARGE,
    PARKED,
    SMALL_BUFFERS,
    Answers,
    Bystanders,
    answering,
    bad_requests,
    descriptors,
    drain,
    errors_of,
    lines_about,
    log_lines,
    stats_of,
    warnings_in,
)

MAX_REQUEST = 1 << 16
UNBOUNDED: dict[str, Any] = {"socket_request_max_bytes": MAX_REQUEST}
POOLED: dict[str, Any] = {"socket_request_max_bytes": MAX_REQUEST, "queued_max_request_bytes": MAX_REQUEST}

either_memory = pytest.mark.parametrize("memory", [UNBOUNDED, POOLED], ids=["unbounded", "pooled"])
"""With a memory pool a request is read in another way: nothing ahead, and its memory is counted."""


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="barnabas")


@contextmanager
def only_it_is_closed(server: Server, caplog: pytest.LogCaptureFixture, level: str) -> Iterator[Client]:
    """A connection that goes wrong in the block. It is closed, with one line in the log, and nobody else is."""
    bystanders = Bystanders(server)
    culprit = server.connect(receive_buffer=4096)
    address = culprit.address
    assert culprit.ask(1) == 1
    yield culprit
    (lost,) = server.await_disconnects()
    assert f"-{address}-" in lost
    bystanders.ask_all()
    assert server.disconnected.empty()
    assert server.sockets.quotas.total == len(bystanders)
    assert stats_of(server, "connections_closed") == 1
    assert lines_about(caplog, address) == [level]
    assert len(warnings_in(caplog)) == (level != "DEBUG")


# ---------------------------------------------------------------------------------------------------- bad bytes


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, client_id: bytes, rest: bytes = b"") -> bytes:
    return frame(struct.pack(">hhi", api_key, version, 7) + client_id + rest)


def client_hello() -> bytes:
    """The first bytes of somebody who takes this for a TLS port."""
    hello = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    handshake = b"\x01" + len(hello).to_bytes(3, "big") + hello
    return b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake


def random_bytes(seed: int) -> bytes:
    return random.Random(seed).randbytes(4096)


REFUSED_LENGTHS = {
    "one byte too long": struct.pack(">i", MAX_REQUEST + 1) + bytes(100),
    "as long as can be": b"\x7f\xff\xff\xff",
    "minus one": b"\xff\xff\xff\xff",
    "as negative as can be": b"\x80\x00\x00\x00" + bytes(1000),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\n\r\n",
    "TLS": client_hello(),
    # Taken at random, one length in two is negative and nearly all others are too large.
    "random bytes": random_bytes(1),
    "more random bytes": random_bytes(2),
}
"""The selector ends these, when it has read the length."""

API_HEARTBEAT = int(ApiKey.HEARTBEAT)
BAD_REQUESTS = {
    "nothing": frame(b""),
    "shorter than a header": frame(b"\x00\x0c\x00\x04"),
    "unknown API": header(9_999, 0, b"\x00\x01x"),
    "negative API": header(-1, 0, b"\x00\x01x"),
    "API of another listener": header(int(ApiKey.VOTE), 0, b"\x00\x01x", b"\x00"),
    "version too high": header(API_HEARTBEAT, 99, b"\x00\x01x", b"\x00"),
    "version negative": header(API_HEARTBEAT, -1, b"\x00\x01x"),
    "client id too long": header(API_HEARTBEAT, 4, b"\x7f\xffx"),
    "client id with a negative length": header(API_HEARTBEAT, 4, b"\xff\xfe"),
    "client id that is no text": header(API_HEARTBEAT, 4, b"\x00\x02\xff\xfe", b"\x00"),
    "broken tagged fields": header(API_HEARTBEAT, 4, b"\x00\x01x", b"\xff"),
    "random bytes with a length": frame(random_bytes(3)),
}
"""The processor ends these, when it has read the header."""


@every_policy
@either_memory
@pytest.mark.parametrize("sent", REFUSED_LENGTHS.values(), ids=REFUSED_LENGTHS)
def test_a_length_that_cannot_be_ends_the_connection(
    policy: Policy, memory: dict[str, Any], sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(policy, **memory) as server:
        with only_it_is_closed(server, caplog, "WARNING") as culprit:
            culprit.send(sent)
            culprit.await_close()
        assert stats_of(server, "invalid_receives") == 1
        assert bad_requests(server) == 0


@every_policy
@either_memory
@pytest.mark.parametrize("sent", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_header_that_cannot_be_ends_the_connection(
    policy: Policy, memory: dict[str, Any], sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(policy, **memory) as server:
        with only_it_is_closed(server, caplog, "WARNING") as culprit:
            culprit.send(sent)
            culprit.await_close()
        assert bad_requests(server) == 1
        assert stats_of(server, "invalid_receives") == 0


def decoded(request: Request) -> bytes:
    """What a real handler does first."""
    assert isinstance(request.body, Message)
    return b""


@every_policy
@either_memory
def test_a_body_that_cannot_be_read_ends_the_connection(
    policy: Policy, memory: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(decoded)
    with answering(policy, answers, **memory) as server:
        with only_it_is_closed(server, caplog, "WARNING") as culprit:
            culprit.send(header(API_HEARTBEAT, 4, b"\x00\x01x", b"\x00" + b"\xff\xff\xff\xff\x0f"))
            culprit.await_close()
        (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
        assert line.exc_info is None, "whoever can send bytes could fill the log with stack traces"
        assert errors_of(server) == {("Heartbeat", "INVALID_REQUEST"): 1}


@every_policy
@either_memory
def test_damaged_requests_end_their_own_connections_only(
    policy: Policy, memory: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Two hundred requests, each with a few bytes changed. Some can still be read, and then they are answered."""
    dice = random.Random(2026)
    answered = 0
    with answering(policy, Answers(decoded), **memory) as server:
        bystanders = Bystanders(server)
        for number in range(200):
            damaged = bytearray(heartbeat(number, size=20))
            for place in dice.sample([*range(8), *range(12, len(damaged))], dice.randint(1, 4)):  # not the number
                damaged[place] = dice.randrange(256)
            with Client.connect(server.sockets.bound_port("PLAINTEXT")) as culprit:
                culprit.send(bytes(damaged))
                with suppress(OSError):  # it may have been closed by now
                    culprit.socket.shutdown(socket.SHUT_WR)
                answered += bool(drain(culprit))
            if number % 10 == 0:
                bystanders.ask_all()
        server.await_disconnects(200)
        bystanders.ask_all()
        refused = stats_of(server, "invalid_receives") + bad_requests(server)
        refused += sum(errors_of(server).values())
        assert 0 < len(warnings_in(caplog)) <= refused, "a line each, as far as the limit on such lines allows"
        assert answered > 20
        assert refused > 20


# ---------------------------------------------------------------------------------------------------- peers that vanish


either_end = pytest.mark.parametrize("end", [Client.close, Client.reset], ids=["closed", "reset"])
"""With a FIN, as a process that ends leaves it, and with a RST, as a machine does that has crashed and come back."""


@every_policy
@either_memory
@either_end
@pytest.mark.parametrize("begun", [0, 3, 4, 20, -1])
def test_a_peer_that_vanishes_in_the_middle_of_a_request(
    policy: Policy,
    memory: dict[str, Any],
    end: Callable[[Client], None],
    begun: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with answering(policy, **memory) as server, only_it_is_closed(server, caplog, "DEBUG") as culprit:
        culprit.send(heartbeat(2, size=1000)[:begun])
        end(culprit)


@every_policy
@either_memory
@either_end
def test_a_peer_that_vanishes_while_its_request_is_handled(
    policy: Policy, memory: dict[str, Any], end: Callable[[Client], None], caplog: pytest.LogCaptureFixture
) -> None:
    with answering(policy, **memory) as server, only_it_is_closed(server, caplog, "DEBUG") as culprit:
        culprit.send(heartbeat(PARKED))
        waiting = server.next_request()
        end(culprit)
        server.answer(waiting)


@every_policy
@either_memory
@either_end
def test_a_peer_that_vanishes_while_its_answer_is_written(
    policy: Policy, memory: dict[str, Any], end: Callable[[Client], None], caplog: pytest.LogCaptureFixture
) -> None:
    with answering(policy, **memory, **SMALL_BUFFERS) as server, only_it_is_closed(server, caplog, "DEBUG") as culprit:
        culprit.send(heartbeat(PARKED))
        server.answer(server.next_request(), bytes(LARGE))
        assert culprit.socket.recv(1), "the answer has begun"
        end(culprit)


@every_policy
@either_memory
def test_requests_sent_before_a_peer_went_are_handled(
    policy: Policy, memory: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A producer with acks=0 sends, closes, and is content. No answer is sent, so nothing tells that it is gone."""
    with answering(policy, **memory) as server, only_it_is_closed(server, caplog, "DEBUG") as culprit:
        culprit.send(*(heartbeat(PARKED + number) for number in range(20)))
        culprit.close()
        for number in range(20):
            waiting = server.next_request()
            assert waiting.correlation_id == PARKED + number
            server.channel.send_no_op_response(waiting)


@every_policy
@either_memory
def test_a_half_closed_connection_gets_its_answers(
    policy: Policy, memory: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A client that has nothing more to say may still listen. The connection ends after the last answer."""
    with answering(policy, **memory) as server, only_it_is_closed(server, caplog, "DEBUG") as culprit:
        culprit.send(*(heartbeat(number) for number in range(2, 7)), heartbeat(PARKED))
        culprit.socket.shutdown(socket.SHUT_WR)
        assert culprit.receive_ids(5) == [2, 3, 4, 5, 6]
        waiting = server.next_request()
        assert culprit.is_silent
        server.answer(waiting)
        assert culprit.receive_ids(1) == [PARKED]
        culprit.await_close()


def answered(client: Client) -> None:
    assert client.receive()


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Whatever is freed is freed at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@every_policy
@pytest.mark.usefixtures("_no_collector")
def test_thousands_of_connects_and_disconnects(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="barnabas")
    request = heartbeat(1, size=100)
    lives: list[tuple[bytes, Callable[[Client], None]]] = [
        (sent, end) for sent in (b"", request[:30], request, request * 20) for end in (Client.close, Client.reset)
    ]
    lives.append((b"GET / HTTP/1.1\r\n\r\n", Client.await_close))
    lives.append((request, answered))
    bursts, at_once = 30, 100
    with descriptors(2 * at_once), answering(policy, socket_listen_backlog_size=1024, **POOLED) as server:
        bystanders = Bystanders(server)
        for _ in range(bursts):
            clients = [Client.connect(server.sockets.bound_port("PLAINTEXT")) for _ in range(at_once)]
            for client, (sent, end) in zip(clients, itertools.cycle(lives), strict=False):
                client.send(sent)
                end(client)
                client.close()
            bystanders.ask_one()
        server.await_disconnects(bursts * at_once)
        bystanders.ask_all()
        assert server.sockets.quotas.total == len(bystanders)
        assert stats_of(server, "connections_closed") == bursts * at_once
        assert stats_of(server, "invalid_receives") == bursts * at_once // len(lives)
        assert 0 < len(warnings_in(caplog)) <= bursts * at_once // len(lives)
        channels = sum(type(thing) is KafkaChannel for thing in gc.get_objects())
        assert channels < 200, "connections that are gone are still held"


# ---------------------------------------------------------------------------------------------------- slow peers


@every_policy
@either_memory
def test_a_slow_writer_holds_up_nobody(
    policy: Policy, memory: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Three clients send byte after byte, and others are served between any two bytes."""
    with answering(policy, **memory) as server:
        bystanders = Bystanders(server)
        slow = [server.connect() for _ in range(3)]
        for client in slow:
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in (1, 2):
            for byte in heartbeat(number):
                for client in slow:
                    assert client.is_silent
                    client.send(bytes([byte]))
                bystanders.ask_one()
            assert [client.receive()[0] for client in slow] == [number] * 3
        bystanders.ask_all()
        assert server.disconnected.empty()
    assert warnings_in(caplog) == []


@every_policy
def test_the_mere_length_of_a_large_request_takes_little_memory(policy: Policy) -> None:
    with answering(policy) as server:
        slow = [server.connect() for _ in range(50)]
        tracemalloc.start()
        try:
            for client in slow:
                client.send(struct.pack(">i", 50_000_000))
            Bystanders(server)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < len(slow) * 50_000


@every_policy
@either_memory
def test_a_reader_that_never_reads_is_handled_one_request_at_a_time(policy: Policy, memory: dict[str, Any]) -> None:
    """What is held for it is one answer, however many requests it sends. When it reads after all, it gets them all."""
    answers = Answers(lambda request: bytes(LARGE) if request.correlation_id >= 100_000 else b"")
    with answering(policy, answers, **memory, **SMALL_BUFFERS) as server:
        bystanders = Bystanders(server)
        lazy = [server.connect(receive_buffer=4096) for _ in range(3)]
        for client in lazy:
            client.send(*(heartbeat(100_000 + number) for number in range(10)))
        for client in lazy:
            assert client.socket.recv(1, socket.MSG_PEEK), "the first answer has begun"
        for _ in range(20):
            bystanders.ask_all()
        assert [answers.handled[client.address] for client in lazy] == [1, 1, 1]
        assert lazy[0].receive_ids(10) == [100_000 + number for number in range(10)]
        assert answers.handled[lazy[0].address] == 10
        assert answers.handled[lazy[1].address] == 1
        bystanders.ask_all()


@every_policy
def test_a_reader_that_never_reads_is_closed_when_it_has_been_idle(
    policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer is blocked for good. Waiting for that to go out would hold the connection and its answer for ever."""
    clock = MockClock()
    with answering(policy, clock=clock, connections_max_idle_ms=600_000, **SMALL_BUFFERS) as server:
        bystanders = Bystanders(server)
        lazy = server.connect(receive_buffer=4096)
        lazy.send(heartbeat(PARKED), heartbeat(2))
        server.answer(server.next_request(), bytes(LARGE))
        assert lazy.socket.recv(1, socket.MSG_PEEK), "the answer has begun"
        clock.advance(599_000)
        bystanders.ask_all()
        clock.advance(2_000)
        (lost,) = server.await_disconnects()
        assert f"-{lazy.address}-" in lost
        assert server.sockets.quotas.total == len(bystanders)
        assert sum(processor.selector.stats.idle_closed for processor in server.sockets.processors) == 1
        assert lines_about(caplog, lazy.address) == ["DEBUG"]
        bystanders.ask_all()


# ---------------------------------------------------------------------------------------------------- our own faults


@every_policy
@either_memory
@pytest.mark.parametrize("inline", [True, False])
def test_a_handler_that_raises_leaves_its_thread_alive(
    policy: Policy, memory: dict[str, Any], inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def body(request: Request) -> bytes:
        if request.correlation_id % 2:
            raise ZeroDivisionError("a bug")
        return b""

    request = heartbeat if inline else leave_group
    with answering(policy, Answers(body), **memory) as server:
        threads = set(threading.enumerate())
        good = server.connect()
        for number in range(20):
            culprit = server.connect()
            culprit.send(request(2 * number + 1))
            correlation_id, response = culprit.receive()
            assert correlation_id == 2 * number + 1
            assert struct.pack(">h", Errors.UNKNOWN_SERVER_ERROR) in response, "its client learns that it failed"
            culprit.close()
            good.send(request(2 * number))
            assert good.receive()[0] == 2 * number
        server.await_disconnects(20)
        assert set(threading.enumerate()) == threads
        assert all(thread.is_alive() for thread in server.handlers.threads)
        assert server.sockets.quotas.total == 1
    assert [line.startswith("Unexpected error while handling ") for line in warnings_in(caplog)] == [True] * 20


class Flood:
    """Sends the same request again and again on several connections, as much of it as they take."""

    def __init__(self, clients: list[Client], sent: bytes) -> None:
        self._clients = clients
        self._sent = sent
        self.taken = dict.fromkeys(clients, 0)
        """Bytes, by connection."""

    @property
    def total(self) -> int:
        return sum(self.taken.values())

    def until_stuck(self, limit: int) -> None:
        """Until no connection takes anything for a while; gives up when they have taken more than so many bytes."""
        with self._writable() as writable:
            while (ready := writable.select(0.15)) and self.total <= limit:
                for key, _ in ready:
                    self._send(key.data)

    def finish(self) -> None:
        """The rest of each request that has begun. On all connections at once: with a memory pool, half of a request
        is what keeps others from being read."""
        with self._writable() as writable:
            while unfinished := [client for client in self._clients if self.taken[client] % len(self._sent)]:
                ready = [key.data for key, _ in writable.select(WAIT_S)]
                assert ready, "the peers are still held up"
                for client in unfinished:
                    if client in ready:
                        self._send(client)

    def _send(self, client: Client) -> None:
        self.taken[client] += client.socket.send(self._sent[self.taken[client] % len(self._sent) :])

    @contextmanager
    def _writable(self) -> Iterator[selectors.BaseSelector]:
        with selectors.DefaultSelector() as writable:
            for client in self._clients:
                client.socket.setblocking(False)
                writable.register(client.socket, selectors.EVENT_WRITE, client)
            yield writable
        for client in self._clients:
            client.socket.settimeout(WAIT_S)


@every_policy
@either_memory
@pytest.mark.parametrize("inline_apis", [INLINE, frozenset()], ids=["inline", "pool"])
def test_a_stuck_handler_pool_holds_up_the_peers(
    policy: Policy, memory: dict[str, Any], inline_apis: frozenset[ApiKey]
) -> None:
    """Nothing is dropped and nothing piles up: TCP makes the clients wait. Once the handlers go on, so do they."""
    released, stuck = threading.Event(), threading.Semaphore(0)

    def wait(_request: Request) -> bytes:
        stuck.release()
        assert released.wait(2 * WAIT_S)
        return b""

    sent = heartbeat(7, size=30_000)
    settings = {"queue_size": 2, "inline_apis": inline_apis, **memory, **SMALL_BUFFERS}
    with answering(policy, Answers(wait), **settings) as server:
        clients = [server.connect() for _ in range(8)]
        for client in clients:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        try:
            # What the kernel may hold for one connection, at both ends; it doubles what it is asked for.
            in_kernel = clients[0].socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + 2 * 16_384
            pool = server.sockets.memory_pool
            if pool.bounded:
                limit = pool.size + len(sent) + len(clients) * (in_kernel + 4)
            else:
                limit = len(clients) * (in_kernel + READ_AHEAD + len(sent))
            flood = Flood(clients, sent)
            flood.until_stuck(limit)
            assert stuck.acquire(timeout=WAIT_S)
            assert flood.total <= limit
            assert pool.available > -len(sent)
            assert server.channel.request_queue_size <= 2
            late = server.connect()
            late.send(heartbeat(8))
        finally:
            released.set()
        flood.finish()
        for client in clients:
            count = flood.taken[client] // len(sent)
            assert client.receive_ids(count) == [7] * count
        assert late.receive()[0] == 8
        assert all(client.ask(9) == 9 for client in clients)


def test_running_out_of_descriptors_delays_connections_and_loses_none() -> None:
    """They wait in the backlog. Without a pause the acceptor would be told of them again and again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with answering(Policy.DIRECT) as server:
        sockets = [socket.socket() for _ in range(20)]
        try:
            taken = open_descriptors()
            free = (number for number in itertools.count() if number not in taken)
            resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, 5, None)), hard))
            with log_lines("barnabas.network.server.acceptor", logging.ERROR) as errors:
                for sock in sockets:
                    sock.settimeout(WAIT_S)
                    sock.connect(("127.0.0.1", server.sockets.bound_port("PLAINTEXT")))
                assert "No more connections" in errors.get(timeout=WAIT_S)
                for number in range(20):
                    assert Client(sockets[0]).ask(number) == number
                assert server.sockets.quotas.total < 20
                assert errors.qsize() < 5
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            server.clients += [Client(sock) for sock in sockets]
        for client in server.clients:
            assert client.ask(2) == 2
        assert server.sockets.quotas.total == 20


def test_a_server_stops_while_all_kinds_of_connections_are_under_way() -> None:
    """Idle ones, half a request, a request being handled, an answer that is blocked: ``serving`` looks for the rest."""
    for policy in Policy:
        with answering(policy, **POOLED, **SMALL_BUFFERS) as server:
            Bystanders(server)
            server.connect().send(heartbeat(1, size=1000)[:500])
            parked, lazy = server.connect(), server.connect(receive_buffer=4096)
            parked.send(heartbeat(PARKED))
            server.next_request()
            lazy.send(heartbeat(PARKED))
            server.answer(server.next_request(), bytes(LARGE))
            assert lazy.socket.recv(1)
            server.sockets.stop_processing_requests()
