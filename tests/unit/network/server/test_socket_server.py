"""The socket server's life: ports, start-up in three steps, its threads, changes while it runs, its end."""

from __future__ import annotations

import errno
import socket
import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, MockClock
from barnabas.metrics.registry import Metrics
from barnabas.network.reactor import selector as selector_module
from barnabas.network.reactor.poller import Poller, make_poller
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_quotas import ConnectionLimits
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.network.server.socket_server import SocketServer
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    LISTENER,
    WAIT_S,
    Client,
    Plane,
    Policy,
    Server,
    heartbeat,
    nothing_left_behind,
    serving,
)

EXTERNAL, INTERNAL = "EXTERNAL", "INTERNAL"
TWO = (Endpoint(EXTERNAL, port=0), Endpoint(INTERNAL, port=0))


def echo(server: list[Server]) -> Any:
    """A handler that answers at once. The server is put into the list when it is there."""

    def handle(request: Request, local: RequestLocal) -> None:
        server[0].answer(request)

    return handle


def names(prefix: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


NETWORK = "data-plane-kafka-network-thread-"
ACCEPTOR = "data-plane-kafka-socket-acceptor-"


# ---------------------------------------------------------------------------------------------------- N01


@pytest.mark.mechanism("N01")
def test_each_listener_has_its_acceptor_and_its_own_processors() -> None:
    with serving(
        Policy.QUEUE, endpoints=TWO, num_network_threads=3, listener_num_network_threads={INTERNAL: 2}
    ) as server:
        sockets = server.sockets
        assert set(sockets.acceptors) == {EXTERNAL, INTERNAL}
        external, internal = sockets.acceptors[EXTERNAL], sockets.acceptors[INTERNAL]
        assert (len(external.processors), len(internal.processors)) == (3, 2)
        assert [processor.id for processor in sockets.processors] == [0, 1, 2, 3, 4], "no number twice"
        assert sockets.bound_port(EXTERNAL) != sockets.bound_port(INTERNAL)
        assert [endpoint.port for endpoint in sockets.endpoints] == [
            sockets.bound_port(EXTERNAL),
            sockets.bound_port(INTERNAL),
        ]
        for listener in (EXTERNAL, INTERNAL):
            for _ in range(4):
                server.connect(listener).send(heartbeat(1))
            requests = [server.next_request() for _ in range(4)]
            assert {request.context.listener_name for request in requests} == {listener}
            own = {processor.id for processor in sockets.acceptors[listener].processors}
            assert {request.processor_id for request in requests} == own


@pytest.mark.mechanism("N01")
def test_the_metrics_of_a_listener_have_its_name() -> None:
    limits = ConnectionLimits(max_connections_per_ip=10**6)
    with serving(Policy.QUEUE, endpoints=TWO, limits=limits) as server:
        for listener in (EXTERNAL, INTERNAL):
            tagged = [name for name in server.metrics.metrics if name.tags.get("listener") == listener]
            assert tagged
            server.sockets.acceptors[listener]._blocked(5)
            assert server.blocked.get(timeout=WAIT_S) == (listener, 5)


@pytest.mark.mechanism("N01")
def test_requests_of_the_inter_broker_listener_are_privileged() -> None:
    limits = ConnectionLimits(inter_broker_listener=INTERNAL)
    with serving(Policy.QUEUE, endpoints=TWO, limits=limits) as server:
        for listener in (EXTERNAL, INTERNAL):
            server.connect(listener).send(heartbeat(1))
            assert server.next_request().context.from_privileged_listener == (listener == INTERNAL)


@pytest.mark.mechanism("N01")
def test_two_listeners_cannot_have_the_same_name() -> None:
    with nothing_left_behind(), pytest.raises(ValueError, match="two listeners called A"):
        Server(Policy.QUEUE, endpoints=[Endpoint("A", port=0), Endpoint("A", port=0)])


@pytest.mark.mechanism("N01")
def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    with nothing_left_behind(), socket.create_server(("127.0.0.1", 0)) as taken:
        endpoints = [Endpoint("A", port=0), Endpoint("B", port=taken.getsockname()[1])]
        with pytest.raises(OSError, match="cannot open B://"):
            Server(Policy.QUEUE, endpoints=endpoints)


@pytest.mark.mechanism("N01")
def test_an_endpoint_is_written_like_a_listener() -> None:
    assert str(Endpoint("EXTERNAL", SecurityProtocol.SSL, "kafka.example", 9093)) == "EXTERNAL://kafka.example:9093"
    assert str(Endpoint("A", host="::1", port=1)) == "A://[::1]:1"
    assert Endpoint("A", host="h", port=1) == Endpoint("A", SecurityProtocol.PLAINTEXT, "h", 1)


@pytest.mark.mechanism("N01")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_network_threads": 0}, "num.network.threads"),
        ({"socket_request_max_bytes": 0}, "socket.request.max.bytes"),
        ({"socket_listen_backlog_size": 0}, "socket.listen.backlog.size"),
        ({"queued_max_request_bytes": 10, "socket_request_max_bytes": 11}, "queued.max.request.bytes"),
        ({"connections_max_idle_ms": 100}, "must be less than connections.max.idle.ms"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SocketServerConfig(**settings)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- N02


@pytest.mark.mechanism("N02")
def test_making_a_server_opens_its_ports_and_starts_nothing() -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box), started=False, endpoints=TWO) as server:
        box.append(server)
        assert names(NETWORK) == names(ACCEPTOR) == []
        early = [server.connect(EXTERNAL), server.connect(INTERNAL)]
        for client in early:
            client.send(heartbeat(1))
        assert all(client.is_silent for client in early)
        server.start()
        assert len(names(NETWORK)) == len(names(ACCEPTOR)) == 2
        assert [client.receive()[0] for client in early] == [1, 1], "who came early is served"


