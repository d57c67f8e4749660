"""A network thread, turn by turn: what it does in which order, and for how long it sleeps."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.channel import Authenticator, KafkaChannel
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.processor import CONNECTION_QUEUE_SIZE, POLL_MS, REGISTERED_NS
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    WAIT_S,
    Policy,
    every_policy,
    heartbeat,
    stepping,
    within,
)
from unit.network.reactor.selector_bench import PART_MS

WAIT_MS = WAIT_S * 1000


# ---------------------------------------------------------------------------------------------------- N05
@pytest.mark.mechanism("N05")
def test_a_turn_has_the_documented_order(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        "_configure_new_connections",
        "_process_new_responses",
        "_poll",
        "_process_completed_receives",
        "_process_completed_sends",
        "_process_disconnected",
        "_close_excess_connections",
    ]
    with stepping() as s:
        done: list[str] = []
        for step in steps:

            def note(*arguments: object, step: str = step) -> None:
                done.append(step)

            monkeypatch.setattr(s.processor, step, note)
        s.turn()
        assert done == ["_poll"], "there was nothing else to do"
        monkeypatch.setattr(s.processor, "_arrivals", [object()])
        monkeypatch.setattr(s.processor, "_responses", [object()])
        for news in (s.selector.completed_receives, s.selector.completed_sends, s.selector.disconnected):
            news.append(object())  # type: ignore[arg-type]
        monkeypatch.setattr(s.processor._quotas, "max_connections_exceeded", lambda listener: listener is not None)
        del done[:]
        s.turn()
        assert done == steps
        for news in (s.selector.completed_receives, s.selector.completed_sends, s.selector.disconnected):
            news.clear()
        monkeypatch.undo()


@pytest.mark.mechanism("N05")
def test_one_turn_registers_sends_and_reads() -> None:
    with stepping() as s:
        answered, waiting = s.connect(), s.connect(taken=False)
        request = s.receive_one(answered, heartbeat(1))
        s.answer(request)
        waiting.send(heartbeat(2))
        s.turn(WAIT_MS)
        assert answered.receive() == (1, b"")
        assert s.channel.request_queue_size == 1


@pytest.mark.mechanism("N05")
def test_no_more_than_twenty_new_connections_are_taken_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the acceptor refills the queue as fast as it is emptied: those that are there come first."""
    with stepping(clock=MockClock()) as s:
        register = s.processor._register

        def register_and_refill(sock: socket.socket, peer: tuple[object, ...]) -> None:
            register(sock, peer)
            if len(s.clients) < 45:
                s.connect(taken=False)

        monkeypatch.setattr(s.processor, "_register", register_and_refill)
        for _ in range(CONNECTION_QUEUE_SIZE):
            s.connect(taken=False)
        s.turn()
        assert len(s.selector.channels) == CONNECTION_QUEUE_SIZE == 20
        s.turn()
        s.turn()
        assert len(s.selector.channels) == len(s.clients) == 45


