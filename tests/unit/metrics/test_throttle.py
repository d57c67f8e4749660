"""From a violation to a delay."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError
from barnabas.metrics.stats import MeasurableStat, Rate, TokenBucket, Value
from barnabas.metrics.throttle import bounded_throttle_time, throttle_time, token_bucket_throttle_time

CONFIG = MetricConfig(samples=11, window_ms=1_000, quota=Quota(500.0))


def violation(stat: MeasurableStat, value: float, bound: float) -> QuotaViolationError:
    metric = KafkaMetric(MetricName("m", "g"), stat, CONFIG.with_quota(Quota(bound)), MockClock())
    return QuotaViolationError(metric, value, bound)


@pytest.mark.mechanism("Q01")
class TestThrottleTime:
    def test_stretches_the_window_until_the_rate_fits(self) -> None:
        clock = MockClock()
        metrics = Metrics(CONFIG, clock=clock)
        sensor = metrics.sensor("bytes")
        sensor.add(metrics.metric_name("byte-rate", "Produce"), Rate())
        sensor.record(5_000)  # 500 a second over ten seconds: just allowed
        clock.advance(500)
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(2_350)
        assert violated.value.value == 7_350 / 10.5
        # 700 where 500 is allowed, over 10.5 seconds: (700 - 500) / 500 * 10,500 ms. Indeed 7,350 over 10.5 + 4.2
        # seconds are 500 a second.
        assert throttle_time(violated.value, clock.milliseconds()) == 4_200

    def test_is_capped_where_asked(self) -> None:
        error = violation(Rate(), 700, 500)
        assert throttle_time(error, 0) == 4_000
        assert bounded_throttle_time(error, 1_000, 0) == 1_000
        assert bounded_throttle_time(error, 5_000, 0) == 4_000

    @pytest.mark.parametrize(
        ("tokens", "bound", "delay_ms"),
        [(-60, 5, 12_000), (-1, 3, 333), (-2, 3, 667), (-0.0005, 1, 1), (-0.000499, 1, 0), (-1, 0, 2**63 - 1)],
    )
    def test_token_bucket(self, tokens: float, bound: float, delay_ms: int) -> None:
        assert token_bucket_throttle_time(violation(TokenBucket(), tokens, bound)) == delay_ms

    def test_a_bound_of_zero_is_for_ever(self) -> None:
        assert throttle_time(violation(Rate(), 1, 0), 0) == 2**63 - 1
        assert bounded_throttle_time(violation(Rate(), 1, 0), 1_000, 0) == 1_000
        assert throttle_time(violation(Rate(), 0, 0), 0) == 0

    def test_each_is_for_its_own_kind(self) -> None:
        with pytest.raises(TypeError, match="not a rate"):
            throttle_time(violation(Value(), 1, 0), 0)
        with pytest.raises(TypeError, match="not a token bucket"):
            token_bucket_throttle_time(violation(Rate(), 1, 0))
