"""Histograms: how near their quantiles are to the true ones, and what they say of all values."""

from __future__ import annotations

import math
import random
import statistics
import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.histogram import Histogram, HistogramSet
from barnabas.metrics.yammer.timer import Timer

FRACTIONS = (0.0, 0.5, 0.75, 0.95, 0.98, 0.99, 0.999, 1.0)


def nearest_rank(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[max(math.ceil(fraction * len(ordered)) - 1, 0)]


def distributions() -> dict[str, list[float]]:
    source = random.Random(11)
    return {
        "request times": [source.lognormvariate(0, 1.5) for _ in range(20_000)],
        "uniform": [source.uniform(0, 1_000) for _ in range(5_000)],
        "two humps": [source.gauss(*source.choice(((5, 0.5), (30_000, 4_000)))) for _ in range(5_000)],
        "sizes": [float(source.randrange(1, 1 << 20)) for _ in range(5_000)],
        "constant": [16_384.0] * 100,
        "few": [3.0, 1.0, 2.0],
    }


class TestQuantiles:
    @pytest.mark.parametrize(("values"), distributions().values(), ids=distributions().keys())
    def test_are_within_a_256th_of_the_exact_ones(self, values: list[float]) -> None:
        histogram = Histogram(MockClock())
        histogram.update_many(values)
        snapshot = histogram.snapshot()
        for fraction in FRACTIONS:
            exact = nearest_rank(values, fraction)
            assert abs(snapshot.quantile(fraction) - exact) <= exact / 256

    def test_of_recent_values_count_more(self) -> None:
        """Ten minutes at 1 ms, then one at 100 ms: half of the weight is of the last 46 seconds."""
        clock = MockClock()
        histogram, unbiased = Histogram(clock), Histogram(clock, biased=False)
        for second in range(660):
            for each in (histogram, unbiased):
                each.update_many([1.0 if second < 600 else 100.0] * 10)
            clock.advance(1_000)
        assert histogram.snapshot().median == 100
        assert unbiased.snapshot().median == 1
        # The last minute weighs 1 - exp(-0.015 * 60) = 59 % of all.
        assert histogram.snapshot().quantile(0.40) == 1
        assert histogram.snapshot().quantile(0.42) == 100

    def test_stay_when_nothing_new_comes(self) -> None:
        clock = MockClock()
        histogram = Histogram(clock)
        histogram.update_many(range(1, 101))
        clock.advance(24 * 3_600_000)
        assert histogram.snapshot().median == 50
        assert histogram.snapshot().p99 == 99

    def test_lie_between_the_extremes(self) -> None:
        histogram = Histogram(MockClock())
        histogram.update(1_001.0)  # remembered as 1,000
        assert histogram.snapshot().median == 1_001

    def test_named_ones(self) -> None:
        histogram = Histogram(MockClock())
        histogram.update_many(value / 10 for value in range(1, 1_001))
        snapshot = histogram.snapshot()
        named = (snapshot.median, snapshot.p75, snapshot.p95, snapshot.p98, snapshot.p99, snapshot.p999)
        assert named == tuple(snapshot.quantile(fraction) for fraction in FRACTIONS[1:-1])
        assert named == pytest.approx((50, 75, 95, 98, 99, 99.9), rel=1 / 256)

    @pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
    def test_must_be_fractions(self, fraction: float) -> None:
        with pytest.raises(ValueError, match="between 0 and 1"):
            Histogram(MockClock()).snapshot().quantile(fraction)


class TestTotals:
    def test_are_those_of_all_values_ever(self) -> None:
        clock = MockClock()
        histogram = Histogram(clock)
        source = random.Random(1)
        values = [source.lognormvariate(3, 1) for _ in range(1_000)]
        for value in values:
            histogram.update(value)
            clock.advance(60_000)
        snapshot = histogram.snapshot()
        assert snapshot.count == histogram.count == 1_000
        assert snapshot.sum == pytest.approx(sum(values))
        assert snapshot.mean == pytest.approx(statistics.fmean(values))
        assert snapshot.stddev == pytest.approx(statistics.stdev(values))
        assert (snapshot.min, snapshot.max) == (min(values), max(values))

    def test_of_nothing_are_zero(self) -> None:
        snapshot = Histogram(MockClock()).snapshot()
        assert (snapshot.count, snapshot.sum, snapshot.mean, snapshot.stddev) == (0, 0, 0, 0)
        assert (snapshot.min, snapshot.max, snapshot.median) == (0, 0, 0)

    def test_of_one_value(self) -> None:
        histogram = Histogram(MockClock())
        histogram.update(-3)
        snapshot = histogram.snapshot()
        assert (snapshot.mean, snapshot.stddev, snapshot.min, snapshot.max) == (-3, 0, -3, -3)

    def test_a_small_spread_of_large_values_is_not_lost(self) -> None:
        """The naive formula, with squares of the values themselves, gives 0 or nonsense here."""
        histogram = Histogram(MockClock())
        histogram.update_many(1e9 + offset for offset in (0, 1, 2))
        assert histogram.snapshot().stddev == 1


class TestHistogramSet:
    def test_one_update_goes_to_all(self) -> None:
        clock = MockClock()
        times = HistogramSet(3, clock, divisor=1e6)
        times.update((1_000_000, 2_500_000, 0), clock.nanoseconds())
        times.update((3_000_000, 2_500_000, 0), clock.nanoseconds())
        assert len(times) == 3
        assert [histogram.snapshot().max for histogram in times] == [3, 2.5, 0]
        assert [histogram.count for histogram in times] == [2, 2, 2]
        times[2].update(7_000_000)
        assert [histogram.count for histogram in times] == [2, 2, 3]

    def test_threads_lose_nothing(self) -> None:
        clock = MockClock()
        times = HistogramSet(7, clock)
        threads, turns = 8, 2_000
        barrier = threading.Barrier(threads)

        def work(thread: int) -> None:
            barrier.wait()
            for turn in range(turns):
                times.update((thread, turn, 1, 1, 1, 1, 1), turn)
                times[6].update(1)

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [histogram.count for histogram in times] == [threads * turns] * 6 + [2 * threads * turns]
        assert times[0].snapshot().sum == sum(range(threads)) * turns
        assert times[1].snapshot().sum == sum(range(turns)) * threads


class TestTimer:
    def fail_after_4_ms(self, timer: Timer, clock: MockClock) -> None:
        with timer.time():
            clock.advance(4)
            raise RuntimeError("what is timed may fail")

    def test_durations_are_shown_in_their_unit(self) -> None:
        clock = MockClock()
        timer = Timer(clock, TimeUnit.MILLISECONDS)
        timer.update(2_500_000)
        with timer.time():
            clock.advance(40)
        with pytest.raises(RuntimeError):
            self.fail_after_4_ms(timer, clock)
        snapshot = timer.snapshot()
        assert (snapshot.min, snapshot.median, snapshot.max) == (2.5, 4, 40)
        assert timer.count == timer.meter.count == 3

    def test_a_negative_duration_is_not_counted(self) -> None:
        timer = Timer(MockClock())
        timer.update(-1)
        assert timer.count == timer.meter.count == 0
