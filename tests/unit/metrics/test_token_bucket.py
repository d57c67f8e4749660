"""The token bucket: refill, then spend."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError
from barnabas.metrics.stats import Rate, TokenBucket
from barnabas.metrics.throttle import throttle_time, token_bucket_throttle_time
from barnabas.metrics.units import TimeUnit

# Five a second, and 100 windows of a second to save them up in: at most 500.
CONFIG = MetricConfig(samples=100, window_ms=1_000, quota=Quota(5.0))
START = 1_700_000_000_000

pytestmark = pytest.mark.mechanism("Q01")


class TestTokenBucket:
    def test_a_burst_of_560_at_5_a_second_is_clear_after_12_seconds(self) -> None:
        clock = MockClock(milliseconds=START)
        metrics = Metrics(CONFIG, clock=clock)
        sensor = metrics.sensor("mutations")
        sensor.add(metrics.metric_name("tokens", "ControllerMutation"), TokenBucket())
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(560)
        assert (violated.value.value, violated.value.bound) == (-60.0, 5.0)
        assert token_bucket_throttle_time(violated.value) == 12_000
        clock.advance(11_999)
        with pytest.raises(QuotaViolationError):
            sensor.check_quotas()
        clock.advance(1)
        sensor.check_quotas()
        with pytest.raises(QuotaViolationError):
            sensor.record(0.001)

    def test_a_date_that_is_set_back_takes_no_tokens(self) -> None:
        bucket, hour = TokenBucket(), 3_600_000
        bucket.record(CONFIG, 100, START)
        assert bucket.measure(CONFIG, START - hour) == 400
        assert bucket.measure(CONFIG, START - hour + 2_000) == 410

    def test_as_a_rate_the_same_burst_takes_until_its_sample_is_gone(self) -> None:
        """What the bucket is for: the rate's own throttle time is about as long, but waiting for it does not help."""
        clock = MockClock(milliseconds=START)
        metrics = Metrics(CONFIG, clock=clock)
        sensor = metrics.sensor("mutations")
        sensor.add(metrics.metric_name("rate", "ControllerMutation"), Rate())
        for _ in range(99):  # 99 windows of nothing, so that the divisor is what it is in a running broker
            sensor.record(0)
            clock.advance(1_000)
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(560)
        waited_ms = throttle_time(violated.value, clock.milliseconds())
        assert waited_ms == 13_000  # (560 / 99 - 5) / 5 of the 99 seconds that the rate has seen
        clock.advance(waited_ms)
        with pytest.raises(QuotaViolationError):
            sensor.check_quotas()
        clock.advance(100_000 - waited_ms - 1)
        with pytest.raises(QuotaViolationError):
            sensor.check_quotas()
        clock.advance(1)
        sensor.check_quotas()

    def test_tokens_flow_in_steadily_and_never_more_than_the_burst(self) -> None:
        bucket = TokenBucket()
        assert bucket.measure(CONFIG, START) == 500
        bucket.record(CONFIG, 100, START)
        assert bucket.measure(CONFIG, START) == 400
        assert bucket.measure(CONFIG, START + 1) == 400.005
        assert bucket.measure(CONFIG, START + 1_000) == pytest.approx(405, abs=1e-9)
        assert bucket.measure(CONFIG, START + 20_000) == 500
        assert bucket.measure(CONFIG, START + 10_000_000) == 500

    def test_refill_comes_before_spending(self) -> None:
        bucket = TokenBucket()
        bucket.record(CONFIG, 0, START)
        # The bucket has been full all the time. Spent first and refilled then, it would be full again.
        bucket.record(CONFIG, 100, START + 100_000)
        assert bucket.measure(CONFIG, START + 100_000) == 400

    def test_tokens_given_back_do_not_overflow(self) -> None:
        bucket = TokenBucket()
        bucket.record(CONFIG, 10, START)
        bucket.record(CONFIG, -4, START)
        assert bucket.measure(CONFIG, START) == 494
        bucket.record(CONFIG, -100, START)
        # A larger bucket does not bring back what did not fit into the smaller one.
        assert bucket.measure(CONFIG.with_quota(Quota(10.0)), START) == 500

    def test_without_a_quota_nothing_is_counted(self) -> None:
        bucket = TokenBucket()
        bucket.record(CONFIG.with_quota(None), 10_000, START)
        assert bucket.measure(CONFIG.with_quota(None), START) == float(2**63 - 1)
        assert bucket.measure(CONFIG, START) == 500

    def test_a_new_bound_keeps_the_credit(self) -> None:
        bucket = TokenBucket()
        bucket.record(CONFIG, 560, START)
        faster = CONFIG.with_quota(Quota(10.0))
        assert bucket.measure(faster, START) == -60
        assert bucket.measure(faster, START + 6_000) == 0

    def test_a_new_smaller_burst_cuts_the_credit(self) -> None:
        bucket = TokenBucket()
        assert bucket.measure(CONFIG, START) == 500
        assert bucket.measure(MetricConfig(samples=10, window_ms=1_000, quota=Quota(5.0)), START) == 50

    def test_units(self) -> None:
        config = MetricConfig(samples=2, window_ms=60_000, quota=Quota(30.0))
        bucket = TokenBucket(TimeUnit.MINUTES)
        bucket.record(config, 60, START)
        assert bucket.measure(config, START) == 0
        assert bucket.measure(config, START + 30_000) == 15