@pytest.mark.mechanism("N05")
def test_one_turn_registers_connections_only_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty TLS connections take up to 4 ms, which the requests of open connections would wait for."""
    clock = MockClock()
    with stepping(clock=clock) as s:
        register = s.processor._register

        def register_slowly(sock: socket.socket, peer: tuple[object, ...]) -> None:
            register(sock, peer)
            clock.advance(0.4 * REGISTERED_NS / 1e6)

        monkeypatch.setattr(s.processor, "_register", register_slowly)
        for _ in range(7):
            s.connect(taken=False)
        for registered in (3, 6, 7):
            s.turn()
            assert len(s.selector.channels) == registered


@pytest.mark.mechanism("N05")
def test_the_poll_waits_only_if_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepping() as s:
        client = s.connect()
        request = s.receive_one(client, heartbeat(1))
        waits: list[float] = []
        poll = s.selector.poll

        def note(timeout_ms: float) -> None:
            waits.append(timeout_ms)
            poll(0)

        monkeypatch.setattr(s.selector, "poll", note)
        s.processor.run_once()
        assert waits == [POLL_MS] == [300]

        monkeypatch.setattr(s.processor, "_configure_new_connections", lambda: None)
        s.connect(taken=False)
        s.processor.run_once()
        assert waits[1:] == [0], "a new connection waits"
        monkeypatch.undo()
        monkeypatch.setattr(s.selector, "poll", note)
        s.processor.run_once()

        del waits[:]
        monkeypatch.setattr(s.processor, "_process_new_responses", lambda: None)
        s.answer(request)
        s.processor.run_once()
        assert waits == [0], "a response that came after this turn's responses were taken"
        monkeypatch.undo()


@pytest.mark.mechanism("N05")
def test_one_connection_is_closed_in_a_turn_while_there_are_too_many_the_least_recently_active_first() -> None:
    with stepping() as s:
        clients = []
        for _ in range(4):
            clients.append(s.connect())
            s.clock.advance(1)
        clients[0].send(heartbeat(1))
        s.turn_until(lambda: s.channel.request_queue_size == 1)
        s.quotas.update_broker_max_connections(2)
        s.turn()
        clients[1].await_close()
        assert len(s.selector.channels) == 3
        s.turn()
        clients[2].await_close()
        s.turn()
        assert s.quotas.total == len(s.selector.channels) == 2
        assert clients[0].is_silent
        assert clients[3].is_silent
        assert len(s.disconnected) == 2


@pytest.mark.mechanism("N05")
def test_a_connection_that_cannot_be_taken_over_is_closed_and_counted_down(caplog: pytest.LogCaptureFixture) -> None:
    with stepping() as s:
        bad = s.connect(taken=False)
        sock, _ = s.processor._new_connections.queue[0]
        sock.close()
        good = s.connect(taken=False)
        with caplog.at_level(logging.WARNING):
            s.turn()
        assert s.quotas.total == len(s.selector.channels) == 1
        bad.await_close()
        assert s.receive_one(good, heartbeat(1)).correlation_id == 1
    assert len(caplog.records) == 1


@pytest.mark.mechanism("N05")
def test_an_error_in_a_turn_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with stepping() as s:
        turns: list[int] = []

        def broken(timeout_ms: float | None = None) -> None:
            turns.append(1)
            if len(turns) == 3:
                s.processor.begin_shutdown()
            raise RuntimeError("a bug")

        monkeypatch.setattr(s.processor, "run_once", broken)
        with caplog.at_level(logging.ERROR):
            s.processor.start()
            s.processor.thread.join(WAIT_S)
        assert len(turns) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "Processor 0 of PLAINTEXT got an uncaught exception"
    ] * 3


# ---------------------------------------------------------------------------------------------------- N08


@pytest.mark.mechanism("N08")
@every_policy
def test_the_next_request_of_a_connection_is_taken_after_the_response_to_the_one_before(policy: Policy) -> None:
    with stepping(policy) as s:
        client, other = s.connect(), s.connect()
        client.send(heartbeat(1), heartbeat(2), heartbeat(3))
        s.turn_until(lambda: s.received)
        for number in (1, 2, 3):
            request = s.handled()
            assert request.correlation_id == number
            for _ in range(3):
                s.turn()
            assert s.received == 0, "one at a time"
            beside = s.receive_one(other, heartbeat(10 + number))
            assert beside.correlation_id == 10 + number, "others go on"
            s.answer(beside)
            s.answer(request)
            s.turn()
        assert client.receive_ids(3) == [1, 2, 3]
        assert other.receive_ids(3) == [11, 12, 13]


@pytest.mark.mechanism("N08")
@every_policy
def test_all_requests_of_one_turn_are_handed_over_together(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    with stepping(policy) as s:
        clients = [s.connect() for _ in range(5)]
        batches: list[int] = []
        submit = s.data_plane.submit

        def note(requests: list[Request]) -> None:
            batches.append(len(requests))
            submit(requests)

        monkeypatch.setattr(s.data_plane, "submit", note)
        for number, client in enumerate(clients):
            client.send(heartbeat(number))
        s.turn_until(lambda: s.received == 5)
        assert sum(batches) == 5
        assert len(batches) < 5


# ---------------------------------------------------------------------------------------------------- N11


@pytest.mark.mechanism("N11")
def test_a_response_wakes_a_processor_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepping() as s:
        client = s.connect()
        request = s.receive_one(client, heartbeat(1))
        asleep = threading.Event()
        poll = s.selector.poll

        def note(timeout_ms: float) -> None:
            asleep.set()
            poll(timeout_ms)

        monkeypatch.setattr(s.selector, "poll", note)
        turn = threading.Thread(target=lambda: s.turn(WAIT_MS))
        turn.start()
        assert asleep.wait(WAIT_S)
        s.answer(request)
        turn.join(WAIT_S / 2)
        assert not turn.is_alive(), "nobody has woken it"
        s.turn()
        assert client.receive()[0] == 1


@pytest.mark.mechanism("N11")
def test_a_processor_is_woken_once_for_many_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepping() as s:
        clients = [s.connect() for _ in range(5)]
        requests = [s.receive_one(client, heartbeat(number)) for number, client in enumerate(clients)]
        wakeups: list[int] = []
        monkeypatch.setattr(s.selector, "wakeup", lambda: wakeups.append(1))

        def answer_all(timeout_ms: float) -> None:
            for request in requests:
                s.answer(request)

        monkeypatch.setattr(s.selector, "poll", answer_all)
        s.turn(WAIT_MS)
        assert len(wakeups) == 1
        monkeypatch.undo()
        s.turn()
        assert [client.receive()[0] for client in clients] == [0, 1, 2, 3, 4]


@pytest.mark.mechanism("N11")
def test_a_response_that_comes_just_before_the_sleep_is_not_slept_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler sees a processor that does not sleep, and wakes nobody; the processor has to look once more."""
    with stepping() as s:
        client = s.connect()
        request = s.receive_one(client, heartbeat(1))
        poll = s.processor._poll

        def answer_then_poll(timeout_ms: float | None) -> None:
            if not request.terminal:  # this turn's responses were looked after
                s.answer(request)
            poll(timeout_ms)

        monkeypatch.setattr(s.processor, "_poll", answer_then_poll)
        within(WAIT_S / 2, lambda: s.turn(WAIT_MS))
        s.turn()
        assert client.receive()[0] == 1


