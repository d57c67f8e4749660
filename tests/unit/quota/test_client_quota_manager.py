"""Bytes per second, to the byte and to the millisecond."""

from __future__ import annotations

import math
import threading

import pytest
from benchmarks.waiting import until

from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.quota.client_quota_manager import MAX_THROTTLE_MS, NO_LIMIT, ClientQuotaManager
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity, QuotaLevel
from quota_fixtures import Muting, QuotaBench, quota_bench

MB = 1_000_000


def rate(metrics: Metrics, user: str = "", client_id: str = "", kind: str = "Produce") -> float:
    metric = metrics.metric(MetricName("byte-rate", kind, {"user": user, "client-id": client_id}))
    assert metric is not None
    value: float = metric.value()
    return value


def enabled(*managers: ClientQuotaManager) -> tuple[bool, ...]:
    return tuple(manager.is_enabled for manager in managers)


@pytest.mark.mechanism("Q03")
def test_nothing_configured_makes_no_sensor_and_measures_nothing(bench: QuotaBench) -> None:
    sensors = set(bench.metrics.sensors)
    produce, fetch = bench.managers.produce, bench.managers.fetch
    request = bench.request("alice")
    assert enabled(produce, fetch) == (False, False)
    assert produce.maybe_record_and_get_throttle_time_ms(request, 1e12, bench.now_ms) == 0
    fetch.unrecord(request, 1e12, bench.now_ms)
    assert fetch.max_value_in_window(request) == math.inf
    assert bench.managers.request.maybe_record_and_get_throttle_time_ms(request, bench.now_ms) == 0
    bench.managers.request.maybe_record_exempt(request)
    assert request.record_network_thread_time is None
    assert set(bench.metrics.sensors) == sensors
    produce.update_quota(QuotaEntity("alice"), 1.0)
    assert enabled(produce, fetch) == (True, False), "each kind for itself"
    produce.update_quota(QuotaEntity("alice"), None)
    assert enabled(produce, fetch) == (False, False), "the last limit switches it off again"
    assert produce.maybe_record_and_get_throttle_time_ms(request, 1e12, bench.now_ms) == 0


@pytest.mark.mechanism("Q04")
def test_the_delay_is_the_excess_as_time_at_the_limit(bench: QuotaBench) -> None:
    """The worked example of the class: (O - T) / T x W."""
    bench.managers.produce.update_quota(QuotaEntity("alice"), MB)
    assert bench.produce(10_350_000, "alice") == 350, "10,350,000 bytes over 10 s"
    bench.clock.advance(10_500)
    assert bench.produce(300_000, "alice") == 150, "10,650,000 bytes over 10.5 s"
    bench.clock.advance(150)
    assert bench.produce(0, "alice") == 0, "just kept again"
    assert bench.produce(1_000, "alice") == 1


@pytest.mark.mechanism("Q04")
def test_exactly_at_the_limit_nobody_waits(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity("alice"), MB)
    assert bench.produce(10 * MB, "alice") == 0
    assert bench.produce(500, "alice") == 1, "half a millisecond, rounded up"


@pytest.mark.mechanism("Q04")
def test_a_client_that_obeys_gets_its_rate_and_no_more() -> None:
    """Whoever waits as long as it is told has, in the long run, sent what it may."""
    with quota_bench() as bench:
        bench.managers.produce.update_quota(QuotaEntity(None, DEFAULT), MB)
        started, sent = bench.now_ms, 0
        while bench.now_ms - started < 110_000:
            delay = bench.produce(16_384)
            sent += 16_384
            bench.clock.advance(delay + 1)
        assert 0.9 < sent / MB / 110 < 1.1


@pytest.mark.mechanism("Q04")
@pytest.mark.parametrize("step_ms", [-3_600_000, -12_000, -5_000, 3_600_000])
def test_a_client_gets_its_rate_when_the_date_is_set(bench: QuotaBench, step_ms: int) -> None:
    bench.managers.produce.update_quota(QuotaEntity(None, DEFAULT), MB)

    def sent_in(seconds: int) -> int:
        end, sent = bench.clock.hi_res_milliseconds() + seconds * 1_000, 0
        while bench.clock.hi_res_milliseconds() < end:
            delay = bench.produce(16_384)
            sent += 16_384
            bench.clock.advance(delay + 1)
        return sent

    sent_in(60)
    bench.clock.set_milliseconds(bench.now_ms + step_ms)
    # Once, there may be a burst of as much as fits into the windows, or a pause until they are over.
    assert 0.75 < sent_in(60) / MB / 60 < 1.25
    assert 0.9 < sent_in(60) / MB / 60 < 1.1


def test_a_delay_fits_into_the_field(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity(None, DEFAULT), 1.0)
    assert bench.produce(1e12) == MAX_THROTTLE_MS


