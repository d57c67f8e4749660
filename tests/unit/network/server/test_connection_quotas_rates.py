"""How fast connections may come: exact delays of the broker's, the listeners' and the addresses' rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.registry import Metrics
from barnabas.network.server.connection_limits import UNLIMITED
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
CLIENT, OTHER, BROKER = "192.0.2.7", "2001:db8::8", "198.51.100.1"
MS = 1_000_000

# Rates are taken over 11 samples of a second. From a standing start that is over ten seconds: ten times the limit may
# come at once, and with a limit of n the next one comes 1000/n ms too early.


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def metrics(clock: WatchedClock) -> Metrics:
    return Metrics(MetricConfig(tags={"cluster": "one"}), clock=clock)


@pytest.fixture
def pool() -> DaemonThreads:
    return DaemonThreads()


Make = Callable[..., ConnectionQuotas]


@pytest.fixture
def make(clock: WatchedClock, metrics: Metrics) -> Make:
    def make(listeners: str = f"{EXTERNAL} {REPLICATION} {ADMIN}", **limits: Any) -> ConnectionQuotas:
        quotas = ConnectionQuotas(ConnectionLimits(**limits), clock, metrics, lambda _host: [CLIENT, OTHER])
        for listener in listeners.split():
            quotas.add_listener(listener)
        return quotas

    return make


def fill(quotas: ConnectionQuotas, listener: str, address: str, count: int) -> None:
    """So many connections, none of which is held up."""
    for _ in range(count):
        quotas.inc(listener, address)


def metric(metrics: Metrics, name: str, **tags: str) -> KafkaMetric | None:
    return metrics.metric(metrics.metric_name(name, "socket-server-metrics", tags))


def value(metrics: Metrics, name: str, **tags: str) -> float:
    found = metric(metrics, name, **tags)
    assert found is not None, (name, tags)
    return float(found.value())


class Waiting:
    """An `inc` on a thread of its own, which has begun to wait."""

    def __init__(
        self, pool: DaemonThreads, clock: WatchedClock, quotas: ConnectionQuotas, listener: str, address: str
    ) -> None:
        self._clock = clock
        self.blocked: list[int] = []
        waits = clock.waits
        self.future: Future[None] = pool.submit(quotas.inc, listener, address, self.blocked.append)
        clock.await_waits(waits + 1)

    def ends_exactly_after(self, milliseconds: int) -> None:
        waits = self._clock.waits
        self._clock.advance(milliseconds - 1)
        self._clock.await_waits(waits + 1)
        assert not self.future.done()
        self._clock.advance(1)
        self.future.result(60)
        assert self.blocked == [milliseconds * MS]


# ---------------------------------------------------------------------------------------------------- waiting


def test_the_acceptor_waits_until_the_rate_is_kept_again(
    make: Make, metrics: Metrics, clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(max_connection_creation_rate=5)
    fill(quotas, EXTERNAL, CLIENT, 50)
    assert math.isnan(value(metrics, "connection-accept-throttle-time", listener=EXTERNAL))
    for _ in range(3):  # 51 in 10 s, 52 in 10.2 s, 53 in 10.4 s
        Waiting(pool, clock, quotas, EXTERNAL, CLIENT).ends_exactly_after(200)
    assert quotas.total == quotas.get(CLIENT) == 53
    assert value(metrics, "broker-connection-accept-rate") == 53 / 10.6
    assert value(metrics, "connection-accept-rate", listener=EXTERNAL) == 53 / 10.6
    assert value(metrics, "connection-accept-rate", listener=ADMIN) == 0
    assert value(metrics, "connection-accept-throttle-time", listener=EXTERNAL) == 200
    assert math.isnan(value(metrics, "ip-connection-accept-throttle-time", listener=EXTERNAL))
    clock.advance(11_000)
    fill(quotas, EXTERNAL, CLIENT, 50)


@pytest.mark.parametrize(
    ("samples", "seconds", "free", "delays"), [(11, 1, 10, (1_000, 1_000, 1_000)), (3, 2, 4, (1_000, 2_000, 2_000))]
)
def test_no_delay_is_longer_than_one_window(
    make: Make,
    metrics: Metrics,
    clock: WatchedClock,
    pool: DaemonThreads,
    samples: int,
    seconds: int,
    free: int,
    delays: tuple[int, ...],
) -> None:
    listeners = (EXTERNAL, ADMIN, REPLICATION)
    quotas = make(
        quota_samples=samples,
        quota_window_seconds=seconds,
        max_connection_creation_rate=1,
        listener_max_connection_creation_rate=dict.fromkeys(listeners, UNLIMITED),
    )
    fill(quotas, EXTERNAL, CLIENT, free)
    # By the rate alone they would come one, two and three seconds too early.
    waiting = [Waiting(pool, clock, quotas, listener, CLIENT) for listener in listeners]
    for listener, delay in zip(listeners, delays, strict=True):
        assert value(metrics, "connection-accept-throttle-time", listener=listener) == delay
    for now in (1_000, 2_000):
        clock.advance(1_000)
        for each, delay in zip(waiting, delays, strict=True):
            if delay == now:
                each.future.result(60)
                assert each.blocked == [delay * MS]
    assert quotas.total == free + 3


def test_the_longer_delay_counts(make: Make, metrics: Metrics, clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(max_connection_creation_rate=10, listener_max_connection_creation_rate={"external": 2})
    fill(quotas, ADMIN, CLIENT, 80)
    fill(quotas, EXTERNAL, CLIENT, 20)
    # The 101st of the broker would wait 100 ms, as the 21st of the listener it waits 500 ms.
    Waiting(pool, clock, quotas, EXTERNAL, CLIENT).ends_exactly_after(500)
    assert value(metrics, "connection-accept-throttle-time", listener=EXTERNAL) == 500
    fill(quotas, ADMIN, CLIENT, 4)  # 105 in 10.5 s
    Waiting(pool, clock, quotas, ADMIN, CLIENT).ends_exactly_after(100)
    assert value(metrics, "connection-accept-throttle-time", listener=ADMIN) == 100


def test_a_delay_of_less_than_half_a_millisecond_is_none(make: Make) -> None:
    quotas = make(quota_samples=2, max_connection_creation_rate=2_001)
    fill(quotas, EXTERNAL, CLIENT, 2_002)


def test_so_it_is_for_an_address(make: Make) -> None:
    quotas = make(quota_samples=2)
    quotas.update_ip_connection_rate(CLIENT, 2_001)
    fill(quotas, ADMIN, CLIENT, 2_002)
    with pytest.raises(ConnectionThrottledError):
        quotas.inc(ADMIN, CLIENT)


@pytest.mark.mechanism("N23")
def test_nothing_ends_a_delay_early_but_the_end_of_the_listener(
    make: Make, clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(max_connection_creation_rate=5)
    fill(quotas, EXTERNAL, CLIENT, 50)
    late = Waiting(pool, clock, quotas, EXTERNAL, CLIENT)
    waits = clock.waits
    quotas.dec(EXTERNAL, CLIENT)
    clock.await_waits(waits + 1)
    quotas.update_broker_max_connections(1_000)
    clock.await_waits(waits + 2)
    quotas.update_broker_max_connection_rate(1_000)
    quotas.update_listener_max_connection_rate(EXTERNAL, 1_000)
    late.ends_exactly_after(200)

    quotas.update_listener_max_connection_rate(EXTERNAL, 5)
    removed = Waiting(pool, clock, quotas, EXTERNAL, CLIENT)
    quotas.remove_listener(EXTERNAL)
    with pytest.raises(ListenerClosedError):
        removed.future.result(60)
    assert quotas.total == 50


def test_after_the_delay_it_still_needs_a_place(make: Make, clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(max_connection_creation_rate=5, max_connections=50)
    fill(quotas, EXTERNAL, CLIENT, 50)
    late = Waiting(pool, clock, quotas, EXTERNAL, CLIENT)
    clock.advance(200)
    clock.await_waits(2)
    clock.advance(1_000)
    clock.await_waits(3)
    assert not late.future.done()
    quotas.dec(EXTERNAL, CLIENT)
    late.future.result(60)
    assert late.blocked == [1_200 * MS]
    assert quotas.total == 50


def test_a_date_that_is_set_back_does_not_prolong_a_delay(make: Make, clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(max_connection_creation_rate=5)
    fill(quotas, EXTERNAL, CLIENT, 50)
    late = Waiting(pool, clock, quotas, EXTERNAL, CLIENT)
    clock.set_milliseconds(clock.milliseconds() - 3_600_000)
    late.ends_exactly_after(200)


@pytest.mark.mechanism("N04")
def test_a_connection_too_many_for_its_address_counts_for_the_rates(make: Make, metrics: Metrics) -> None:
    quotas = make(max_connections_per_ip=1)
    quotas.inc(EXTERNAL, CLIENT)
    with pytest.raises(TooManyConnectionsError):
        quotas.inc(EXTERNAL, CLIENT)
    assert value(metrics, "broker-connection-accept-rate") == 0.2
    assert quotas.total == 1


# ---------------------------------------------------------------------------------------------------- protection


def test_the_inter_broker_listener_is_free_of_the_brokers_rate_but_not_of_its_own(
    make: Make, metrics: Metrics, clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(
        max_connection_creation_rate=1,
        inter_broker_listener=REPLICATION,
        listener_max_connection_creation_rate={REPLICATION: 20},
    )
    fill(quotas, REPLICATION, BROKER, 200)
    assert value(metrics, "broker-connection-accept-rate") == 0  # it takes nothing from the others either
    fill(quotas, EXTERNAL, CLIENT, 10)
    Waiting(pool, clock, quotas, REPLICATION, BROKER).ends_exactly_after(50)
    quotas.update_listener_max_connection_rate(REPLICATION, None)  # the broker's number, for itself
    Waiting(pool, clock, quotas, REPLICATION, BROKER).ends_exactly_after(1_000)


def test_alone_it_is_not_free(make: Make, metrics: Metrics, clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(
        REPLICATION,
        max_connection_creation_rate=1,
        inter_broker_listener=REPLICATION,
        listener_max_connection_creation_rate={REPLICATION: 20},
    )
    fill(quotas, REPLICATION, BROKER, 10)
    Waiting(pool, clock, quotas, REPLICATION, BROKER).ends_exactly_after(1_000)
    quotas.add_listener(EXTERNAL)
    fill(quotas, REPLICATION, BROKER, 100)
    assert value(metrics, "broker-connection-accept-rate") == 1.1


def test_a_storm_of_connections_does_not_hold_up_the_inter_broker_listener(
    make: Make, clock: WatchedClock, pool: DaemonThreads
) -> None:
    """5,000 connections from one address at 100 a second, and all the while brokers connect without a wait."""
    quotas = make(
        max_connection_creation_rate=100,
        inter_broker_listener=REPLICATION,
        listener_max_connection_creation_rate={REPLICATION: UNLIMITED},
    )

    def connect() -> None:
        fill(quotas, EXTERNAL, CLIENT, 5_000)
        clock.count_as_wait()

    storm = pool.submit(connect)
    held_up: list[int] = []
    turns = 0
    clock.await_waits(1)
    assert quotas.get(CLIENT) == 1_000  # so many at once, over a window of ten seconds
    while quotas.get(CLIENT) < 5_000:
        quotas.inc(REPLICATION, BROKER, held_up.append)
        quotas.dec(REPLICATION, BROKER)
        clock.await_waits(2 * turns + 2)  # woken, and it waits again
        clock.advance(10)
        clock.await_waits(2 * turns + 3)
        turns += 1
    storm.result(60)
    assert held_up == []
    assert quotas.total == 5_000
    assert 4_000 <= turns <= 5_000  # of 10 ms: the other 4,000 come at 100 a second or slower


# ---------------------------------------------------------------------------------------------------- addresses


@pytest.mark.mechanism("N04")
def test_an_address_that_is_too_fast_is_turned_away_at_nobody_elses_cost(
    make: Make, metrics: Metrics, clock: WatchedClock
) -> None:
    quotas = make()
    quotas.update_ip_connection_rate(CLIENT, 2)
    fill(quotas, EXTERNAL, CLIENT, 20)
    for _ in range(5):  # what was turned away is forgotten, so it is not punished for trying again
        with pytest.raises(ConnectionThrottledError) as caught:
            quotas.inc(EXTERNAL, f"::ffff:{CLIENT}")
        error = caught.value
        assert (error.ip, error.start_throttle_time_ms, error.throttle_time_ms) == (CLIENT, clock.milliseconds(), 500)
    assert quotas.total == quotas.get(CLIENT) == quotas.listener_count(EXTERNAL) == 20
    assert value(metrics, "connection-accept-rate", ip=CLIENT) == 2
    assert value(metrics, "connection-accept-rate", listener=EXTERNAL) == 2
    assert value(metrics, "broker-connection-accept-rate") == 2
    assert value(metrics, "ip-connection-accept-throttle-time", listener=EXTERNAL) == 500
    assert math.isnan(value(metrics, "connection-accept-throttle-time", listener=EXTERNAL))

    fill(quotas, EXTERNAL, OTHER, 100)
    assert metric(metrics, "connection-accept-rate", ip=OTHER) is None  # no limit, nothing to measure
    clock.advance(499)
    with pytest.raises(ConnectionThrottledError):
        quotas.inc(EXTERNAL, CLIENT)
    clock.advance(1)
    quotas.inc(EXTERNAL, CLIENT)
    assert clock.waits == 0


def test_turning_away_on_the_protected_listener_gives_nothing_back_to_the_broker(make: Make, metrics: Metrics) -> None:
    quotas = make(inter_broker_listener=REPLICATION)
    quotas.update_ip_connection_rate(BROKER, 1)
    quotas.inc(EXTERNAL, CLIENT)
    fill(quotas, REPLICATION, BROKER, 10)
    with pytest.raises(ConnectionThrottledError):
        quotas.inc(REPLICATION, BROKER)
    assert value(metrics, "broker-connection-accept-rate") == 0.1
    assert value(metrics, "connection-accept-rate", listener=REPLICATION) == 1


def test_what_was_recorded_is_taken_back_even_if_the_listener_was_protected_meanwhile(
    make: Make, metrics: Metrics, clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(REPLICATION, max_connection_creation_rate=1, inter_broker_listener=REPLICATION)
    quotas.update_ip_connection_rate(BROKER, 1)
    fill(quotas, REPLICATION, BROKER, 10)
    late = Waiting(pool, clock, quotas, REPLICATION, BROKER)
    quotas.add_listener(EXTERNAL)
    clock.advance(1_000)
    with pytest.raises(ConnectionThrottledError):
        late.future.result(60)
    assert late.blocked == [1_000 * MS]
    assert value(metrics, "broker-connection-accept-rate") == 1
    assert quotas.total == 10


def test_addresses_without_a_rate_have_the_default(make: Make) -> None:
    quotas = make()
    quotas.update_ip_connection_rate(None, 2)
    quotas.update_ip_connection_rate("host.example", 3)  # which has the addresses CLIENT and OTHER
    assert [quotas.connection_rate_for_ip(ip) for ip in (CLIENT, OTHER, BROKER)] == [3, 3, 2]
    for address, rate in ((CLIENT, 3), (OTHER, 3), (BROKER, 2)):
        fill(quotas, EXTERNAL, address, rate * 10)
        with pytest.raises(ConnectionThrottledError):
            quotas.inc(EXTERNAL, address)
    quotas.update_ip_connection_rate(CLIENT, None)
    assert [quotas.connection_rate_for_ip(ip) for ip in (CLIENT, OTHER, BROKER)] == [2, 3, 2]
    with pytest.raises(ConnectionThrottledError) as caught:
        quotas.inc(EXTERNAL, CLIENT)
    assert caught.value.throttle_time_ms == 1_000  # 31 in 10 s where there should be 20
    quotas.update_ip_connection_rate(None, None)
    fill(quotas, EXTERNAL, CLIENT, 100)
    with pytest.raises(ConnectionThrottledError):
        quotas.inc(EXTERNAL, OTHER)


def test_a_rate_of_zero_admits_nobody(make: Make) -> None:
    quotas = make()
    quotas.update_ip_connection_rate(CLIENT, 0)
    with pytest.raises(ConnectionThrottledError) as caught:
        quotas.inc(EXTERNAL, CLIENT)
    assert caught.value.throttle_time_ms == 1_000
    assert quotas.total == 0


# ---------------------------------------------------------------------------------------------------- new limits


@pytest.mark.mechanism("N23")
@pytest.mark.parametrize("ip", [CLIENT, OTHER, None])
def test_a_new_rate_of_an_address_forgets_nothing(make: Make, ip: str | None) -> None:
    address = ip or CLIENT
    quotas = make()
    quotas.update_ip_connection_rate(ip, 5)
    fill(quotas, EXTERNAL, address, 50)
    quotas.update_ip_connection_rate(ip, 10)
    fill(quotas, EXTERNAL, address, 50)
    with pytest.raises(ConnectionThrottledError) as caught:
        quotas.inc(EXTERNAL, address)
    assert caught.value.throttle_time_ms == 100
    quotas.update_ip_connection_rate(ip, 8)
    with pytest.raises(ConnectionThrottledError) as caught:
        quotas.inc(EXTERNAL, address)
    assert caught.value.throttle_time_ms == 1_000  # 2,625 by the rate


@pytest.mark.mechanism("N23")
def test_a_new_rate_of_the_broker_forgets_nothing_and_is_that_of_listeners_without(
    make: Make, clock: WatchedClock, pool: DaemonThreads
) -> None:
    quotas = make(max_connection_creation_rate=5, listener_max_connection_creation_rate={ADMIN: 1})
    fill(quotas, EXTERNAL, CLIENT, 40)
    fill(quotas, ADMIN, CLIENT, 10)
    quotas.update_broker_max_connection_rate(10)
    fill(quotas, EXTERNAL, CLIENT, 50)
    Waiting(pool, clock, quotas, EXTERNAL, CLIENT).ends_exactly_after(100)
    quotas.update_broker_max_connection_rate(20)
    fill(quotas, EXTERNAL, CLIENT, 100)
    Waiting(pool, clock, quotas, ADMIN, CLIENT).ends_exactly_after(900)  # 11 in 10.1 s where there should be 1 a second


@pytest.mark.mechanism("N23")
def test_a_new_rate_of_a_listener_forgets_nothing(make: Make, clock: WatchedClock, pool: DaemonThreads) -> None:
    quotas = make(max_connection_creation_rate=100, listener_max_connection_creation_rate={EXTERNAL: 5})
    fill(quotas, EXTERNAL, CLIENT, 50)
    quotas.update_listener_max_connection_rate(EXTERNAL.lower(), 10)
    fill(quotas, EXTERNAL, CLIENT, 50)
    quotas.update_listener_max_connection_rate("LATER", 3)
    quotas.add_listener("LATER")
    fill(quotas, "LATER", CLIENT, 30)
    Waiting(pool, clock, quotas, EXTERNAL, CLIENT).ends_exactly_after(100)
    quotas.update_listener_max_connection_rate(EXTERNAL, None)
    fill(quotas, EXTERNAL, CLIENT, 500)
    Waiting(pool, clock, quotas, "LATER", CLIENT).ends_exactly_after(233)  # (31 - 30.3) / 3 s


# ---------------------------------------------------------------------------------------------------- sensors


def test_sensors_go_with_what_they_measure(make: Make, metrics: Metrics, clock: WatchedClock) -> None:
    before = set(metrics.sensors)
    quotas = make(EXTERNAL)
    assert metric(metrics, "connection-accept-rate", listener=EXTERNAL) is not None
    quotas.remove_listener(EXTERNAL)
    assert metric(metrics, "connection-accept-rate", listener=EXTERNAL) is None
    assert set(metrics.sensors) - before == {"Connection-Accept-Rate"}
    quotas.add_listener(ADMIN)
    quotas.update_ip_connection_rate(None, 2)
    fill(quotas, ADMIN, CLIENT, 20)
    quotas.close()
    assert set(metrics.sensors) - before == {f"Connection-Accept-Rate-ip-{CLIENT}"}
    quotas.update_broker_max_connection_rate(7)  # a late change of a setting does no harm

    clock.advance(3_600_000)
    assert metrics.expire_inactive_sensors() == []
    clock.advance(1)
    assert metrics.expire_inactive_sensors() == [f"Connection-Accept-Rate-ip-{CLIENT}"]
    assert set(metrics.sensors) == before
    assert metric(metrics, "connection-accept-rate", ip=CLIENT) is None


def test_an_address_that_was_forgotten_starts_again_with_the_limit_of_today(
    make: Make, metrics: Metrics, clock: WatchedClock
) -> None:
    quotas = make()
    quotas.update_ip_connection_rate(CLIENT, 2)
    fill(quotas, EXTERNAL, CLIENT, 20)
    clock.advance(3_600_001)
    metrics.expire_inactive_sensors()
    quotas.update_ip_connection_rate(CLIENT, 1)
    fill(quotas, EXTERNAL, CLIENT, 10)
    with pytest.raises(ConnectionThrottledError) as caught:
        quotas.inc(EXTERNAL, CLIENT)
    assert caught.value.throttle_time_ms == 1_000


def test_a_sensor_that_expires_while_it_is_being_made_is_made_again(
    make: Make, metrics: Metrics, clock: WatchedClock
) -> None:
    quotas = make()
    quotas.update_ip_connection_rate(CLIENT, 1)
    metrics.sensor(f"Connection-Accept-Rate-ip-{CLIENT}", inactive_sensor_expiration_seconds=1)
    clock.advance(1_001)
    fill(quotas, EXTERNAL, CLIENT, 10)
    with pytest.raises(ConnectionThrottledError):
        quotas.inc(EXTERNAL, CLIENT)


def test_a_listener_that_is_called_like_an_address_is_measured_by_itself(make: Make, metrics: Metrics) -> None:
    quotas = make(CLIENT)
    quotas.update_ip_connection_rate(CLIENT, 2)
    fill(quotas, CLIENT, CLIENT, 20)
    assert value(metrics, "connection-accept-rate", listener=CLIENT) == 2
    assert value(metrics, "connection-accept-rate", ip=CLIENT) == 2


def test_two_servers_with_one_registry_share_the_brokers_rate(make: Make, metrics: Metrics) -> None:
    broker, controller = make(EXTERNAL), make("CONTROLLER")
    fill(broker, EXTERNAL, CLIENT, 3)
    fill(controller, "CONTROLLER", BROKER, 2)
    assert value(metrics, "broker-connection-accept-rate") == 0.5
    assert (broker.total, controller.total) == (3, 2)


def test_a_listener_has_its_limit_even_if_its_sensor_was_left_from_before(
    make: Make, clock: WatchedClock, pool: DaemonThreads
) -> None:
    make(EXTERNAL, listener_max_connection_creation_rate={EXTERNAL: 1})  # never closed
    quotas = make(EXTERNAL, listener_max_connection_creation_rate={EXTERNAL: 5})
    fill(quotas, EXTERNAL, CLIENT, 50)
    Waiting(pool, clock, quotas, EXTERNAL, CLIENT).ends_exactly_after(200)
