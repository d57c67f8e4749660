"""Rates: what the sum is divided by."""

from __future__ import annotations

import pytest

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.stats import Meter, Rate, SimpleRate, WindowedCount, WindowedSum
from barnabas.metrics.units import TimeUnit

QUOTA_WINDOWS = MetricConfig(samples=11, window_ms=1_000)
START = 1_700_000_000_000


@pytest.mark.mechanism("Q01")
class TestRate:
    @pytest.mark.parametrize(
        ("after_ms", "divisor_ms"),
        [
            (0, 10_000),
            (10, 10_010),
            (999, 10_999),
            (1_000, 10_000),
            (5_500, 10_500),
            (10_000, 10_000),
            (10_999, 10_999),
        ],
    )
    def test_missing_windows_count_as_empty_ones(self, after_ms: int, divisor_ms: int) -> None:
        rate = Rate()
        rate.record(QUOTA_WINDOWS, 1_000, START)
        assert rate.window_size(QUOTA_WINDOWS, START + after_ms) == divisor_ms
        assert rate.measure(QUOTA_WINDOWS, START + after_ms) == 1_000 / (divisor_ms / 1_000)

    def test_a_burst_drops_out_with_its_sample(self) -> None:
        rate = Rate()
        rate.record(QUOTA_WINDOWS, 1_000, START)
        assert rate.measure(QUOTA_WINDOWS, START + 10_999) > 0
        assert rate.measure(QUOTA_WINDOWS, START + 11_000) == 0
        assert rate.window_size(QUOTA_WINDOWS, START + 11_000) == 10_000  # all samples began again just now

    def test_a_steady_stream_has_the_rate_it_has(self) -> None:
        rate = Rate()
        for second in range(60):
            rate.record(QUOTA_WINDOWS, 500, START + second * 1_000)
        # The sample of 10 seconds ago began 10 seconds ago and is full, the one of now is new: 11 sums, 10 seconds.
        assert rate.measure(QUOTA_WINDOWS, START + 59_000) == 11 * 500 / 10
        assert rate.measure(QUOTA_WINDOWS, START + 59_999) == 11 * 500 / 10.999

    def test_a_single_sample_is_divided_by_a_millisecond_at_least(self) -> None:
        rate = Rate()
        config = MetricConfig(samples=1, window_ms=1_000)
        rate.record(config, 5, START)
        assert rate.window_size(config, START) == 1
        assert rate.measure(config, START) == 5_000

    def test_a_rate_without_values_is_zero(self) -> None:
        assert Rate().measure(QUOTA_WINDOWS, START) == 0
        assert Rate().window_size(QUOTA_WINDOWS, START) == 10_000

    def test_a_clock_that_went_back_is_no_full_window(self) -> None:
        rate = Rate()
        rate.record(QUOTA_WINDOWS, 5, START)
        assert rate.window_size(QUOTA_WINDOWS, START - 500) == 9_500
        assert rate.window_size(QUOTA_WINDOWS, START - 1_500) == 9_500

    def test_units(self) -> None:
        config = MetricConfig(samples=2, window_ms=30_000)
        for unit, expected in [(TimeUnit.SECONDS, 2.0), (TimeUnit.MINUTES, 120.0), (TimeUnit.MILLISECONDS, 0.002)]:
            rate = Rate(unit)
            rate.record(config, 60, START)
            assert rate.measure(config, START) == expected

    def test_a_rate_of_events(self) -> None:
        rate = Rate(stat=WindowedCount())
        for value in (100, 200):
            rate.record(QUOTA_WINDOWS, value, START)
        assert rate.measure(QUOTA_WINDOWS, START) == 0.2

    def test_a_rate_may_have_its_own_width_of_window(self) -> None:
        rate = Rate(window_ms=100)
        rate.record(QUOTA_WINDOWS, 1, START)
        assert rate.window_size(QUOTA_WINDOWS, START) == 1_000
        assert rate.measure(QUOTA_WINDOWS, START + 1_099) > 0
        assert rate.measure(QUOTA_WINDOWS, START + 1_100) == 0

    @pytest.mark.parametrize(("after_ms", "divisor_ms"), [(0, 1_000), (999, 1_000), (1_000, 1_000), (5_500, 5_500)])
    def test_simple_rate_pads_to_one_window_only(self, after_ms: int, divisor_ms: int) -> None:
        rate = SimpleRate()
        rate.record(QUOTA_WINDOWS, 1_000, START)
        assert rate.window_size(QUOTA_WINDOWS, START + after_ms) == divisor_ms
        assert rate.measure(QUOTA_WINDOWS, START + after_ms) == 1_000 / (divisor_ms / 1_000)


class TestMeter:
    RATE, TOTAL = MetricName("x-rate", "g"), MetricName("x-total", "g")

    @pytest.mark.parametrize(("stat", "total"), [(None, 30.0), (WindowedSum(), 30.0), (WindowedCount(), 2.0)])
    def test_rate_and_total_are_of_the_same_thing(self, stat: WindowedSum | None, total: float) -> None:
        meter = Meter(self.RATE, self.TOTAL, stat=stat)
        for value in (10, 20):
            meter.record(QUOTA_WINDOWS, value, START)
        values = {named.name: named.stat.measure(QUOTA_WINDOWS, START) for named in meter.stats()}
        assert values == {self.TOTAL: total, self.RATE: total / 10}
