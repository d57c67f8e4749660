"""Connections through the whole server, with every hand-off policy: how they end, and that nothing is lost or left."""

from __future__ import annotations

import logging
import queue
import random
import socket
import struct
import threading
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.channel import Authenticator, KafkaChannel
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    LISTENER,
    WAIT_S,
    Client,
    Echo,
    Policy,
    every_policy,
    heartbeat,
    produce,
    serving,
)


def pool_of(size: int) -> dict[str, Any]:
    """Settings for a memory pool of that size, which a single request may take."""
    return {"queued_max_request_bytes": size, "socket_request_max_bytes": size}


# ---------------------------------------------------------------------------------------------------- N10, N12


@pytest.mark.mechanism("N12")
@every_policy
def test_a_handler_that_raises_ends_that_connection_only(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        if request.correlation_id == 13:
            raise RuntimeError("a bug")
        server.answer(request)

    def fail(*args: object) -> None:
        raise RuntimeError("no error response either")

    with serving(policy, handle, io_threads=1) as server, caplog.at_level(logging.CRITICAL):
        server.helper.send = fail  # type: ignore[assignment]
        other = server.connect()
        for _ in range(3):
            unlucky = server.connect()
            unlucky.send(heartbeat(1), heartbeat(13), heartbeat(2))
            assert unlucky.receive()[0] == 1
            unlucky.await_close()
            assert other.ask(5) == 5
        server.await_disconnects(3)


@pytest.mark.mechanism("N10")
@every_policy
def test_a_throttled_connection_gets_its_response_and_is_not_read_until_the_throttle_ends(policy: Policy) -> None:
    handled: queue.Queue[Request] = queue.Queue()

    def handle(request: Request, local: RequestLocal) -> None:
        if request.correlation_id == 1:
            server.channel.start_throttling(request)
        server.answer(request)
        handled.put(request)

    with serving(policy, handle) as server:
        client, other = server.connect(), server.connect()
        client.send(heartbeat(1), heartbeat(2))
        assert client.receive()[0] == 1
        request = handled.get(timeout=WAIT_S)
        for _ in range(3):
            assert other.ask(9) == 9
            handled.get(timeout=WAIT_S)
        assert client.is_silent
        assert handled.empty()
        server.channel.end_throttling(request)
        assert client.receive()[0] == 2


@pytest.mark.mechanism("N10")
@every_policy
def test_requests_without_responses_are_read_one_after_the_other(policy: Policy) -> None:
    handled: queue.Queue[int] = queue.Queue()

    def handle(request: Request, local: RequestLocal) -> None:
        handled.put(request.correlation_id)
        if request.api_key is ApiKey.PRODUCE:
            server.channel.send_no_op_response(request)
        else:
            server.answer(request)

    with serving(policy, handle) as server:
        client = server.connect()
        client.send(*(produce(number) for number in range(20)), heartbeat(99))
        assert client.receive()[0] == 99, "and nothing before it"
        assert [handled.get(timeout=WAIT_S) for _ in range(21)] == [*range(20), 99]


@pytest.mark.mechanism("N10")
@every_policy
def test_an_error_of_a_request_without_a_response_is_told_by_closing(policy: Policy) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        if request.correlation_id == 2:
            server.channel.close_connection(request)
        else:
            server.channel.send_no_op_response(request)

    with serving(policy, handle) as server:
        client = server.connect()
        client.send(produce(1), produce(2), produce(3))
        client.await_close()
        server.await_disconnects()


@pytest.mark.mechanism("N10")
@every_policy
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_large_requests_and_responses_go_through_whole(policy: Policy, bounded: bool) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        assert request.buffer is not None
        server.answer(request, bytes(request.buffer))

    with serving(policy, handle, **(pool_of(4 << 20) if bounded else {})) as server:
        client = server.connect()
        for size in (0, 30_000, 32_000):
            frame = heartbeat(size, size=size)
            client.send(frame)
            assert client.receive() == (size, frame[4:])
        frame = produce(5, records=random.Random(2).randbytes(3_000_000))
        sender = threading.Thread(target=client.send, args=(frame,))
        sender.start()
        assert client.receive() == (5, frame[4:])
        sender.join(WAIT_S)


# ---------------------------------------------------------------------------------------------------- N21


@pytest.mark.mechanism("N21")
@every_policy
@pytest.mark.parametrize("end", ["close", "half-close", "reset"])
@pytest.mark.parametrize("while_handling", [False, True], ids=["before", "while-handling"])
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_what_a_producer_sent_before_it_closed_is_handled(
    policy: Policy, end: str, while_handling: bool, bounded: bool
) -> None:
    first = threading.Event()
    go_on = threading.Event()
    handled: queue.Queue[int] = queue.Queue()

    def handle(request: Request, local: RequestLocal) -> None:
        if request.correlation_id == 0:
            first.set()
            assert go_on.wait(WAIT_S)
        handled.put(request.correlation_id)
        server.channel.send_no_op_response(request)

    with serving(policy, handle, **(pool_of(100_000) if bounded else {})) as server:
        client = server.connect()
        client.send(*(produce(number) for number in range(6)))
        assert first.wait(WAIT_S)
        if while_handling:
            _end(client, end)
            go_on.set()
        else:
            go_on.set()
            _end(client, end)
        assert [handled.get(timeout=WAIT_S) for _ in range(6)] == list(range(6))
        server.await_disconnects()
        assert server.sockets.quotas.total == 0


def _end(client: Client, how: str) -> None:
    if how == "close":
        client.close()
    elif how == "half-close":
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.reset()


@pytest.mark.mechanism("N21")
@every_policy
def test_a_peer_that_has_said_all_it_has_to_say_still_gets_its_responses(policy: Policy) -> None:
    echo = Echo()
    with serving(policy, echo) as server:
        echo.server = server
        client = server.connect()
        client.send(*(heartbeat(number) for number in range(10)))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive_ids(10) == list(range(10))
        client.await_close()


# ---------------------------------------------------------------------------------------------------- N18


@pytest.mark.mechanism("N18")
@every_policy
def test_idle_connections_are_closed_while_active_ones_go_on(policy: Policy) -> None:
    clock = MockClock()
    echo = Echo()
    with serving(policy, echo, clock=clock, connections_max_idle_ms=60_000) as server:
        echo.server = server
        idle, active = server.connect(), server.connect()
        assert idle.ask(1) == 1
        for _ in range(3):
            clock.advance(30_000)
            assert active.ask(2) == 2
        idle.await_close()
        assert active.ask(3) == 3
        server.await_disconnects()


class RefusingAuthenticator:
    complete = False
    principal = None

    def authenticate(self, channel: KafkaChannel) -> None:
        raise AuthenticationError("no")


def refusing(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
    return PlaintextTransportLayer(sock), RefusingAuthenticator()


@pytest.mark.mechanism("N18")
@every_policy
def test_who_fails_to_authenticate_is_not_served_and_closed(policy: Policy) -> None:
    with serving(policy, channel_factories={LISTENER: refusing}, connection_failed_authentication_delay_ms=1) as server:
        client = server.connect()
        client.send(heartbeat(1))
        client.await_close()
        server.await_disconnects()
        assert server.arrived.empty()


# ---------------------------------------------------------------------------------------------------- N09, N06


HOSTILE = {
    "negative": struct.pack(">i", -1),
    "oversize": struct.pack(">i", 2**31 - 1),
    "garbage": struct.pack(">i", 16) + b"\x5a" * 16,
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "tls": bytes.fromhex("16030100fa010000f603033c"),
    "empty": struct.pack(">i", 0),
    "unknown-api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unsupported": struct.pack(">ihhihb", 11, 0, 99, 1, -1, 0),
}


@pytest.mark.mechanism("N06")
@pytest.mark.mechanism("N09")
@every_policy
def test_hostile_bytes_end_their_connection_and_no_other(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo()
    with serving(policy, echo, num_network_threads=1) as server, caplog.at_level(logging.WARNING):
        echo.server = server
        good = server.connect()
        for number, frame in enumerate(HOSTILE.values()):
            bad = server.connect()
            bad.send(frame)
            bad.await_close()
            assert good.ask(number) == number
        server.await_disconnects(len(HOSTILE))
        assert server.sockets.quotas.total == 1
        (processor,) = server.sockets.processors
        assert processor.bad_requests + processor.selector.stats.invalid_receives == len(HOSTILE)
    assert len(caplog.records) == len(HOSTILE), "one line for each"
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.mechanism("N06")
@every_policy
def test_a_slow_writer_holds_up_nobody(policy: Policy) -> None:
    echo = Echo()
    with serving(policy, echo) as server:
        echo.server = server
        slow, other = server.connect(), server.connect()
        for number, byte in enumerate(heartbeat(77)):
            slow.send(bytes([byte]))
            assert other.ask(number) == number
        assert slow.receive()[0] == 77


@pytest.mark.mechanism("N04")
@every_policy
def test_connections_that_come_and_go_leave_nothing_behind(policy: Policy) -> None:
    """Hundreds of them, in every way; what is left is looked at by ``serving``."""
    echo = Echo()
    choose = random.Random(5)
    with serving(policy, echo, num_network_threads=2, socket_listen_backlog_size=200) as server:
        echo.server = server
        steady = server.connect()
        count = 300
        for number in range(count):
            client = Client.connect(server.sockets.bound_port(LISTENER))
            frame = heartbeat(number)
            how = choose.randrange(4)
            if how == 0:
                client.send(frame[: choose.randrange(len(frame))])
            elif how == 1:
                client.send(frame)
                assert client.receive()[0] == number
            elif how == 2:
                client.send(frame, frame)
            if choose.random() < 0.3:
                client.reset()
            else:
                client.close()
            if number % 50 == 0:
                assert steady.ask(number) == number
        assert steady.ask(1) == 1
        steady.close()
        accepted = server.sockets.acceptors[LISTENER]
        server.await_disconnects(accepted.accepted)
        assert server.sockets.quotas.total == 0