@pytest.mark.mechanism("N02")
def test_each_listener_starts_when_its_authorizer_is_ready() -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box), started=False, endpoints=TWO) as server:
        box.append(server)
        futures: dict[str, Future[None]] = {EXTERNAL: Future(), INTERNAL: Future()}
        all_started = server.sockets.enable_request_processing(futures)
        external, internal = server.connect(EXTERNAL), server.connect(INTERNAL)
        external.send(heartbeat(1))
        assert names(ACCEPTOR) == []
        futures[INTERNAL].set_result(None)
        assert internal.ask(2) == 2
        assert len(names(ACCEPTOR)) == 1
        assert external.is_silent
        assert not all_started.done()
        futures[EXTERNAL].set_result(None)
        assert all_started.result(WAIT_S) is None
        assert external.receive()[0] == 1


@pytest.mark.mechanism("N02")
def test_a_listener_without_an_authorizer_starts_at_once() -> None:
    with serving(Policy.DIRECT, started=False, endpoints=TWO) as server:
        future: Future[None] = Future()
        all_started = server.sockets.enable_request_processing({EXTERNAL: future})
        assert server.sockets.acceptors[INTERNAL].started_future.done()
        assert not all_started.done()
        future.set_result(None)
        assert all_started.result(WAIT_S) is None
        assert server.sockets.enable_request_processing() is all_started


@pytest.mark.mechanism("N02")
@pytest.mark.parametrize("cancelled", [False, True], ids=["failed", "cancelled"])
def test_an_authorizer_that_fails_keeps_its_listener_closed(cancelled: bool) -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box), started=False, endpoints=TWO) as server:
        box.append(server)
        futures: dict[str, Future[None]] = {EXTERNAL: Future(), INTERNAL: Future()}
        all_started = server.sockets.enable_request_processing(futures)
        if cancelled:
            futures[EXTERNAL].cancel()
        else:
            futures[EXTERNAL].set_exception(PermissionError("no ACLs"))
        with pytest.raises(CancelledError if cancelled else PermissionError):
            all_started.result(WAIT_S)
        futures[INTERNAL].set_result(None)
        assert server.connect(INTERNAL).ask(1) == 1, "the other one is not concerned"
        started = {name: acceptor.started_future for name, acceptor in server.sockets.acceptors.items()}
        assert started[EXTERNAL].exception() is not None
        assert started[INTERNAL].exception() is None
        assert len(names(ACCEPTOR)) == 1