@pytest.mark.mechanism("Q02")
def test_clients_share_the_usage_of_the_level_that_matched(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity("alice"), MB)
    produce.update_quota(QuotaEntity(None, "billing"), MB)
    bench.produce(100, "alice", "billing")
    bench.produce(200, "alice", "other")
    bench.produce(1_000, "bob", "billing")
    bench.produce(4_000, "carol", "billing")
    assert rate(bench.metrics, "alice") == pytest.approx(30)
    assert rate(bench.metrics, client_id="billing") == pytest.approx(500)
    assert not any(name.tags.get("user") in {"bob", "carol"} for name in bench.metrics.metrics)


def test_names_with_signs_that_mean_something_to_jmx_are_encoded(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity("CN=alice,O=The Castle~"), MB)
    bench.produce(1_000, "CN=alice,O=The Castle~")
    assert rate(bench.metrics, "CN%3Dalice%2CO%3DThe%20Castle%7E") == pytest.approx(100)


def test_nobody_without_a_name_escapes(bench: QuotaBench) -> None:
    """A connection without authentication is ANONYMOUS; a request without a client id falls under the default."""
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(None, DEFAULT), MB)
    assert bench.produce(11 * MB, None, None) == 1_000
    produce.update_quota(QuotaEntity("ANONYMOUS"), 2 * MB)
    assert bench.produce(22 * MB, None, "x") == 1_000


@pytest.mark.mechanism("Q10")
def test_a_new_limit_counts_at_once_and_resets_nothing(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity("alice"), 2 * MB)
    assert bench.produce(15 * MB, "alice") == 0
    produce.update_quota(QuotaEntity("alice"), MB)
    assert rate(bench.metrics, "alice") == 1_500_000, "what was used is still there"
    assert bench.produce(0, "alice") == 5_000, "15 MB at 1 MB/s are 15 s; 10 have been given"
    produce.update_quota(QuotaEntity("alice"), 3 * MB)
    assert bench.produce(0, "alice") == 0
    assert rate(bench.metrics, "alice") == 1_500_000


@pytest.mark.mechanism("Q10")
def test_a_new_default_reaches_those_who_live_by_it_and_nobody_else(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(DEFAULT), 10 * MB)
    produce.update_quota(QuotaEntity("bob"), 10 * MB)
    bench.produce(20 * MB, "alice")
    bench.produce(20 * MB, "bob")
    produce.update_quota(QuotaEntity(DEFAULT), MB)
    assert bench.produce(0, "alice") == 10_000
    assert bench.produce(0, "bob") == 0
    produce.update_quota(QuotaEntity("bob"), None)
    assert bench.produce(0, "bob") == 10_000, "without a limit of its own it has the default"
    produce.update_quota(QuotaEntity(DEFAULT), None)
    assert produce.quota("bob", "") == NO_LIMIT


@pytest.mark.mechanism("Q10")
def test_a_level_that_comes_into_use_takes_over_from_the_less_specific_one(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(None, "billing"), MB)
    assert bench.produce(20 * MB, "alice", "billing") == 10_000
    produce.update_quota(QuotaEntity("alice", "billing"), 4 * MB)
    assert produce.levels == QuotaLevel.CLIENT_ID | QuotaLevel.USER_CLIENT_ID
    assert bench.produce(0, "alice", "billing") == 0, "another quota, of which nothing is used"
    assert bench.produce(0, "bob", "billing") == 10_000
    produce.update_quota(QuotaEntity("alice", "billing"), None)
    assert bench.produce(0, "alice", "billing") == 10_000, "back, and nothing is forgotten"


@pytest.mark.mechanism("Q06")
def test_what_is_not_sent_is_taken_back(bench: QuotaBench) -> None:
    fetch = bench.managers.fetch
    fetch.update_quota(QuotaEntity(None, DEFAULT), MB)
    request = bench.request()
    assert fetch.maybe_record_and_get_throttle_time_ms(request, 9 * MB, bench.now_ms) == 0
    assert fetch.maybe_record_and_get_throttle_time_ms(request, 3 * MB, bench.now_ms) == 2_000
    fetch.unrecord(request, 3 * MB, bench.now_ms)
    assert rate(bench.metrics, client_id="client", kind="Fetch") == 900_000
    assert fetch.maybe_record_and_get_throttle_time_ms(request, MB, bench.now_ms) == 0


@pytest.mark.mechanism("Q06")
@pytest.mark.parametrize(("windows", "most"), [(QuotaWindows(), 10_000), (QuotaWindows(5, 2), 8_000)])
def test_the_most_that_can_be_fetched_at_once_is_what_just_keeps_the_limit(windows: QuotaWindows, most: int) -> None:
    with quota_bench(windows) as bench:
        fetch = bench.managers.fetch
        fetch.update_quota(QuotaEntity("alice"), 1_000)
        request = bench.request("alice")
        assert fetch.max_value_in_window(request) == most
        assert fetch.maybe_record_and_get_throttle_time_ms(request, most, bench.now_ms) == 0
        assert fetch.maybe_record_and_get_throttle_time_ms(request, 1, bench.now_ms) == 1
        assert fetch.max_value_in_window(bench.request("bob")) == math.inf


