"""Partitions created and deleted: the token bucket."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ThrottlingQuotaExceededError
from barnabas.metrics.names import MetricName
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.server.throttling import UNLIMITED, ControllerMutationQuota
from quota_fixtures import QuotaBench, quota_bench

STRICT_SINCE = 6


def tokens(bench: QuotaBench) -> float:
    metric = bench.metrics.metric(MetricName("tokens", "ControllerMutation", {"user": "", "client-id": "client"}))
    assert metric is not None
    value: float = metric.value()
    return value


def quota_of(bench: QuotaBench, version: int) -> ControllerMutationQuota:
    request = bench.handlers.request(CreateTopicsRequest(), version, client_id="client")
    return bench.managers.controller_mutation.new_quota_for(request, STRICT_SINCE)


@pytest.mark.mechanism("Q08")
def test_the_worked_example_a_burst_of_560_is_clear_after_12_seconds() -> None:
    """100 windows of a second at 5 a second make a burst of 500; 560 leave -60, and 60 / 5 are 12 seconds."""
    with quota_bench(QuotaWindows(samples=100, window_seconds=1)) as bench:
        bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 5.0)
        permissive = quota_of(bench, STRICT_SINCE - 1)
        permissive.record(560)
        assert tokens(bench) == -60
        assert permissive.throttle_time_ms == 12_000
        bench.clock.advance(11_999)
        with pytest.raises(ThrottlingQuotaExceededError):
            quota_of(bench, STRICT_SINCE).record(1)
        bench.clock.advance(1)
        assert tokens(bench) == pytest.approx(0, abs=1e-9)
        quota_of(bench, STRICT_SINCE).record(1)


@pytest.mark.mechanism("Q08")
def test_a_date_that_is_set_back_prolongs_no_wait(bench: QuotaBench) -> None:
    bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    quota = quota_of(bench, STRICT_SINCE - 1)
    quota.record(32)
    assert quota.throttle_time_ms == 5_000
    bench.clock.set_milliseconds(bench.now_ms - 3_600_000)
    assert quota.throttle_time_ms == 5_000
    assert tokens(bench) == -10
    bench.clock.advance(5_000)
    assert (quota.throttle_time_ms, tokens(bench)) == (0, 0)


@pytest.mark.mechanism("Q08")
def test_a_strict_quota_refuses_when_the_bucket_is_overdrawn_and_charges_nothing_then(bench: QuotaBench) -> None:
    bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    first = quota_of(bench, STRICT_SINCE)
    first.record(32)  # 22 fit in; as there are some left, all is accepted
    assert (first.is_exceeded, first.throttle_time_ms) == (False, 0)
    assert tokens(bench) == -10
    second = quota_of(bench, STRICT_SINCE)
    with pytest.raises(ThrottlingQuotaExceededError):
        second.record(1)
    assert tokens(bench) == -10
    assert second.is_exceeded
    assert second.throttle_time_ms == 5_000


@pytest.mark.mechanism("Q08")
def test_a_permissive_quota_accepts_everything_and_makes_the_client_wait(bench: QuotaBench) -> None:
    bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    first = quota_of(bench, STRICT_SINCE - 1)
    first.record(32)
    assert first.throttle_time_ms == 5_000, "unlike a strict one, as soon as it is overdrawn"
    second = quota_of(bench, STRICT_SINCE - 1)
    second.record(10)
    assert (second.is_exceeded, second.throttle_time_ms) == (False, 10_000)


@pytest.mark.mechanism("Q08")
def test_what_has_passed_since_is_taken_off_the_delay(bench: QuotaBench) -> None:
    bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    quota = quota_of(bench, STRICT_SINCE - 1)
    quota.record(32)
    bench.clock.advance(1_500)
    assert quota.throttle_time_ms == 3_500
    bench.clock.advance(10_000)
    assert quota.throttle_time_ms == 0


@pytest.mark.mechanism("Q08")
@pytest.mark.mechanism("Q03")
def test_without_any_such_quota_there_is_nothing_to_charge(bench: QuotaBench) -> None:
    assert quota_of(bench, STRICT_SINCE) is UNLIMITED
    assert quota_of(bench, STRICT_SINCE - 1) is UNLIMITED


@pytest.mark.mechanism("Q10")
def test_a_new_rate_leaves_the_tokens_as_they_are(bench: QuotaBench) -> None:
    manager = bench.managers.controller_mutation
    manager.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    quota_of(bench, STRICT_SINCE).record(32)
    manager.update_quota(QuotaEntity(None, DEFAULT), 10.0)
    assert tokens(bench) == -10
    assert manager.record_and_get_throttle_time_ms(None, "client", 1, bench.now_ms) == 1_000
    bench.clock.advance(1_000)
    assert manager.record_and_get_throttle_time_ms(None, "client", 1, bench.now_ms) == 0


def test_the_rate_is_a_metric_beside_the_tokens(bench: QuotaBench) -> None:
    bench.managers.controller_mutation.update_quota(QuotaEntity(None, DEFAULT), 2.0)
    quota_of(bench, STRICT_SINCE).record(30)
    metric = bench.metrics.metric(
        MetricName("mutation-rate", "ControllerMutation", {"user": "", "client-id": "client"})
    )
    assert metric is not None
    assert metric.value() == pytest.approx(1.0), "over 30 s, as ordinary metrics are"