@pytest.mark.mechanism("N02")
def test_a_server_that_is_stopped_before_its_authorizers_are_ready_never_starts() -> None:
    with serving(Policy.DIRECT, started=False, endpoints=TWO) as server:
        future: Future[None] = Future()
        all_started = server.sockets.enable_request_processing({EXTERNAL: future, INTERNAL: future})
        client = server.connect(EXTERNAL)
        server.sockets.shutdown()
        with pytest.raises(RuntimeError, match="was shut down before it was started"):
            all_started.result(WAIT_S)
        future.set_result(None)
        assert names(ACCEPTOR) == names(NETWORK) == []
        client.await_close()
        with pytest.raises(RuntimeError, match="stopped"):
            server.sockets.enable_request_processing()


@pytest.mark.mechanism("N02")
def test_a_server_without_listeners_is_live_at_once() -> None:
    clock = MockClock()
    plane = Plane(Policy.QUEUE, clock=clock)
    server = SocketServer(0, [], SocketServerConfig(), plane.data_plane, Metrics(clock=clock), clock)
    assert server.enable_request_processing().result(0) is None
    server.shutdown()


# ---------------------------------------------------------------------------------------------------- N22


@pytest.mark.mechanism("N22")
def test_the_threads_of_a_server_are_those_of_the_census() -> None:
    before = set(threading.enumerate())
    with serving(Policy.QUEUE, endpoints=TWO, num_network_threads=2, io_threads=3) as server:
        port = {listener: server.sockets.bound_port(listener) for listener in (EXTERNAL, INTERNAL)}
        census = {
            **{f"{ACCEPTOR}{listener}-PLAINTEXT-{port[listener]}": False for listener in (EXTERNAL, INTERNAL)},
            **{f"{NETWORK}0-EXTERNAL-PLAINTEXT-{number}": False for number in (0, 1)},
            **{f"{NETWORK}0-INTERNAL-PLAINTEXT-{number}": False for number in (2, 3)},
            **{f"data-plane-kafka-request-handler-{number}": True for number in range(3)},
        }
        threads = set(threading.enumerate()) - before
        assert {thread.name: thread.daemon for thread in threads} == census
        assert len(threads) == len(census)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.mechanism("N22")
def test_stopping_closes_connections_in_every_state() -> None:
    with serving(Policy.QUEUE, started=False, io_threads=1) as server:
        server.start()
        idle, half, parked = server.connect(), server.connect(), server.connect()
        half.send(heartbeat(1)[:9])
        parked.send(heartbeat(2))
        request = server.next_request()
        server.sockets.shutdown()
        for client in (idle, half, parked):
            client.await_close()
        server.answer(request)  # too late, and nobody minds
        assert server.sockets.quotas.total == 0
        server.sockets.shutdown()
        with pytest.raises(ConnectionRefusedError):
            Client.connect(server.sockets.bound_port(LISTENER))


@pytest.mark.mechanism("N22")
def test_a_server_that_was_never_started_closes_its_ports() -> None:
    with serving(Policy.QUEUE, started=False) as server:
        client = server.connect()
        server.sockets.shutdown()
        client.await_close()


# ---------------------------------------------------------------------------------------------------- N23


@pytest.mark.mechanism("N23")
def test_processors_can_be_added_and_taken_away_while_connections_are_served() -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box), num_network_threads=2) as server:
        box.append(server)
        clients = [server.connect() for _ in range(4)]
        for number, client in enumerate(clients):
            assert client.ask(number) == number
        server.sockets.resize_thread_pool(LISTENER, 4)
        assert len(names(NETWORK)) == len(server.sockets.processors) == 4
        for number, client in enumerate(clients):
            assert client.ask(number) == number, "old connections go on"
        newer = [server.connect() for _ in range(4)]
        for number, client in enumerate(newer):
            assert client.ask(number) == number
        assert [len(processor.selector.channels) for processor in server.sockets.processors] == [3, 3, 1, 1]
        server.sockets.resize_thread_pool(LISTENER, 2)
        assert len(names(NETWORK)) == len(server.sockets.processors) == 2
        assert len(server.await_disconnects(2)) == 2, "those of the processors that are gone"
        for number, client in enumerate(clients):
            assert client.ask(number) == number
        assert server.sockets.quotas.total == 6
        for number in range(5):
            assert server.connect().ask(number) == number
        server.sockets.resize_thread_pool(LISTENER, 1)
        assert server.connect().ask(9) == 9