@pytest.mark.mechanism("Q05")
def test_a_throttled_client_is_muted_at_once_and_unmuted_once_when_its_time_is_over(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(None, DEFAULT), MB)
    first, second = Muting(), Muting()
    produce.throttle(bench.request(client_id="a"), first, 500)
    assert bench.clock.await_waiters(1), "the reaper"
    produce.throttle(bench.request(client_id="b"), second, 100)
    assert (first.started, first.ended, second.started, second.ended) == (1, 0, 1, 0)
    assert produce.throttled_channels == 2
    bench.clock.advance(99)
    assert second.ended == 0
    bench.clock.advance(1)
    wait_until(lambda: second.ended == 1)
    assert first.ended == 0
    bench.clock.advance(10_000)
    wait_until(lambda: first.ended == 1)
    bench.clock.advance(10_000)
    assert (first.ended, second.ended) == (1, 1)
    assert produce.throttled_channels == 0
    average = bench.metrics.metric(MetricName("throttle-time", "Produce", {"user": "", "client-id": "a"}))
    assert average is not None
    assert average.value() == 500


@pytest.mark.mechanism("Q05")
def test_there_is_one_reaper_for_each_kind_named_as_in_kafka(bench: QuotaBench) -> None:
    """It starts with the first connection that is held back: most brokers have no quotas at all."""
    assert not [thread for thread in threading.enumerate() if "ThrottledChannelReaper" in thread.name]
    for manager in bench.managers.clients:
        for _ in range(2):
            manager.throttle(bench.request(), Muting(), 100)
    names = [thread.name for thread in threading.enumerate() if "ThrottledChannelReaper" in thread.name]
    assert sorted(names) == [
        f"broker-1-ThrottledChannelReaper-{kind}" for kind in ("ControllerMutation", "Fetch", "Produce", "Request")
    ]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name in names)


def test_no_time_is_no_throttling(bench: QuotaBench) -> None:
    muting = Muting()
    bench.managers.produce.throttle(bench.request(), muting, 0)
    assert muting.started == 0


def test_the_size_of_the_delay_queue_is_a_metric(bench: QuotaBench) -> None:
    size = bench.metrics.metric(MetricName("queue-size", "Fetch"))
    assert size is not None
    bench.managers.fetch.throttle(bench.request(), Muting(), 50)
    assert size.value() == 1
    bench.clock.advance(50)
    wait_until(lambda: size.value() == 0)


@pytest.mark.mechanism("Q11")
def test_a_client_is_forgotten_after_an_idle_hour_and_not_before(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity(None, DEFAULT), MB)
    bench.produce(11 * MB)
    bench.clock.advance(3_600_000)
    assert "Produce-:client" not in bench.metrics.expire_inactive_sensors(), "an hour, to the millisecond"
    bench.clock.advance(1)
    assert {"Produce-:client", "ProduceThrottleTime-:client"} <= set(bench.metrics.expire_inactive_sensors())
    assert bench.metrics.metric(MetricName("byte-rate", "Produce", {"user": "", "client-id": "client"})) is None
    assert bench.produce(5 * MB) == 0, "it begins anew"
    assert rate(bench.metrics, client_id="client") == 500_000


@pytest.mark.mechanism("Q11")
def test_a_sensor_that_has_expired_and_is_still_there_is_replaced(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(None, DEFAULT), MB)
    bench.produce(5 * MB)
    before = produce.sensors_of(None, "client")
    bench.clock.advance(3_600_001)
    bench.metrics.remove_sensor(before.throttle_time_sensor.name)
    after = produce.sensors_of(None, "client")
    assert after.quota_sensor is not before.quota_sensor
    assert bench.produce(20 * MB) == 10_000


def test_forgotten_clients_do_not_pile_up(bench: QuotaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.quota.client_quota_manager._CACHE_SWEEP", 8)
    produce = bench.managers.produce
    produce._sweep_at = 8
    produce.update_quota(QuotaEntity(None, DEFAULT), MB)
    for number in range(100):
        bench.produce(1, client_id=f"client-{number}")
        bench.clock.advance(3_600_001)
        bench.metrics.expire_inactive_sensors()
    assert len(produce._sensors) <= 8


def test_many_threads_that_meet_at_a_new_client_lose_nothing(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity(None, DEFAULT), 1e12)
    barrier = threading.Barrier(4)

    def work() -> None:
        for number in range(50):
            barrier.wait(60)
            bench.produce(1_000, client_id=f"client-{number}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(50):
        assert rate(bench.metrics, client_id=f"client-{number}") == 400


def wait_until(condition: object) -> None:
    """Another thread is about to make it true."""
    assert callable(condition)
    until(condition, "not true", 60)
