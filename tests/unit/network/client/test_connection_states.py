"""The states of connections: legal transitions, back-off, set-up time-out, addresses, throttling."""

from __future__ import annotations

import itertools
import socket
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import AuthenticationError, SaslAuthenticationError
from barnabas.network.client.connection_states import ClusterConnectionStates
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.host_resolver import ResolvedAddress, UnknownHostError, resolve_all_ips
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node_connection import (
    AUTHENTICATION_FAILED,
    CHECKING_API_VERSIONS,
    CONNECTING,
    DISCONNECTED,
    TRANSITIONS,
    ConnectionState,
    NodeConnectionState,
)
from unit.network.client.client_doubles import MiddleRandom, one_address


def states(**changed: Any) -> ClusterConnectionStates:
    settings: dict[str, Any] = {
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1000,
        "connection_setup_timeout_ms": 10_000,
        "connection_setup_timeout_max_ms": 30_000,
        "resolver": one_address,
        "random": MiddleRandom(),
    }
    return ClusterConnectionStates(**{**settings, **changed})


def addresses(*ips: str) -> list[ResolvedAddress]:
    return [ResolvedAddress(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip) for ip in ips]


# -- transitions


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ConnectionState, ConnectionState)))
def test_only_the_transitions_of_the_table_are_possible(before: ConnectionState, after: ConnectionState) -> None:
    node = NodeConnectionState("host.example")
    node.state = before
    if after in TRANSITIONS[before]:
        node.move_to("1", after)
        assert node.state is after
    else:
        with pytest.raises(RuntimeError, match=f"node 1 is {before.value} and cannot become {after.value}"):
            node.move_to("1", after)


def test_the_table_says_what_the_docstring_says() -> None:
    documented = {}
    for line in (ConnectionState.__doc__ or "").splitlines():
        first, _, rest = line.strip().partition("  ")
        if first in ConnectionState.__members__:
            documented[ConnectionState[first]] = {ConnectionState[name.strip()] for name in rest.split(",")}
    assert documented == TRANSITIONS


def test_a_connection_from_nothing_to_ready_and_back() -> None:
    known = states()
    assert known.state("1") is None
    assert known.can_connect("1", 0)
    assert known.connection_delay("1", 0) == 0
    known.connecting("1", 0, "one.example")
    assert known.state("1") is CONNECTING
    assert (known.is_connecting("1"), known.is_preparing_connection("1"), known.is_connected("1")) == (
        True,
        True,
        False,
    )
    assert not known.can_connect("1", 10**9), "one attempt at a time"
    assert known.connection_delay("1", 0) == 10_000
    known.checking_api_versions("1")
    assert (known.is_connecting("1"), known.is_preparing_connection("1"), known.is_connected("1")) == (
        False,
        True,
        True,
    )
    assert known.state("1") is CHECKING_API_VERSIONS
    assert not known.is_ready("1", 0)
    known.ready("1")
    assert known.is_ready("1", 0)
    assert known.has_ready_nodes(0)
    assert known.connection_delay("1", 0) == FOREVER
    known.disconnected("1", 5, "pulled the plug")
    assert known.state("1") is DISCONNECTED
    assert known.is_disconnected("1")
    assert not known.has_ready_nodes(0)
    assert known.last_error("1") == "pulled the plug"


def test_what_is_not_known_is_neither_connected_nor_disconnected() -> None:
    known = states()
    assert not known.is_connected("1")
    assert not known.is_disconnected("1")
    assert not known.is_connecting("1")
    assert known.last_error("1") is None
    assert known.authentication_error("1") is None
    with pytest.raises(KeyError, match="node 1"):
        known.ready("1")


def test_an_error_is_forgotten_when_the_connection_is_ready_and_not_before() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    known.disconnected("1", 0, "refused")
    known.connecting("1", 100, "one.example")
    known.checking_api_versions("1")
    assert known.last_error("1") == "refused"
    known.ready("1")
    assert known.last_error("1") is None


def test_failed_authentication_is_remembered_until_it_works() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    error: AuthenticationError = SaslAuthenticationError("who?")
    known.authentication_failed("1", 0, error)
    assert known.state("1") is AUTHENTICATION_FAILED
    assert known.is_disconnected("1")
    assert known.authentication_error("1") is error
    assert known.last_error("1") == "who?"
    assert not known.can_connect("1", 49)
    assert known.can_connect("1", 50)
    known.connecting("1", 50, "one.example")
    known.ready("1")
    assert known.authentication_error("1") is None


# -- back-off