@pytest.mark.mechanism("N23")
def test_one_step_may_at_most_halve_or_double() -> None:
    with serving(Policy.QUEUE, num_network_threads=4) as server:
        for refused in (0, 1, 9, -4):
            with pytest.raises(ValueError, match=f"cannot go from 4 to {refused}"):
                server.sockets.resize_thread_pool(LISTENER, refused)
        assert len(server.sockets.processors) == 4
        server.sockets.resize_thread_pool(LISTENER, 8)
        server.sockets.resize_thread_pool(LISTENER, 8)
        server.sockets.resize_thread_pool(LISTENER, 4)
        server.sockets.resize_thread_pool(LISTENER, 3)
        with pytest.raises(ValueError, match="cannot go from 3 to 1"):
            server.sockets.resize_thread_pool(LISTENER, 1)
        assert len(names(NETWORK)) == 3


@pytest.mark.mechanism("N23")
def test_listeners_are_resized_each_for_itself() -> None:
    with serving(Policy.QUEUE, endpoints=TWO, num_network_threads=2) as server:
        server.sockets.resize_thread_pool(INTERNAL, 4)
        assert [len(server.sockets.acceptors[listener].processors) for listener in (EXTERNAL, INTERNAL)] == [2, 4]
        with pytest.raises(KeyError):
            server.sockets.resize_thread_pool("NONE", 2)


@pytest.mark.mechanism("N23")
def test_listeners_are_added_and_removed_while_the_others_serve() -> None:
    server_of: list[Server] = []
    with serving(Policy.QUEUE, echo(server_of), num_network_threads=2) as server:
        server_of.append(server)
        stays = server.connect()
        config = SocketServerConfig(num_network_threads=2, listener_num_network_threads={INTERNAL: 3})
        for _ in range(2):
            server.sockets.add_listeners([Endpoint(INTERNAL, port=0)], config, {})
            assert len(server.sockets.acceptors[INTERNAL].processors) == 3
            goes = server.connect(INTERNAL)
            assert (stays.ask(1), goes.ask(2)) == (1, 2)
            port = server.sockets.bound_port(INTERNAL)
            with pytest.raises(OSError, match="cannot open EXTERNAL"):
                server.sockets.add_listeners([Endpoint(EXTERNAL, port=port)], config, {})
            server.sockets.remove_listeners([INTERNAL])
            assert _closed(goes)
            assert set(server.sockets.acceptors) == {LISTENER}
            assert len(names(NETWORK)) == 2
            assert len(names(ACCEPTOR)) == 1
            assert server.sockets.quotas.listener_count(INTERNAL) == 0
        assert stays.ask(3) == 3


