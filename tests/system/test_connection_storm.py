"""A storm of connections on the listener for clients, and what brokers notice of it on theirs: nothing.

With a clock that stands still it can be shown that nothing there waits for anything: the storm is held up until the
test moves the clock, and everything that is asked on the inter-broker listener is answered before that. One test runs
on real time and measures. The same with 5,000 connects is ``python -m benchmarks connections``.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.connections import STORM_ADDRESS, Child, percentile

from barnabas.common.clock import SYSTEM_CLOCK, Clock, MockClock
from barnabas.network.server.connection_limits import ConnectionLimits
from barnabas.network.server.endpoint import Endpoint
from machine_speed import slowdown
from network_fixtures import WAIT_S, Client, Policy, Server, every_policy
from system.system_fixtures import answering, descriptors

CLIENTS, BROKERS = "EXTERNAL", "REPLICATION"
CONNECTS = 500
BURST = 50
"""Connections a second that are allowed; so many may come at once."""


@pytest.fixture(autouse=True)
def _needs_a_second_address() -> None:
    """Limits are by address, so the storm must not come from that of the brokers. Linux has all of 127.0.0.0/8."""
    with socket.socket() as sock:
        try:
            sock.bind((STORM_ADDRESS, 0))
        except OSError as error:
            pytest.skip(f"{STORM_ADDRESS} is no address of this machine: {error}")


@contextmanager
def two_listeners(policy: Policy, clock: Clock, listener_rates: dict[str, int]) -> Iterator[Server]:
    limits = ConnectionLimits(
        inter_broker_listener=BROKERS,
        quota_samples=2,  # with the usual eleven the limit would be met after ten seconds' worth of connections
        listener_max_connection_creation_rate=listener_rates,
    )
    settings: dict[str, Any] = {
        "endpoints": [Endpoint(CLIENTS, port=0), Endpoint(BROKERS, port=0)],
        "limits": limits,
        "socket_listen_backlog_size": 1024,
    }
    with descriptors(2 * CONNECTS), answering(policy, clock=clock, **settings) as server:
        yield server


class Broker:
    """A client of the inter-broker listener: an open connection, and a new one each time it asks."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open = server.connect(BROKERS)
        self.asked = 0
        self.seconds: list[float] = []
        self.ask()

    def ask(self) -> None:
        self.asked += 1
        started = time.perf_counter()
        assert self._open.ask(self.asked) == self.asked
        with Client.connect(self._server.sockets.bound_port(BROKERS)) as fresh:
            assert fresh.ask(self.asked) == self.asked
        self.seconds.append(time.perf_counter() - started)


def storm(server: Server, count: int = CONNECTS) -> Child:
    child = Child("storm", server.sockets.bound_port(CLIENTS), count, STORM_ADDRESS)
    try:
        assert child.hear() == "ready"
        child.tell("go")
    except BaseException:
        child.kill()
        raise
    return child


def acceptors_that_waited(server: Server) -> dict[str, float]:
    """For how many seconds the acceptor of which listener has waited, for a rate or for a processor."""
    seconds: defaultdict[str, float] = defaultdict(float)
    while not server.blocked.empty():
        listener, nanoseconds = server.blocked.get_nowait()
        seconds[listener] += nanoseconds / 1e9
    return seconds


@every_policy
def test_an_address_that_connects_too_fast_is_parked_and_turned_away(policy: Policy) -> None:
    clock = MockClock()
    with two_listeners(policy, clock, {}) as server:
        server.sockets.quotas.update_ip_connection_rate(STORM_ADDRESS, BURST)
        acceptor = server.sockets.acceptors[CLIENTS]
        broker = Broker(server)
        with storm(server) as child:
            deadline = time.monotonic() + WAIT_S
            while acceptor.accepted + acceptor.refused < CONNECTS and time.monotonic() < deadline:
                broker.ask()
            for _ in range(20):
                broker.ask()
            accepted = acceptor.accepted
            assert 0 < accepted <= BURST + 1
            assert acceptor.throttled == acceptor.refused == CONNECTS - accepted, "all others are parked"
            clock.advance(1_001)  # no delay is longer than a window
            outcome = child.hear()
        assert len(outcome["answered"]) == accepted
        assert len(outcome["closed"]) == CONNECTS - accepted
        assert outcome["unsettled"] == acceptor.throttled == 0
        server.await_disconnects(accepted + broker.asked)
        assert server.sockets.quotas.total == 1
        assert BROKERS not in acceptors_that_waited(server)