def failures(known: ClusterConnectionStates, count: int) -> list[int]:
    """The delays after so many failed attempts in a row, each made as soon as it may."""
    now, delays = 0, []
    for _ in range(count):
        known.connecting("1", now, "one.example")
        known.disconnected("1", now)
        delay = known.connection_delay("1", now)
        assert not known.can_connect("1", now + delay - 1)
        assert known.connection_delay("1", now + delay - 1) == 1
        now += delay
        assert known.can_connect("1", now)
        assert known.connection_delay("1", now + 5) == 0
        delays.append(delay)
    return delays


def test_the_back_off_doubles_up_to_its_limit() -> None:
    assert failures(states(), 8) == [50, 100, 200, 400, 800, 1000, 1000, 1000]


def test_the_back_off_has_jitter() -> None:
    seen = [failures(states(random=Random(seed)), 8) for seed in range(30)]
    for step, middle in enumerate([50, 100, 200, 400, 800, 1000, 1000, 1000]):
        delays = {delays[step] for delays in seen}
        assert len(delays) > 5
        assert min(delays) >= int(middle * 0.8)
        assert max(delays) <= min(middle * 1.2, 1000)
    assert failures(states(random=Random(7)), 8) == failures(states(random=Random(7)), 8), "injected, so repeatable"


def test_only_a_connection_that_gets_ready_resets_the_back_off() -> None:
    known = states()
    failures(known, 4)
    known.connecting("1", 10_000, "one.example")
    known.checking_api_versions("1")
    known.disconnected("1", 10_000)
    assert known.connection_delay("1", 10_000) == 800, "accepted and closed again is a failure like any other"
    known.connecting("1", 20_000, "one.example")
    known.checking_api_versions("1")
    known.ready("1")
    known.disconnected("1", 20_000)
    assert known.connection_delay("1", 20_000) == 50


def test_nodes_do_not_share_their_back_off() -> None:
    known = states()
    failures(known, 3)
    known.connecting("2", 0, "two.example")
    known.disconnected("2", 0)
    assert known.connection_delay("2", 0) == 50


@given(
    initial=st.integers(0, 5000),
    maximum=st.integers(0, 5000),
    attempts=st.integers(0, 10**6),
    jitter=st.sampled_from([0.0, 0.2, 0.9]),
    seed=st.integers(0, 99),
)
def test_a_back_off_stays_within_its_bounds(
    initial: int, maximum: int, attempts: int, jitter: float, seed: int
) -> None:
    backoff = ExponentialBackoff(initial, 2, maximum, jitter, Random(seed)).backoff(attempts)
    assert 0 <= backoff <= maximum
    exact = min(min(initial, maximum) * 2 ** min(attempts, 20), maximum)
    assert backoff >= int(exact * (1 - jitter)) - 1
    if jitter == 0 and initial:
        assert abs(backoff - exact) <= 1


@pytest.mark.parametrize("arguments", [(-1, 2, 5, 0.2), (1, 2, -5, 0.2), (1, 0.5, 5, 0.2), (1, 2, 5, 1.0)])
def test_a_back_off_that_makes_no_sense_is_refused(arguments: tuple[int, float, int, float]) -> None:
    with pytest.raises(ValueError, match="a back-off from"):
        ExponentialBackoff(*arguments, Random(1))


# -- the time that connecting may take


def test_connecting_may_take_longer_from_one_attempt_to_the_next() -> None:
    known = states()
    now = 0
    for expected in (10_000, 20_000, 30_000, 30_000):
        known.connecting("1", now, "one.example")
        assert known.connection_setup_timeout_ms("1") == expected
        assert known.time_to_next_setup_timeout_ms(now) == expected + 1
        assert known.nodes_with_connection_setup_timeout(now + expected) == []
        now += expected + 1
        assert known.nodes_with_connection_setup_timeout(now) == ["1"]
        known.disconnected("1", now)
        assert known.nodes_with_connection_setup_timeout(now + 10**6) == []
        now += 1000
    known.connecting("1", now, "one.example")
    known.checking_api_versions("1")
    assert known.connection_setup_timeout_ms("1") == 10_000, "it does connect"
    assert known.nodes_with_connection_setup_timeout(now + 10**6) == []
    assert known.time_to_next_setup_timeout_ms(now) == FOREVER


def test_removing_a_node_forgets_all_about_it() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    known.remove("1")
    assert known.state("1") is None
    assert known.nodes_with_connection_setup_timeout(10**6) == []
    assert known.last_connect_attempt_ms("1") == -FOREVER


# -- addresses


class Names:
    """A name server whose answers can change, and that counts the questions."""

    def __init__(self, *ips: str) -> None:
        self.ips = ips
        self.asked = 0

    def __call__(self, host: str) -> list[ResolvedAddress]:
        self.asked += 1
        return addresses(*self.ips)


def attempt(known: ClusterConnectionStates, *, host: str = "one.example") -> str:
    known.connecting("1", 0, host)
    return known.current_address("1").ip


