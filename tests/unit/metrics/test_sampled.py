"""Windows: when one is over, which ones count, and what they add up to."""

from __future__ import annotations

import math
from random import Random

import pytest

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.stats import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MeasurableStat,
    Min,
    Value,
    WindowedCount,
    WindowedSum,
)

TWO_SECONDS = MetricConfig(samples=2, window_ms=1_000)


def recorded(stat: MeasurableStat, *values: float) -> MeasurableStat:
    for value in values:
        stat.record(TWO_SECONDS, value, 0)
    return stat


@pytest.mark.mechanism("Q01")
class TestWindows:
    def test_the_example_of_the_docstring(self) -> None:
        stat = WindowedSum()
        for value, time_ms in [(1, 0), (2, 400), (3, 1_300), (4, 1_900)]:
            stat.record(TWO_SECONDS, value, time_ms)
        assert [sample.value for sample in stat.samples] == [3, 7]
        assert stat.measure(TWO_SECONDS, 2_300) == 10
        assert stat.measure(TWO_SECONDS, 2_399) == 10
        assert stat.measure(TWO_SECONDS, 2_400) == 7
        stat.record(TWO_SECONDS, 5, 5_000)
        assert stat.measure(TWO_SECONDS, 5_000) == 5

    @pytest.mark.parametrize(("second_ms", "samples"), [(999, [3.0]), (1_000, [1.0, 2.0])])
    def test_a_window_is_over_when_its_whole_width_has_passed(self, second_ms: int, samples: list[float]) -> None:
        stat = WindowedSum()
        stat.record(TWO_SECONDS, 1, 0)
        stat.record(TWO_SECONDS, 2, second_ms)
        assert [sample.value for sample in stat.samples] == samples

    @pytest.mark.parametrize(("now_ms", "total"), [(2_998, 1.0), (2_999, 0.0)])
    def test_a_sample_counts_while_its_last_event_is_young_enough(self, now_ms: int, total: float) -> None:
        stat = WindowedSum()
        stat.record(TWO_SECONDS, 0.5, 0)
        stat.record(TWO_SECONDS, 0.5, 999)
        assert stat.measure(TWO_SECONDS, now_ms) == total

    def test_a_purged_sample_starts_again_when_somebody_looks(self) -> None:
        stat = WindowedSum()
        stat.record(TWO_SECONDS, 1, 0)
        stat.measure(TWO_SECONDS, 10_000)
        assert stat.oldest(10_000) == 10_000
        stat.record(TWO_SECONDS, 2, 10_999)  # still the window that began at 10,000
        assert [sample.value for sample in stat.samples] == [2]

    def test_one_sample_more_than_configured_is_kept_then_they_take_turns(self) -> None:
        stat = WindowedSum()
        for turn in range(7):
            stat.record(TWO_SECONDS, turn, turn * 1_000)
        assert [sample.value for sample in stat.samples] == [6, 4, 5]
        assert stat.oldest(6_000) == 4_000
        # The sample of 4,000 is out by now, that of 5,000 counts for one more millisecond.
        assert stat.measure(TWO_SECONDS, 6_999) == 5 + 6
        assert stat.measure(TWO_SECONDS, 7_000) == 6

    def test_the_current_sample_can_be_too_old_while_others_are_not(self) -> None:
        stat = WindowedSum()
        stat.record(TWO_SECONDS, 1, 5_000)
        stat.record(TWO_SECONDS, 2, 6_000)
        stat.record(TWO_SECONDS, 4, 4_400)  # the clock went back a little
        assert stat.measure(TWO_SECONDS, 6_500) == 1

    @pytest.mark.parametrize("first", ["record", "record_all", "measure"])
    def test_a_date_that_is_set_back_moves_the_windows_with_it(self, first: str) -> None:
        stat = WindowedSum()
        now = 10_000_000
        for turn in range(2):
            stat.record(TWO_SECONDS, 1, now + turn * 1_000)
        now += 1_500 - 3_600_000
        if first == "record":
            stat.record(TWO_SECONDS, 4, now)
        elif first == "record_all":
            stat.record_all(TWO_SECONDS, [2, 2], now)
        else:
            assert stat.measure(TWO_SECONDS, now) == 2, "no time has passed"
            stat.record(TWO_SECONDS, 4, now)
        assert stat.measure(TWO_SECONDS, now) == 2 + 4
        assert now - stat.oldest(now) == 1_000
        stat.record(TWO_SECONDS, 8, now + 1_000)
        assert [sample.value for sample in stat.samples] == [1, 5, 8], "the next window"
        assert stat.measure(TWO_SECONDS, now + 1_999) == 5 + 8
        assert stat.measure(TWO_SECONDS, now + 2_999) == 8
        assert stat.measure(TWO_SECONDS, now + 3_000) == 0

    def test_what_was_recorded_before_anybody_saw_that_the_date_was_set_back(self) -> None:
        stat = WindowedSum()
        stat.record(TWO_SECONDS, 1, 9_000_000)
        sample = stat.current(0)
        sample.value, sample.last_event_ms = 2, 1_000_000
        assert stat.measure(TWO_SECONDS, 1_000_100) == 2
        assert stat.oldest(0) == 1_000_100

    def test_a_window_is_also_over_after_so_many_events(self) -> None:
        config = MetricConfig(samples=2, window_ms=1_000, event_window=2)
        stat = WindowedSum()
        for value in (1, 2, 3):
            stat.record(config, value, 0)
        assert [sample.value for sample in stat.samples] == [3, 3]

    def test_a_new_configuration_keeps_what_was_recorded(self) -> None:
        stat = WindowedSum()
        many = MetricConfig(samples=4, window_ms=1_000)
        for turn in range(5):
            stat.record(many, 1, turn * 1_000)
        assert stat.measure(many, 4_000) == 4
        assert stat.measure(TWO_SECONDS, 4_000) == 2
        stat.record(TWO_SECONDS, 1, 5_000)
        assert stat.measure(TWO_SECONDS, 5_000) == 2

    def test_a_stat_may_have_its_own_width_of_window(self) -> None:
        stat = WindowedSum(window_ms=100)
        stat.record(TWO_SECONDS, 1, 0)
        stat.record(TWO_SECONDS, 2, 100)
        assert [sample.value for sample in stat.samples] == [1, 2]
        assert stat.measure(TWO_SECONDS, 200) == 2