@every_policy
def test_a_listener_that_is_connected_to_too_fast_waits_by_itself(policy: Policy) -> None:
    clock = MockClock()
    with two_listeners(policy, clock, {CLIENTS: BURST, BROKERS: 100_000}) as server:
        acceptor = server.sockets.acceptors[CLIENTS]
        broker = Broker(server)
        with storm(server) as child:
            deadline = time.monotonic() + WAIT_S
            while acceptor.accepted < BURST and time.monotonic() < deadline:
                broker.ask()
            for _ in range(20):
                broker.ask()
            assert acceptor.accepted <= BURST + 1, "the others wait in the backlog"
            while acceptor.accepted < CONNECTS and time.monotonic() < deadline:
                clock.advance(50)
                broker.ask()
            outcome = child.hear()
        assert len(outcome["answered"]) == CONNECTS
        assert outcome["closed"] == []
        server.await_disconnects(CONNECTS + broker.asked)
        assert server.sockets.quotas.total == 1
        waited = acceptors_that_waited(server)
        assert set(waited) == {CLIENTS}
        assert waited[CLIENTS] > CONNECTS / BURST - 3, "a second for every so many, but for the first and the last"


@every_policy
def test_connections_that_are_gone_before_they_are_accepted_leave_nothing(policy: Policy) -> None:
    clock = MockClock()
    with two_listeners(policy, clock, {CLIENTS: BURST, BROKERS: 100_000}) as server:
        acceptor = server.sockets.acceptors[CLIENTS]
        broker = Broker(server)
        port = server.sockets.bound_port(CLIENTS)
        clients = [Client.connect(port, source=(STORM_ADDRESS, 0)) for _ in range(4 * BURST)]
        for number, client in enumerate(clients):
            client.close() if number % 2 else client.reset()
        deadline = time.monotonic() + WAIT_S
        while acceptor.accepted < len(clients) and time.monotonic() < deadline:
            clock.advance(50)
            broker.ask()
        server.await_disconnects(len(clients) + broker.asked)
        assert server.sockets.quotas.total == 1


@every_policy
def test_stopping_in_the_middle_of_a_storm(policy: Policy) -> None:
    """An acceptor that waits for its rate, parked connections and a backlog keep nobody from stopping."""
    clock = MockClock()
    with two_listeners(policy, clock, {CLIENTS: 2 * BURST, BROKERS: 100_000}) as server:
        server.sockets.quotas.update_ip_connection_rate(STORM_ADDRESS, BURST)
        acceptor = server.sockets.acceptors[CLIENTS]
        broker = Broker(server)
        port = server.sockets.bound_port(CLIENTS)
        for source in (STORM_ADDRESS, "127.0.0.1"):
            server.clients += [Client.connect(port, source=(source, 0)) for _ in range(3 * BURST)]
        deadline = time.monotonic() + WAIT_S
        while acceptor.accepted < 2 * BURST and time.monotonic() < deadline:
            broker.ask()
        assert acceptor.throttled >= BURST, "those of the one address are parked"
        assert acceptor.accepted + acceptor.refused < 6 * BURST, "some of the other are in the backlog"
        server.sockets.stop_processing_requests()


@pytest.mark.parametrize("policy", [Policy.QUEUE, Policy.DIRECT], ids=lambda policy: policy.name.lower())
def test_brokers_are_answered_in_milliseconds_while_clients_wait_for_seconds(policy: Policy) -> None:
    with two_listeners(policy, SYSTEM_CLOCK, {CLIENTS: 200, BROKERS: 100_000}) as server:
        broker = Broker(server)
        with storm(server) as child:
            deadline = time.monotonic() + WAIT_S
            while server.sockets.acceptors[CLIENTS].accepted < CONNECTS and time.monotonic() < deadline:
                broker.ask()
            slow = slowdown()
            outcome = child.hear()
        server.await_disconnects(CONNECTS + broker.asked)
        assert server.sockets.quotas.total == 1
    assert len(outcome["answered"]) == CONNECTS
    held_up = percentile(outcome["answered"], 0.9) / 1000
    assert held_up > 0.5
    # A busy machine holds up the brokers, too, but not by the rate of the clients' listener.
    assert percentile(broker.seconds, 0.5) < held_up / 20 * min(slow, 8.0)
    assert percentile(broker.seconds, 0.99) < held_up / 4