def test_all_addresses_of_a_host_are_tried_in_turn_and_then_asked_for_again() -> None:
    names = Names("2001:db8::1", "192.0.2.1", "192.0.2.2")
    known = states(resolver=names)
    tried = []
    for _ in range(3):
        tried.append(attempt(known))
        known.disconnected("1", 0)
    assert tried == ["2001:db8::1", "192.0.2.1", "192.0.2.2"]
    assert names.asked == 1
    names.ips = ("192.0.2.9",)
    assert attempt(known) == "192.0.2.9"
    assert names.asked == 2


def test_an_address_comes_with_its_family() -> None:
    known = states(resolver=Names("2001:db8::1", "192.0.2.1"))
    known.connecting("1", 0, "one.example")
    assert known.current_address("1").family == socket.AF_INET6
    known.disconnected("1", 0)
    known.connecting("1", 0, "one.example")
    assert known.current_address("1").family == socket.AF_INET


def test_a_lost_connection_is_not_tried_first_of_all_at_the_same_address() -> None:
    names = Names("192.0.2.1", "192.0.2.2")
    known = states(resolver=names)
    assert attempt(known) == "192.0.2.1"
    known.ready("1")
    known.disconnected("1", 0)
    assert attempt(known) == "192.0.2.2"
    assert names.asked == 2, "the node may have moved"


def test_a_single_address_is_tried_again() -> None:
    names = Names("192.0.2.1")
    known = states(resolver=names)
    for expected in (1, 2, 3):
        assert attempt(known) == "192.0.2.1"
        assert names.asked == expected
        known.disconnected("1", 0)


def test_a_node_that_has_moved_to_another_host_starts_anew() -> None:
    known = states(resolver=Names("192.0.2.1"))
    for _ in range(5):
        attempt(known)
        known.disconnected("1", 0)
    attempt(known, host="new.example")
    known.disconnected("1", 0)
    assert known.connection_delay("1", 0) == 50


def test_a_host_without_an_address_is_an_error_every_time() -> None:
    names = Names()
    known = states(resolver=names)
    for expected in (1, 2):
        known.connecting("1", 0, "gone.example")
        with pytest.raises(UnknownHostError, match=r"gone\.example"):
            known.current_address("1")
        assert names.asked == expected
        known.disconnected("1", 0)
    names.ips = ("192.0.2.1",)
    assert attempt(known, host="gone.example") == "192.0.2.1"


def test_the_resolver_of_the_machine_knows_addresses() -> None:
    assert resolve_all_ips("127.0.0.1") == [ResolvedAddress(socket.AF_INET, "127.0.0.1")]
    assert resolve_all_ips("::1") == [ResolvedAddress(socket.AF_INET6, "::1")]


def test_names_of_all_kinds_are_resolved_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def scripted(host: str, *arguments: Any, **options: Any) -> list[Any]:
        if host == "fails.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "empty.example":
            return []
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 0, 0, 2)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, 0, "", "somewhere"),
        ]

    with pytest.raises(UnknownHostError):
        resolve_all_ips("a" * 300)  # cannot be a name at all: no name server is asked
    with pytest.raises(UnknownHostError):
        resolve_all_ips("nul\0l")
    monkeypatch.setattr(socket, "getaddrinfo", scripted)
    assert resolve_all_ips("many.example") == addresses("fe80::1%2", "2001:db8::1", "192.0.2.1")
    for host in ("fails.example", "empty.example"):
        with pytest.raises(UnknownHostError, match=host):
            resolve_all_ips(host)


# -- throttling


@pytest.mark.mechanism("P15")
def test_a_throttled_node_is_not_ready_until_the_time_is_over() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    known.ready("1")
    known.throttle("1", 100)
    assert not known.is_ready("1", 99)
    assert not known.has_ready_nodes(99)
    assert known.throttle_delay_ms("1", 30) == 70
    assert known.poll_delay_ms("1", 30) == 70
    assert known.is_ready("1", 100)
    assert known.throttle_delay_ms("1", 100) == 0
    assert known.poll_delay_ms("1", 100) == FOREVER


@pytest.mark.mechanism("P15")
def test_a_shorter_throttle_does_not_undo_a_longer_one() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    known.ready("1")
    known.throttle("1", 100)
    known.throttle("1", 40)
    assert known.throttle_delay_ms("1", 0) == 100


def test_a_lost_node_waits_for_its_back_off_not_for_its_throttle() -> None:
    known = states()
    known.connecting("1", 0, "one.example")
    known.ready("1")
    known.throttle("1", 5000)
    known.disconnected("1", 0)
    assert known.poll_delay_ms("1", 0) == 50


def test_throttling_a_node_that_is_not_known_does_nothing() -> None:
    known = states()
    known.throttle("1", 100)
    assert known.throttle_delay_ms("1", 0) == 0