class TestStats:
    def test_sum_and_count(self) -> None:
        assert recorded(WindowedSum(), 1.5, 2, -1).measure(TWO_SECONDS, 0) == 2.5
        assert recorded(WindowedCount(), 1.5, 2, -1).measure(TWO_SECONDS, 0) == 3

    def test_average(self) -> None:
        assert recorded(Avg(), 1, 2, 6).measure(TWO_SECONDS, 0) == 3
        assert math.isnan(Avg().measure(TWO_SECONDS, 0))

    def test_average_over_several_samples_is_that_of_all_values(self) -> None:
        stat = Avg()
        for value, time_ms in [(1, 0), (2, 0), (3, 0), (10, 1_000)]:
            stat.record(TWO_SECONDS, value, time_ms)
        assert stat.measure(TWO_SECONDS, 1_000) == 4
        assert stat.measure(TWO_SECONDS, 2_000) == 10

    @pytest.mark.parametrize(("stat", "expected"), [(Max(), 7.0), (Min(), -2.0)])
    def test_extremes(self, stat: MeasurableStat, expected: float) -> None:
        assert math.isnan(stat.measure(TWO_SECONDS, 0))
        stat.record(TWO_SECONDS, expected, 0)
        stat.record(TWO_SECONDS, 3, 0)
        stat.record(TWO_SECONDS, 4, 1_500)
        assert stat.measure(TWO_SECONDS, 1_500) == expected
        assert stat.measure(TWO_SECONDS, 2_000) == 4
        assert math.isnan(stat.measure(TWO_SECONDS, 4_000))

    @pytest.mark.parametrize("stat", [Max(), Min()])
    def test_one_value_that_is_not_a_number_spoils_an_extreme(self, stat: MeasurableStat) -> None:
        assert math.isnan(recorded(stat, 1, math.nan, 2).measure(TWO_SECONDS, 0))

    def test_value_is_the_last_one(self) -> None:
        assert Value().measure(TWO_SECONDS, 0) == 0
        assert recorded(Value(), 3, 2).measure(TWO_SECONDS, 10**9) == 2

    def test_cumulative_stats_never_forget(self) -> None:
        assert recorded(CumulativeSum(), 3, 2).measure(TWO_SECONDS, 10**9) == 5
        assert recorded(CumulativeSum(10.0), 3, 2).measure(TWO_SECONDS, 10**9) == 15
        assert recorded(CumulativeCount(), 3, 2).measure(TWO_SECONDS, 10**9) == 2


@pytest.mark.mechanism("Q01")
@pytest.mark.parametrize("kind", [WindowedSum, WindowedCount, Avg, Max, Min])
@pytest.mark.parametrize("seed", range(20))
def test_several_values_at_once_are_those_values_one_after_the_other(
    kind: type[WindowedSum | WindowedCount | Avg | Max | Min], seed: int
) -> None:
    random = Random(seed)
    at_once, one_by_one = kind(), kind()
    odd = [math.nan, math.inf, -math.inf] if seed % 2 else []
    for time_ms in range(0, 3_000, 400):
        values = [
            random.choice([random.randrange(100), random.uniform(-1e9, 1e9), 0.1, *odd])
            for _ in range(random.randint(1, 8))
        ]
        at_once.record_all(TWO_SECONDS, values, time_ms)
        for value in values:
            one_by_one.record(TWO_SECONDS, value, time_ms)
        assert repr(at_once) == repr(one_by_one), "to the last bit"