# ---------------------------------------------------------------------------------------------------- N18


class RefusingAuthenticator:
    complete = False
    principal = None

    def authenticate(self, channel: KafkaChannel) -> None:
        raise AuthenticationError("no")


def refusing(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
    return PlaintextTransportLayer(sock), RefusingAuthenticator()


@pytest.mark.mechanism("N18")
def test_a_failed_authentication_is_closed_after_the_configured_delay() -> None:
    with stepping(
        channel_factory=refusing, config=SocketServerConfig(connection_failed_authentication_delay_ms=250)
    ) as s:
        client = s.connect()
        client.send(heartbeat(1))
        s.turn(WAIT_MS)
        s.clock.advance(249)
        s.turn()
        assert client.is_silent
        assert s.quotas.total == 1
        s.clock.advance(1)
        s.turn()
        client.await_close()
        assert s.quotas.total == 0
        assert s.received == 0


@pytest.mark.mechanism("N18")
def test_an_idle_connection_is_closed_and_counted() -> None:
    with stepping(config=SocketServerConfig(connections_max_idle_ms=60_000)) as s:
        idle, busy = s.connect(), s.connect()
        s.clock.advance(40_000)
        s.answer(s.receive_one(busy, heartbeat(1)))
        s.turn()
        s.clock.advance(20_001)
        s.turn()
        idle.await_close()
        assert s.processor.selector.stats.idle_closed == 1
        assert (s.quotas.total, len(s.disconnected)) == (1, 1)
        assert busy.receive()[0] == 1


# ---------------------------------------------------------------------------------------------------- N19


@pytest.mark.mechanism("N19")
def test_a_connection_id_has_both_addresses_and_an_index() -> None:
    with stepping() as s:
        clients = [s.connect() for _ in range(3)]
        assert list(s.selector.channels) == [
            f"{client.peer}-{client.address}-{index}" for index, client in enumerate(clients)
        ]


@pytest.mark.mechanism("N19")
def test_the_index_starts_again_after_the_largest_number() -> None:
    with stepping() as s:
        s.processor._next_index = 2**31 - 1
        s.connect()
        s.connect()
        assert [name.rpartition("-")[2] for name in s.selector.channels] == [str(2**31 - 1), "0"]


@pytest.mark.mechanism("N19")
@every_policy
def test_a_late_response_does_not_get_to_the_next_connection_of_the_same_ports(policy: Policy) -> None:
    with stepping(policy) as s:
        old = s.connect(source=("127.0.0.1", 0))
        address = old.socket.getsockname()
        request = s.receive_one(old, heartbeat(1))
        old.reset()
        new = s.connect(source=address)
        assert new.socket.getsockname() == address
        assert [name.rpartition("-")[0] for name in s.selector.channels] == [request.connection_id[:-2]] * 2
        assert s.receive_one(new, heartbeat(2)).connection_id != request.connection_id
        s.answer(request)
        s.turn()
        s.turn()
        assert new.is_silent
        assert s.disconnected == [request.connection_id]


# ---------------------------------------------------------------------------------------------------- N07


@pytest.mark.mechanism("N07")
@every_policy
def test_request_memory_is_held_from_the_first_byte_until_the_handler_is_done(policy: Policy) -> None:
    pool = SimpleMemoryPool(10_000, 10_000)
    config = SocketServerConfig(socket_request_max_bytes=10_000)
    seen: list[int] = []

    def handle(request: Request, local: RequestLocal) -> None:
        seen.append(pool.available)
        s.arrived.put(request)

    with stepping(policy, handle, pool=pool, config=config) as s:
        client = s.connect()
        frame = heartbeat(1, size=500)
        client.send(frame[:50])
        s.turn(PART_MS)
        assert pool.available == 10_000 - (len(frame) - 4)
        client.send(frame[50:])
        s.turn_until(lambda: s.received)
        if policy.hand_off == "queue":
            assert pool.available == 10_000 - (len(frame) - 4)
            s.handle_next()
        assert seen == [10_000 - (len(frame) - 4)]
        assert pool.available == 10_000, "though it is not answered yet"
