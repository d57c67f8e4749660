"""The share of the threads' time."""

from __future__ import annotations

import pytest

from barnabas.metrics.names import MetricName
from barnabas.network.server.response import SendResponse
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.server.request import Request
from quota_fixtures import QuotaBench, quota_bench


def percentage(bench: QuotaBench, client_id: str = "client") -> float:
    metric = bench.metrics.metric(MetricName("request-time", "Request", {"user": "", "client-id": client_id}))
    assert metric is not None
    value: float = metric.value()
    return value


def exempt(bench: QuotaBench) -> float:
    metric = bench.metrics.metric(MetricName("exempt-request-time", "Request"))
    assert metric is not None
    value: float = metric.value()
    return value


def handled(bench: QuotaBench, milliseconds: float, client_id: str = "client") -> Request:
    """A request on which a handler has been for so long."""
    request = bench.request(client_id=client_id)
    bench.clock.advance(milliseconds)
    return request


@pytest.mark.mechanism("Q07")
def test_handler_time_is_charged_in_percent_of_a_thread(bench: QuotaBench) -> None:
    quota = bench.managers.request
    quota.update_quota(QuotaEntity(None, DEFAULT), 1.0)
    request = handled(bench, 100)
    assert quota.maybe_record_and_get_throttle_time_ms(request, bench.now_ms) == 0
    assert percentage(bench) == pytest.approx(1.0), "100 ms of 10 s"
    again = handled(bench, 10)
    # 110 ms in 10.01 s are 1.0989 %; (1.0989 - 1) / 1 x 10.01 s
    assert quota.maybe_record_and_get_throttle_time_ms(again, bench.now_ms) == 990


@pytest.mark.mechanism("Q07")
def test_time_in_which_a_request_waits_for_others_is_not_charged(bench: QuotaBench) -> None:
    quota = bench.managers.request
    quota.update_quota(QuotaEntity(None, DEFAULT), 50.0)
    request = handled(bench, 100)
    request.api_local_complete_time_ns = bench.clock.nanoseconds()  # the handler is done, and has put it into purgatory
    bench.clock.advance(5_000)
    quota.maybe_record_and_get_throttle_time_ms(request, bench.now_ms)
    assert percentage(bench) == pytest.approx(1.0)


@pytest.mark.mechanism("Q07")
def test_network_time_is_added_when_the_response_is_out_and_throttles_the_next_request(bench: QuotaBench) -> None:
    quota = bench.managers.request
    quota.update_quota(QuotaEntity(None, DEFAULT), 1.0)
    request = handled(bench, 50)
    assert quota.maybe_record_and_get_throttle_time_ms(request, bench.now_ms) == 0
    request.response_dequeue_time_ns = request.response_complete_time_ns = bench.clock.nanoseconds()
    request.complete(150_000_000, SendResponse((b"",), request))
    assert percentage(bench) == pytest.approx(2.0)
    assert quota.maybe_record_and_get_throttle_time_ms(bench.request(), bench.now_ms) == 1_000


@pytest.mark.mechanism("Q07")
def test_cluster_traffic_goes_to_the_exempt_sensor_which_does_not_expire(bench: QuotaBench) -> None:
    quota = bench.managers.request
    quota.update_quota(QuotaEntity(None, DEFAULT), 1.0)
    request = handled(bench, 3_000)
    quota.maybe_record_exempt(request)
    assert request.record_network_thread_time is not None
    request.record_network_thread_time(3_000_000_000)
    # The windows are those of ordinary metrics: two of 30 s.
    assert exempt(bench) == pytest.approx(600 / 30)
    assert bench.metrics.metric(MetricName("request-time", "Request", {"user": "", "client-id": "client"})) is None
    bench.clock.advance(10 * 3_600_000)
    bench.metrics.expire_inactive_sensors()
    assert bench.metrics.get_sensor("exempt-Request") is quota.exempt_sensor


@pytest.mark.mechanism("Q04")
@pytest.mark.parametrize(("windows", "most"), [(QuotaWindows(), 1_000), (QuotaWindows(11, 3), 3_000)])
def test_nobody_waits_longer_than_one_window(windows: QuotaWindows, most: int) -> None:
    with quota_bench(windows) as bench:
        quota = bench.managers.request
        quota.update_quota(QuotaEntity(None, DEFAULT), 1.0)
        assert quota.maybe_record_and_get_throttle_time_ms(handled(bench, 9_000), bench.now_ms) == most


def test_a_listener_is_told_when_time_has_to_be_measured(bench: QuotaBench) -> None:
    told: list[bool] = []
    quota = bench.managers.request
    quota.when_enabled(told.append)
    quota.update_quota(QuotaEntity("alice"), 1.0)
    quota.update_quota(QuotaEntity("bob"), 1.0)
    quota.update_quota(QuotaEntity("alice"), None)
    quota.update_quota(QuotaEntity("bob"), None)
    assert told == [False, True, False]
