"""How many connections there may be: caps of addresses, listeners and the broker; who waits and who wakes whom."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidConfigurationError
from barnabas.metrics.registry import Metrics
from barnabas.network.server.connection_limits import canonical_address, resolve_host
from barnabas.network.server.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionThrottledError,
    ListenerClosedError,
    TooManyConnectionsError,
)
from unit.network.waiting_threads import DaemonThreads, WatchedClock

pytestmark = pytest.mark.mechanism("N17")

EXTERNAL, REPLICATION, ADMIN = "EXTERNAL", "REPLICATION", "ADMIN"
CLIENT, OTHER, BROKER = "192.0.2.7", "192.0.2.8", "198.51.100.1"
HOSTS = {"rack.example": ["203.0.113.5", "2001:db8::5"], "single.example": ["203.0.113.9"], "empty.example": []}


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def pool() -> DaemonThreads:
    return DaemonThreads()


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Lets threads take turns far more often than they do by themselves, so that a race has its chance."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def resolve(host: str) -> list[str]:
    try:
        return HOSTS[host]
    except KeyError:
        raise OSError(f"no such host: {host}") from None


def make(clock: MockClock, limits: ConnectionLimits | None = None, listeners: str = "") -> ConnectionQuotas:
    quotas = ConnectionQuotas(limits or ConnectionLimits(), clock, Metrics(clock=clock), resolve)
    for listener in listeners.split() or (EXTERNAL, REPLICATION, ADMIN):
        quotas.add_listener(listener)
    return quotas


def fill(quotas: ConnectionQuotas, listener: str, address: str, count: int) -> None:
    for _ in range(count):
        quotas.inc(listener, address)


def done(future: Future[None]) -> None:
    assert future.result(60) is None


# ---------------------------------------------------------------------------------------------------- addresses


@pytest.mark.mechanism("N04")
def test_an_address_has_at_most_so_many_connections(clock: WatchedClock) -> None:
    quotas = make(clock, ConnectionLimits(max_connections_per_ip=3))
    fill(quotas, EXTERNAL, CLIENT, 2)
    quotas.inc(ADMIN, CLIENT)
    for _ in range(5):
        with pytest.raises(TooManyConnectionsError) as caught:
            quotas.inc(EXTERNAL, CLIENT)
        assert (caught.value.ip, caught.value.count) == (CLIENT, 3)
    assert (quotas.get(CLIENT), quotas.total, quotas.listener_count(EXTERNAL)) == (3, 3, 2)

    quotas.inc(EXTERNAL, OTHER)
    quotas.dec(ADMIN, CLIENT)
    quotas.inc(EXTERNAL, CLIENT)
    assert (quotas.get(CLIENT), quotas.get(OTHER), quotas.total) == (3, 1, 4)


def test_overrides_are_by_address_and_by_host_name(clock: WatchedClock) -> None:
    limits = ConnectionLimits(
        max_connections_per_ip=0,
        max_connections_per_ip_overrides={
            "203.0.113.5": 1,  # counts more than the host it belongs to, which comes later
            "rack.example": 3,
            "2001:DB8:0:0:0:0:0:6": 2,
            "[2001:db8::7]": 4,
        },
    )
    quotas = make(clock, limits)
    for address, maximum in {
        "203.0.113.5": 1,
        "2001:db8::5": 3,
        "2001:db8::6": 2,
        "2001:db8::7": 4,
        CLIENT: 0,
    }.items():
        fill(quotas, EXTERNAL, address, maximum)
        with pytest.raises(TooManyConnectionsError) as caught:
            quotas.inc(EXTERNAL, address)
        assert (caught.value.ip, caught.value.count) == (address, maximum)
    assert quotas.total == 10


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:0207", "192.0.2.7"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::", "::"),
    ],
)
def test_two_ways_to_write_an_address_are_one_address(clock: WatchedClock, written: str, canonical: str) -> None:
    assert canonical_address(written) == canonical
    quotas = make(clock, ConnectionLimits(max_connections_per_ip_overrides={written: 1}))
    quotas.inc(EXTERNAL, canonical)
    with pytest.raises(TooManyConnectionsError):
        quotas.inc(EXTERNAL, written)
    quotas.dec(EXTERNAL, written)
    assert quotas.get(canonical) == quotas.total == 0


@pytest.mark.mechanism("N23")
def test_limits_of_addresses_change_while_connections_are_open(clock: WatchedClock) -> None:
    quotas = make(clock, ConnectionLimits(max_connections_per_ip=1, max_connections_per_ip_overrides={OTHER: 2}))
    fill(quotas, EXTERNAL, OTHER, 2)
    quotas.inc(EXTERNAL, CLIENT)
    with pytest.raises(TooManyConnectionsError):
        quotas.inc(EXTERNAL, CLIENT)

    quotas.update_max_connections_per_ip(2)
    quotas.inc(EXTERNAL, CLIENT)
    quotas.update_max_connections_per_ip_overrides({"single.example": 1, CLIENT: 3})
    quotas.inc(EXTERNAL, CLIENT)
    quotas.inc(EXTERNAL, "203.0.113.9")
    for address in (CLIENT, OTHER, "203.0.113.9"):  # OTHER has lost its override and is at the default, 2
        with pytest.raises(TooManyConnectionsError):
            quotas.inc(EXTERNAL, address)

    for bad in ({"nowhere.example": 1}, {"empty.example": 1}, {CLIENT: -1}):
        with pytest.raises(InvalidConfigurationError, match=r"nowhere|empty|-1"):
            quotas.update_max_connections_per_ip_overrides(bad)
    with pytest.raises(TooManyConnectionsError, match="maximum is 3"):
        quotas.inc(EXTERNAL, CLIENT)
    quotas.update_max_connections_per_ip_overrides({})
    with pytest.raises(TooManyConnectionsError, match="maximum is 2"):
        quotas.inc(EXTERNAL, CLIENT)


def test_the_machines_resolver_gives_all_addresses_and_refuses_what_is_no_name() -> None:
    assert {canonical_address(address) for address in resolve_host("localhost")} <= {"127.0.0.1", "::1"}
    for name in ("", "a" * 300, "a..b"):
        with pytest.raises((OSError, ValueError)):
            resolve_host(name)


def test_what_is_no_address_is_refused_before_anything_is_counted(clock: WatchedClock) -> None:
    quotas = make(clock)
    for text in ("", "client.example", "192.0.2", "[::1", "1::2::3"):
        with pytest.raises(ValueError, match="address"):
            quotas.inc(EXTERNAL, text)
    assert quotas.total == quotas.listener_count(EXTERNAL) == 0


# ---------------------------------------------------------------------------------------------------- caps that wait


def test_a_full_listener_makes_its_acceptor_wait_until_a_connection_closes(
    clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(clock, ConnectionLimits(listener_max_connections={EXTERNAL: 2}))
    waited: list[int] = []
    quotas.inc(EXTERNAL, CLIENT, waited.append)
    quotas.inc(EXTERNAL, OTHER, waited.append)
    assert waited == []

    third = pool.submit(quotas.inc, EXTERNAL, CLIENT, waited.append)
    clock.await_waits(1)
    fill(quotas, ADMIN, CLIENT, 5)  # the other listeners go on
    clock.advance(125)
    clock.await_waits(2)  # time alone does not help
    quotas.dec(ADMIN, CLIENT)  # neither does a place elsewhere
    clock.await_waits(3)
    assert not third.done()
    quotas.dec(EXTERNAL, OTHER)
    done(third)
    assert waited == [125_000_000]
    assert (quotas.listener_count(EXTERNAL), quotas.get(CLIENT), quotas.get(OTHER), quotas.total) == (2, 6, 0, 6)


def test_the_inter_broker_listener_goes_over_the_brokers_cap_and_others_make_room(
    clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=2, inter_broker_listener=REPLICATION))
    fill(quotas, EXTERNAL, CLIENT, 2)
    assert not any(map(quotas.max_connections_exceeded, (EXTERNAL, REPLICATION, ADMIN)))  # full, but not too full

    admin = pool.submit(quotas.inc, ADMIN, CLIENT)
    clock.await_waits(1)
    quotas.inc(REPLICATION, BROKER)
    assert quotas.total == 3
    assert quotas.max_connections_exceeded(EXTERNAL)
    assert quotas.max_connections_exceeded(ADMIN)
    assert not quotas.max_connections_exceeded(REPLICATION)

    quotas.dec(EXTERNAL, CLIENT)
    clock.await_waits(2)
    assert not admin.done()
    assert not quotas.max_connections_exceeded(EXTERNAL)
    quotas.dec(EXTERNAL, CLIENT)
    done(admin)
    assert (quotas.listener_count(ADMIN), quotas.listener_count(REPLICATION), quotas.total) == (1, 1, 2)


def test_a_listener_without_a_cap_has_the_brokers_number_as_its_own(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=2, inter_broker_listener=REPLICATION))
    fill(quotas, EXTERNAL, CLIENT, 2)
    fill(quotas, REPLICATION, BROKER, 2)
    third = pool.submit(quotas.inc, REPLICATION, BROKER)
    clock.await_waits(1)
    quotas.dec(EXTERNAL, CLIENT)
    clock.await_waits(2)
    assert not third.done()
    quotas.update_listener_max_connections(REPLICATION, 3)
    done(third)
    assert quotas.total == 4


def test_alone_the_inter_broker_listener_is_like_any_other(clock: WatchedClock, pool: DaemonThreads) -> None:
    limits = ConnectionLimits(
        max_connections=1, inter_broker_listener=REPLICATION, listener_max_connections={REPLICATION: 9}
    )
    quotas = make(clock, limits, REPLICATION)
    quotas.inc(REPLICATION, BROKER)
    second = pool.submit(quotas.inc, REPLICATION, BROKER)
    clock.await_waits(1)
    quotas.add_listener(EXTERNAL)  # now there is somebody to protect it from
    done(second)
    assert not quotas.max_connections_exceeded(REPLICATION)
    quotas.remove_listener(EXTERNAL)
    assert quotas.max_connections_exceeded(REPLICATION)


def test_without_an_inter_broker_listener_nobody_is_protected(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=1, listener_max_connections={REPLICATION: 9}))
    quotas.inc(EXTERNAL, CLIENT)
    blocked = pool.submit(quotas.inc, REPLICATION, BROKER)
    clock.await_waits(1)
    quotas.dec(EXTERNAL, CLIENT)
    done(blocked)


# ---------------------------------------------------------------------------------------------------- waking


@pytest.mark.mechanism("N23")
@pytest.mark.parametrize(
    ("limits", "change"),
    [
        (ConnectionLimits(max_connections=2), lambda quotas: quotas.update_broker_max_connections(3)),
        (
            ConnectionLimits(listener_max_connections={EXTERNAL: 2}),
            lambda quotas: quotas.update_listener_max_connections(EXTERNAL, 3),
        ),
        (
            ConnectionLimits(max_connections=5, listener_max_connections={EXTERNAL: 2}),
            lambda quotas: quotas.update_listener_max_connections(EXTERNAL, None),
        ),
    ],
    ids=["broker", "listener", "listener back to the broker's"],
)
def test_a_higher_cap_wakes_the_acceptor(
    clock: WatchedClock,
    pool: DaemonThreads,
    limits: ConnectionLimits,
    change: Callable[[ConnectionQuotas], None],
) -> None:
    quotas = make(clock, limits)
    fill(quotas, EXTERNAL, CLIENT, 2)
    third = pool.submit(quotas.inc, EXTERNAL, CLIENT)
    clock.await_waits(1)
    change(quotas)
    done(third)
    assert quotas.total == 3


@pytest.mark.mechanism("N23")
def test_a_lower_cap_closes_nothing_by_itself_but_asks_processors_to(clock: WatchedClock) -> None:
    quotas = make(clock, ConnectionLimits(inter_broker_listener=REPLICATION))
    fill(quotas, EXTERNAL, CLIENT, 3)
    quotas.update_broker_max_connections(1)
    closed = 0
    while quotas.max_connections_exceeded(EXTERNAL):
        quotas.dec(EXTERNAL, CLIENT)
        closed += 1
    assert (closed, quotas.total) == (2, 1)


def test_settings_of_listeners_do_not_care_about_case(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(listener_max_connections={"external": 1}))
    quotas.inc(EXTERNAL, CLIENT)
    second = pool.submit(quotas.inc, EXTERNAL, CLIENT)
    clock.await_waits(1)
    quotas.update_listener_max_connections("External", 2)
    done(second)


def test_close_releases_every_acceptor(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=1))
    quotas.inc(EXTERNAL, CLIENT)
    waited: list[int] = []
    waiting = [pool.submit(quotas.inc, listener, CLIENT, waited.append) for listener in (EXTERNAL, ADMIN, REPLICATION)]
    clock.await_waits(3)
    quotas.close()
    for future in waiting:
        with pytest.raises(ListenerClosedError):
            future.result(60)
    assert len(waited) == 3
    assert quotas.total == 1
    with pytest.raises(ListenerClosedError):
        quotas.inc(EXTERNAL, CLIENT)
    with pytest.raises(ListenerClosedError):
        quotas.add_listener("LATE")
    quotas.dec(EXTERNAL, CLIENT)  # the processors close their connections after that
    assert quotas.total == 0
    quotas.close()


@pytest.mark.parametrize("added_again", [False, True])
def test_a_removed_listener_releases_its_acceptor(clock: WatchedClock, pool: DaemonThreads, added_again: bool) -> None:
    quotas = make(clock, ConnectionLimits(listener_max_connections={EXTERNAL: 1}, max_connections=2))
    quotas.inc(EXTERNAL, CLIENT)
    quotas.inc(ADMIN, CLIENT)
    gone, staying = pool.submit(quotas.inc, EXTERNAL, CLIENT), pool.submit(quotas.inc, ADMIN, CLIENT)
    clock.await_waits(2)
    with quotas._counts_lock:  # so that the acceptor does not get to look in between
        quotas.remove_listener(EXTERNAL)
        if added_again:
            quotas.add_listener(EXTERNAL)
    with pytest.raises(ListenerClosedError, match=EXTERNAL):
        gone.result(60)
    quotas.dec(EXTERNAL, CLIENT)
    done(staying)
    assert (quotas.listener_count(EXTERNAL), quotas.listener_count(ADMIN), quotas.total) == (0, 2, 2)


def test_adding_a_listener_that_is_there_changes_nothing(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(listener_max_connections={EXTERNAL: 1}))
    quotas.inc(EXTERNAL, CLIENT)
    second = pool.submit(quotas.inc, EXTERNAL, CLIENT)
    clock.await_waits(1)
    quotas.add_listener(EXTERNAL)
    clock.await_waits(2)
    quotas.dec(EXTERNAL, CLIENT)
    done(second)


# ---------------------------------------------------------------------------------------------------- no leaks


def test_connections_of_a_removed_listener_are_counted_until_they_close(
    clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(clock, ConnectionLimits(listener_max_connections={EXTERNAL: 2}))
    fill(quotas, EXTERNAL, CLIENT, 2)
    quotas.remove_listener(EXTERNAL)
    quotas.remove_listener(EXTERNAL)
    assert quotas.listener_count(EXTERNAL) == 2
    quotas.dec(EXTERNAL, CLIENT)
    quotas.add_listener(EXTERNAL)
    quotas.add_listener(EXTERNAL)
    quotas.inc(EXTERNAL, CLIENT)
    waiting = pool.submit(quotas.inc, EXTERNAL, CLIENT)
    clock.await_waits(1)
    quotas.dec(EXTERNAL, CLIENT)
    done(waiting)
    for _ in range(2):
        quotas.dec(EXTERNAL, CLIENT)
    assert quotas.total == quotas.get(CLIENT) == quotas.listener_count(EXTERNAL) == 0


def test_a_listener_that_was_never_added_accepts_nothing(clock: WatchedClock) -> None:
    quotas = make(clock, None, EXTERNAL)
    with pytest.raises(ListenerClosedError, match=ADMIN):
        quotas.inc(ADMIN, CLIENT)
    assert quotas.total == 0


def test_counting_down_what_was_not_counted_changes_nothing(clock: WatchedClock) -> None:
    quotas = make(clock)
    quotas.inc(EXTERNAL, CLIENT)
    for listener, address in ((EXTERNAL, OTHER), (ADMIN, CLIENT), ("NONE", CLIENT)):
        with pytest.raises(ValueError, match="no connection"):
            quotas.dec(listener, address)
    assert (quotas.total, quotas.get(CLIENT), quotas.listener_count(EXTERNAL)) == (1, 1, 1)
    quotas.dec(EXTERNAL, CLIENT)
    with pytest.raises(ValueError, match="no connection"):
        quotas.dec(EXTERNAL, CLIENT)
    assert (quotas.total, quotas.get(CLIENT), quotas.listener_count(EXTERNAL)) == (0, 0, 0)


def test_nothing_is_counted_when_the_meter_fails(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=1))
    quotas.inc(EXTERNAL, CLIENT)

    def fail(_nanoseconds: int) -> None:
        raise ArithmeticError("meter")

    waiting = pool.submit(quotas.inc, EXTERNAL, OTHER, fail)
    clock.await_waits(1)
    quotas.dec(EXTERNAL, CLIENT)
    with pytest.raises(ArithmeticError, match="meter"):
        waiting.result(60)
    assert quotas.total == quotas.get(OTHER) == quotas.listener_count(EXTERNAL) == 0


def test_many_threads_end_at_zero_and_never_pass_a_cap(
    clock: WatchedClock, pool: DaemonThreads, quick_switches: None
) -> None:
    """12 threads, 500 connections each, on three listeners, from four addresses, under every kind of cap."""
    limits = ConnectionLimits(
        max_connections=4,
        max_connections_per_ip=2,
        inter_broker_listener=REPLICATION,
        listener_max_connections={EXTERNAL: 2, REPLICATION: 3},
    )
    quotas = make(clock, limits)
    quotas.update_ip_connection_rate("192.0.2.3", 0)  # this one is always turned away
    start = threading.Barrier(12)
    outcomes: Counter[str] = Counter()
    held: Counter[str] = Counter()
    maxima = {EXTERNAL: 2, REPLICATION: 3, ADMIN: 4} | {f"192.0.2.{number}": 2 for number in range(3)}
    over: list[str] = []
    guard = threading.Lock()

    def run(number: int) -> None:
        listener = (EXTERNAL, REPLICATION, ADMIN)[number % 3]
        start.wait(60)
        for turn in range(500):
            address = f"192.0.2.{(number + turn) % 4}"
            try:
                quotas.inc(listener, address)
            except (TooManyConnectionsError, ConnectionThrottledError) as error:
                with guard:
                    outcomes[type(error).__name__] += 1
                continue
            with guard:  # from here to the next one it is held for certain
                outcomes["accepted"] += 1
                held.update((listener, address))
                over.extend(f"{name}: {held}" for name in (listener, address) if held[name] > maxima[name])
                if held[EXTERNAL] + held[ADMIN] > 4:
                    over.append(f"broker: {held}")
            quotas.max_connections_exceeded(listener)
            with guard:
                held.subtract((listener, address))
            quotas.dec(listener, address)

    for future in [pool.submit(run, number) for number in range(12)]:
        done(future)
    assert over == []
    assert outcomes.total() == 6_000
    assert outcomes["ConnectionThrottledError"] == 1_500
    assert outcomes["TooManyConnectionsError"] > 0
    assert outcomes["accepted"] > 0
    assert quotas.total == 0
    assert quotas._counts == quotas._listener_counts == {}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([EXTERNAL, ADMIN]), st.sampled_from([CLIENT, OTHER, BROKER, "::1"]))
    )
)
def test_any_history_gives_the_counts_of_a_plain_list(history: list[tuple[bool, str, str]]) -> None:
    limits = ConnectionLimits(max_connections_per_ip=2, max_connections_per_ip_overrides={BROKER: 0, "::1": 3})
    quotas = make(MockClock(), limits)
    maxima = {BROKER: 0, "::1": 3}
    open_connections: list[tuple[str, str]] = []
    for opens, listener, address in history:
        counts = Counter(address for _, address in open_connections)
        if opens and counts[address] < maxima.get(address, 2):
            quotas.inc(listener, address)
            open_connections.append((listener, address))
        elif opens:
            with pytest.raises(TooManyConnectionsError):
                quotas.inc(listener, address)
        elif (listener, address) in open_connections:
            quotas.dec(listener, address)
            open_connections.remove((listener, address))
        assert quotas.total == len(open_connections)
        for each in (CLIENT, OTHER, BROKER, "::1"):
            assert quotas.get(each) == sum(address == each for _, address in open_connections)
        for each in (EXTERNAL, ADMIN):
            assert quotas.listener_count(each) == sum(listener == each for listener, _ in open_connections)


# ---------------------------------------------------------------------------------------------------- bad settings


@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections_per_ip": -1},
        {"max_connections_per_ip_overrides": {CLIENT: -1}},
        {"max_connections": -1},
        {"max_connection_creation_rate": -1},
        {"listener_max_connections": {EXTERNAL: -1}},
        {"listener_max_connection_creation_rate": {EXTERNAL: -1}},
        {"quota_samples": 0},
        {"quota_window_seconds": 0},
    ],
)
def test_limits_that_cannot_be_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidConfigurationError, match="must be at least"):
        ConnectionLimits(**settings)  # type: ignore[arg-type]


def test_an_override_for_an_unknown_host_is_refused_at_the_start(clock: WatchedClock) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"nowhere\.example"):
        make(clock, ConnectionLimits(max_connections_per_ip_overrides={"nowhere.example": 1}))


def test_a_bad_new_limit_leaves_the_old_one(clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(clock, ConnectionLimits(max_connections=1, max_connections_per_ip=5))
    changes: tuple[Callable[[], None], ...] = (
        lambda: quotas.update_max_connections_per_ip(-1),
        lambda: quotas.update_broker_max_connections(0),
        lambda: quotas.update_listener_max_connections(EXTERNAL, 0),
        lambda: quotas.update_broker_max_connection_rate(0),
        lambda: quotas.update_listener_max_connection_rate(EXTERNAL, 0),
        lambda: quotas.update_ip_connection_rate(CLIENT, -1),
        lambda: quotas.update_ip_connection_rate("nowhere.example", 1),
    )
    for change in changes:
        with pytest.raises(InvalidConfigurationError):
            change()
    quotas.inc(EXTERNAL, CLIENT)
    second = pool.submit(quotas.inc, EXTERNAL, CLIENT)
    clock.await_waits(1)
    quotas.dec(EXTERNAL, CLIENT)
    done(second)
    assert repr(quotas) == "ConnectionQuotas(1 connections, ['ADMIN', 'EXTERNAL', 'REPLICATION'])"
