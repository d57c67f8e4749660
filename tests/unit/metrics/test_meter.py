"""Meters: counts and moving averages, kept up to date by whoever looks."""

from __future__ import annotations

import importlib
import math
import os
import random
import threading
from types import ModuleType

import pytest

from barnabas._kernels.pure import metrics as pure_metrics
from barnabas.common.clock import MockClock
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.meter import IdleMeter, Meter

IMPLEMENTATIONS: list[ModuleType] = [pure_metrics]
try:
    IMPLEMENTATIONS.append(importlib.import_module("barnabas._kernels.compiled.metrics"))
except ImportError:
    # Built without a compiler. A CI run must not lose half of these tests.
    assert os.environ.get("CI") != "true", "the compiled meter is not built"
needs_both = pytest.mark.skipif(len(IMPLEMENTATIONS) < 2, reason="the compiled meter is not built")

M1_ALPHA = 1 - math.exp(-5 / 60)


class TestMeter:
    def test_mean_rate(self) -> None:
        clock = MockClock()
        meter = Meter(clock)
        meter.mark(30)
        assert meter.mean_rate == 0  # no time has passed
        clock.advance(10_000)
        meter.mark(20)
        assert meter.count == 50
        assert meter.mean_rate == 5

    def test_moving_averages_change_every_five_seconds(self) -> None:
        clock = MockClock()
        meter = Meter(clock)
        meter.mark(50)
        clock.advance(4_999)
        assert meter.one_minute_rate == 0
        clock.advance(1)
        assert meter.one_minute_rate == meter.five_minute_rate == meter.fifteen_minute_rate == pytest.approx(10)
        meter.mark(100)
        clock.advance(5_000)
        assert meter.one_minute_rate == pytest.approx(10 + M1_ALPHA * (20 - 10))

    def test_a_minute_of_silence(self) -> None:
        clock = MockClock()
        meter = Meter(clock)
        meter.mark(50)
        clock.advance(65_000)
        assert meter.one_minute_rate == pytest.approx(10 * math.exp(-1))
        assert meter.five_minute_rate == pytest.approx(10 * math.exp(-1 / 5))
        assert meter.fifteen_minute_rate == pytest.approx(10 * math.exp(-1 / 15))

    def test_silence_from_the_start_counts_as_well(self) -> None:
        """A first mark late in life does not start the average at its own rate."""
        clock = MockClock()
        meter = Meter(clock)
        clock.advance(6_000)
        meter.mark(50)
        clock.advance(4_000)
        assert meter.one_minute_rate == pytest.approx(M1_ALPHA * 10)

    def test_looking_often_changes_nothing(self) -> None:
        clock = MockClock()
        watched, ignored = Meter(clock), Meter(clock)
        for turn in range(200):
            for meter in (watched, ignored):
                meter.mark(turn % 7)
            clock.advance(700)
            assert watched.one_minute_rate >= 0
        clock.advance(37_000)
        assert watched.one_minute_rate == pytest.approx(ignored.one_minute_rate, rel=1e-12)
        assert watched.fifteen_minute_rate == pytest.approx(ignored.fifteen_minute_rate, rel=1e-12)

    def test_a_known_time_spares_the_clock(self) -> None:
        clock = MockClock()
        meter = Meter(clock)
        meter.mark(50, now_ns=0)
        meter.mark(1_000, now_ns=5_000_000_000)
        clock.advance(5_000)
        assert meter.one_minute_rate == pytest.approx(10)

    def test_units(self) -> None:
        clock = MockClock()
        meter = Meter(clock, "requests", TimeUnit.MINUTES)
        meter.mark(50)
        clock.advance(5_000)
        assert meter.one_minute_rate == pytest.approx(600)
        assert meter.mean_rate == pytest.approx(600)
        assert repr(meter) == "Meter(50 requests)"

    def test_threads_lose_nothing(self) -> None:
        clock = MockClock()
        meter = Meter(clock)
        barrier = threading.Barrier(8)

        def work() -> None:
            barrier.wait()
            for _ in range(5_000):
                meter.mark(2, 0)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert meter.count == 80_000
        clock.advance(5_000)
        assert meter.one_minute_rate == pytest.approx(16_000)


class TestIdleMeter:
    def test_shows_the_share_of_time_that_was_waited(self) -> None:
        clock = MockClock()
        meter = IdleMeter(clock)
        for _ in range(10):  # waits for 375 ms of each 500
            meter.waited(375_000_000)
            clock.advance(500)
        assert meter.one_minute_rate == pytest.approx(0.75)
        assert meter.mean_rate == pytest.approx(0.75)

    def test_threads_share_a_meter(self) -> None:
        clock = MockClock()
        meter = IdleMeter(clock)
        for _ in range(10):
            clock.advance(500)
            for thread in range(8):  # six of eight wait all the time
                meter.waited(500_000_000 if thread < 6 else 0, threads=8, now_ns=clock.nanoseconds() - 1)
        assert meter.one_minute_rate == pytest.approx(0.75)


class TestTwins:
    """The count itself, in both implementations."""

    @needs_both
    def test_both_count_the_same(self) -> None:
        source = random.Random(7)
        counts = [implementation.EventCount(3) for implementation in IMPLEMENTATIONS]
        now = 0
        for _ in range(2_000):
            now += source.choice((0, 1, pure_metrics.TICK_NS // 3, pure_metrics.TICK_NS, 7 * pure_metrics.TICK_NS))
            events, which = source.choice((0, 1, 10**12)), source.randrange(3)
            for count in counts:
                count.add(events, now)
            pure, compiled = (count.rate(which, now) for count in counts)
            assert compiled == pytest.approx(pure, rel=1e-9, abs=1e-300)
            assert counts[0].count == counts[1].count

    @pytest.mark.parametrize("which", [-4, 3])
    def test_there_are_three_averages(self, which: int) -> None:
        for implementation in IMPLEMENTATIONS:
            with pytest.raises(IndexError):
                implementation.EventCount(0).rate(which, 0)