@pytest.mark.mechanism("N23")
def test_a_listener_without_descriptors_for_its_processors_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be advertised, and its clients would wait in a backlog that nobody reads."""
    server_of: list[Server] = []
    with serving(Policy.QUEUE, echo(server_of), num_network_threads=1) as server:
        server_of.append(server)
        config = SocketServerConfig(num_network_threads=2)
        pollers = iter([make_poller])

        def scarce() -> Poller:
            make = next(pollers, None)
            if make is None:
                raise OSError(errno.EMFILE, "Too many open files")
            return make()

        with monkeypatch.context() as patch:
            patch.setattr(selector_module, "make_poller", scarce)
            with pytest.raises(OSError, match="Too many open files"):
                server.sockets.add_listeners([Endpoint(INTERNAL, port=0)], config, {})
        assert set(server.sockets.acceptors) == {LISTENER}
        assert (len(names(NETWORK)), len(names(ACCEPTOR))) == (1, 1)
        server.sockets.add_listeners([Endpoint(INTERNAL, port=0)], config, {})
        assert server.connect(INTERNAL).ask(1) == 1
        assert len(server.sockets.processors) == 3


@pytest.mark.mechanism("N23")
def test_the_response_to_a_connection_of_a_processor_that_is_gone_is_dropped() -> None:
    with serving(Policy.QUEUE, num_network_threads=2) as server:
        clients = [server.connect(), server.connect()]
        for client in clients:
            client.send(heartbeat(1))
        requests = {request.processor_id: request for request in (server.next_request(), server.next_request())}
        server.sockets.resize_thread_pool(LISTENER, 1)
        (left,) = server.sockets.processors
        for request in requests.values():
            server.answer(request)
        answered = [client for client in clients if not _closed(client)]
        assert [client.receive()[0] for client in answered] == [1]
        assert left.id in requests


def _closed(client: Client) -> bool:
    return client.socket.recv(1, socket.MSG_PEEK) == b""


@pytest.mark.mechanism("N23")
def test_a_server_can_be_resized_before_it_starts_and_not_after_it_ended() -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box), started=False, num_network_threads=2) as server:
        box.append(server)
        server.sockets.resize_thread_pool(LISTENER, 3)
        assert names(NETWORK) == []
        server.start()
        assert len(names(NETWORK)) == 3
        for number in range(3):
            assert server.connect().ask(number) == number
        server.sockets.shutdown()
        server.sockets.resize_thread_pool(LISTENER, 6)
        assert names(NETWORK) == []


@pytest.mark.mechanism("N23")
@pytest.mark.mechanism("N04")
def test_caps_can_be_changed_while_the_server_runs() -> None:
    box: list[Server] = []
    with serving(Policy.DIRECT, echo(box)) as server:
        box.append(server)
        first = server.connect()
        assert first.ask(1) == 1
        server.sockets.quotas.update_max_connections_per_ip(1)
        server.connect().await_close()
        assert first.ask(2) == 2, "who is there stays"
        assert server.sockets.connection_count("127.0.0.1") == 1
        server.sockets.quotas.update_max_connections_per_ip(2)
        assert server.connect().ask(3) == 3


@pytest.mark.mechanism("N23")
@pytest.mark.mechanism("N05")
def test_a_lower_cap_closes_the_least_recently_active_connections() -> None:
    box: list[Server] = []
    clock = MockClock()
    with serving(Policy.DIRECT, echo(box), clock=clock) as server:
        box.append(server)
        clients = []
        for number in range(4):
            clients.append(server.connect())
            clock.advance(1)
            assert clients[number].ask(number) == number
        server.sockets.quotas.update_broker_max_connections(2)
        server.await_disconnects(2)
        for client in clients[:2]:
            client.await_close()
        for number, client in enumerate(clients[2:]):
            assert client.ask(number) == number


@pytest.mark.mechanism("N05")
def test_brokers_get_in_where_clients_have_taken_all_places() -> None:
    """The inter-broker listener may exceed the cap, and a client is closed to make room."""
    box: list[Server] = []
    limits = ConnectionLimits(max_connections=2, inter_broker_listener=INTERNAL)
    clock = MockClock()
    with serving(Policy.DIRECT, echo(box), endpoints=TWO, limits=limits, clock=clock) as server:
        box.append(server)
        old = server.connect(EXTERNAL)
        assert old.ask(1) == 1
        clock.advance(1)
        recent = server.connect(EXTERNAL)
        assert recent.ask(2) == 2
        broker = server.connect(INTERNAL)
        assert broker.ask(3) == 3
        old.await_close()
        assert recent.ask(4) == 4
        assert broker.ask(5) == 5


@pytest.mark.mechanism("N03")
def test_connections_are_spread_over_the_processors() -> None:
    with serving(Policy.QUEUE, num_network_threads=3) as server:
        for number in range(9):
            server.connect().send(heartbeat(number))
            server.next_request()
        assert [len(processor.selector.channels) for processor in server.sockets.processors] == [3, 3, 3]


@pytest.mark.mechanism("N22")
def test_a_server_says_where_it_listens() -> None:
    with serving(Policy.QUEUE, clock=SYSTEM_CLOCK) as server:
        port = server.sockets.bound_port(LISTENER)
        assert repr(server.sockets) == f"SocketServer(PLAINTEXT://127.0.0.1:{port})"
        assert repr(server.sockets.processors[0]) == "Processor(0 of PLAINTEXT, 0 connections)"
