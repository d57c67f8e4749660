"""Requests through the whole server, with every hand-off policy: order, bounds, callbacks, the timeline.

What a handler has to wait for is parked or gated: no test sleeps, and no result depends on how fast this machine is.
"""

from __future__ import annotations

import queue
import random
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    WAIT_S,
    Echo,
    Policy,
    every_policy,
    heartbeat,
    leave_group,
    serving,
)

# ---------------------------------------------------------------------------------------------------- N08


class Scheduler:
    """Lets handlers go on one by one, in an order that it draws: delays of any length, without a clock."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._paused: queue.Queue[threading.Event] = queue.Queue()
        self._held: list[threading.Event] = []

    def pause(self) -> None:
        gate = threading.Event()
        self._paused.put(gate)
        assert gate.wait(WAIT_S), "never let go"

    def release_one(self) -> None:
        if not self._held:
            self._held.append(self._paused.get(timeout=WAIT_S))
        while not self._paused.empty():
            self._held.append(self._paused.get())
        self._held.pop(self._choose.randrange(len(self._held))).set()


@pytest.mark.mechanism("N08")
@every_policy
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("blocking", [False, True], ids=["short", "mixed"])
def test_pipelined_requests_of_a_connection_are_handled_one_by_one_in_order(
    policy: Policy, seed: int, blocking: bool
) -> None:
    """Though there are many handlers, and each takes as long as it likes."""
    connections, pipelined = 5, 12
    scheduler = Scheduler(seed)
    handled: dict[str, list[int]] = defaultdict(list)
    inside: set[str] = set()
    overlaps: list[str] = []
    lock = threading.Lock()

    def handle(request: Request, local: RequestLocal) -> None:
        with lock:
            if request.connection_id in inside:
                overlaps.append(request.connection_id)
            inside.add(request.connection_id)
        scheduler.pause()
        with lock:
            inside.discard(request.connection_id)
            handled[request.connection_id].append(request.correlation_id)
        server.answer(request)

    # What is short never waits, so here, where all handlers wait, nothing is short but for what a network thread does.
    inline = frozenset({ApiKey.HEARTBEAT}) if policy is Policy.DIRECT else frozenset()
    with serving(policy, handle, num_network_threads=2, io_threads=6, inline_apis=inline) as server:
        clients = [server.connect() for _ in range(connections)]
        for client in clients:
            frames = [heartbeat(n) if n % 3 or not blocking else leave_group(n) for n in range(pipelined)]
            client.send(*frames)
        for _ in range(connections * pipelined):
            scheduler.release_one()
        for client in clients:
            assert client.receive_ids(pipelined) == list(range(pipelined))
        assert len(handled) == connections
        assert all(numbers == list(range(pipelined)) for numbers in handled.values())
        assert overlaps == []


@pytest.mark.mechanism("N08")
@every_policy
def test_responses_of_any_order_go_to_their_connections(policy: Policy) -> None:
    """Requests that wait in a purgatory are answered from other threads, in whatever order they complete."""
    with serving(policy, num_network_threads=2) as server:
        clients = [server.connect() for _ in range(8)]
        choose = random.Random(1)
        waiting: list[Request] = []
        for number, client in enumerate(clients):
            client.send(*(heartbeat(100 * number + step) for step in range(5)))
        for _ in range(40):
            if not waiting:
                waiting.append(server.next_request())
            while not server.arrived.empty():
                waiting.append(server.next_request())
            assert len({request.connection_id for request in waiting}) == len(waiting), "one of each connection"
            server.answer(waiting.pop(choose.randrange(len(waiting))))
        for number, client in enumerate(clients):
            assert client.receive_ids(5) == [100 * number + step for step in range(5)]


# ---------------------------------------------------------------------------------------------------- N11, N07


@pytest.mark.mechanism("N11")
@every_policy
def test_a_full_queue_holds_up_the_network_threads_and_nothing_is_lost(policy: Policy) -> None:
    clock = MockClock()
    entered, gate = threading.Event(), threading.Semaphore(0)

    def handle(request: Request, local: RequestLocal) -> None:
        entered.set()
        assert gate.acquire(timeout=WAIT_S)
        server.answer(request)

    with serving(policy, handle, clock=clock, queue_size=2, io_threads=1) as server:
        clients = [server.connect() for _ in range(10)]
        clients[0].send(leave_group(0))
        assert entered.wait(WAIT_S)
        for number, client in enumerate(clients[1:], 1):
            client.send(leave_group(number))
        # The only handler is stuck, so the only one to wait on this clock is the network thread: for room.
        assert clock.await_waiters(1)
        assert server.channel.request_queue_size == 2
        for _ in clients:
            gate.release()
        assert [client.receive()[0] for client in clients] == list(range(10))


@pytest.mark.mechanism("N07")
@every_policy
def test_request_memory_is_bounded_and_reading_goes_on_when_it_is_free_again(policy: Policy) -> None:
    gate = threading.Semaphore(0)
    held: list[int] = []

    def handle(request: Request, local: RequestLocal) -> None:
        held.append(server.sockets.memory_pool.size - server.sockets.memory_pool.available)
        assert gate.acquire(timeout=WAIT_S)
        server.answer(request)

    settings: dict[str, Any] = {"queued_max_request_bytes": 4000, "socket_request_max_bytes": 4000}
    with serving(policy, handle, io_threads=4, inline_apis=frozenset(), **settings) as server:
        frame = heartbeat(1, size=1500)
        clients = [server.connect() for _ in range(12)]
        for client in clients:
            client.send(frame)
        for _ in clients:
            gate.release()
        for client in clients:
            assert client.receive()[0] == 1
        assert len(held) == 12
        assert max(held) <= 4000 + len(frame), "one request for each network thread may overdraw"


@pytest.mark.mechanism("N07")
@every_policy
def test_all_request_memory_comes_back_from_any_kind_of_end(policy: Policy) -> None:
    """That the pool is full again is what ``serving`` looks at in the end."""
    echo = Echo(7)
    settings: dict[str, Any] = {
        "queued_max_request_bytes": 10_000,
        "socket_request_max_bytes": 5000,
        "apis": {ApiKey.HEARTBEAT},
    }
    with serving(policy, echo, **settings) as server:
        echo.server = server
        half, rude, oversize, garbage, disabled, parked, good = (server.connect() for _ in range(7))
        half.send(heartbeat(1, size=3000)[:100])
        half.close()
        rude.send(heartbeat(1, size=3000)[:2000])
        rude.reset()
        oversize.send(struct.pack(">i", 5001))
        garbage.send(struct.pack(">i", 8) + b"\xff" * 8)
        disabled.send(leave_group(1))
        parked.send(heartbeat(7, size=3000))
        server.await_disconnects(5)
        for _ in range(5):
            assert good.ask(1) == 1
        server.channel.close_connection(server.next_request())
        parked.await_close()
        assert good.ask(2) == 2
        assert server.sockets.memory_pool.available == 10_000


# ---------------------------------------------------------------------------------------------------- N13


@pytest.mark.mechanism("N13")
@every_policy
def test_a_completion_on_a_foreign_thread_goes_on_on_a_handler(policy: Policy) -> None:
    completions: queue.Queue[Callable[[Any], None]] = queue.Queue()
    threads: list[tuple[str, bool]] = []

    def handle(request: Request, local: RequestLocal) -> None:
        def go_on(own: RequestLocal, result: bytes) -> None:
            threads.append((threading.current_thread().name, own.is_confined))
            server.answer(request, result)

        completions.put(local.wrap_async_callback(go_on))

    with serving(policy, handle) as server:
        client = server.connect()
        client.send(heartbeat(1), heartbeat(2))
        for number in (1, 2):
            completions.get(timeout=WAIT_S)(b"result %d" % number)
            assert client.receive() == (number, b"result %d" % number)
    assert all(name.startswith("data-plane-kafka-request-handler-") and own for name, own in threads)
    assert len(threads) == 2


@pytest.mark.mechanism("N13")
@every_policy
def test_a_completion_on_its_own_thread_runs_there(policy: Policy) -> None:
    threads: list[tuple[threading.Thread, threading.Thread]] = []

    def handle(request: Request, local: RequestLocal) -> None:
        handler = threading.current_thread()

        def go_on(own: RequestLocal, result: object) -> None:
            assert own is local
            threads.append((handler, threading.current_thread()))
            server.answer(request)

        local.wrap_async_callback(go_on)(None)

    with serving(policy, handle) as server:
        assert server.connect().ask(1) == 1
    ((before, after),) = threads
    assert before is after
    expected = "network-thread" if policy is Policy.DIRECT else "request-handler"
    assert f"data-plane-kafka-{expected}-" in before.name


# ---------------------------------------------------------------------------------------------------- N20


@pytest.mark.mechanism("N20")
@every_policy
def test_the_timeline_of_a_request_adds_up_through_the_whole_server(policy: Policy) -> None:
    clock = MockClock()
    echo = Echo()

    def handle(request: Request, local: RequestLocal) -> None:
        if request.api_key is ApiKey.FETCH:
            echo(request, local)
            return
        clock.advance(5)  # local work
        server.arrived.put(request)

    with serving(policy, handle, clock=clock, io_threads=1) as server:
        echo.server = server
        client, other = server.connect(), server.connect()
        client.send(heartbeat(1, size=50))
        request = server.next_request()
        # A second request through the same threads: when it is answered, they are done with the first one.
        other.send(fetch())
        other.receive()
        clock.advance(7)  # waiting for others
        server.answer(request)
        client.receive()
        other.send(fetch())
        other.receive()
        assert server.times_of("Heartbeat") == {
            "RequestQueueTimeMs": 0,
            "LocalTimeMs": 5,
            "RemoteTimeMs": 7,
            "ThrottleTimeMs": 0,
            "ResponseQueueTimeMs": 0,
            "ResponseSendTimeMs": 0,
            "TotalTimeMs": 12,
            "RequestBytes": len(heartbeat(1, size=50)) - 4,
        }


def fetch() -> bytes:
    return encode_request(FetchRequest(), 12, 1, "c")
