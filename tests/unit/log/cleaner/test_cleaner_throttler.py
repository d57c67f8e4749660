"""The cleaner's limit for bytes per second."""

from __future__ import annotations

from barnabas.common.clock import MockClock
from barnabas.log.cleaner.cleaner_throttler import CleanerThrottler
from barnabas.metrics.yammer.meter import Meter


class Pauses:
    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.taken: list[float] = []

    def __call__(self, milliseconds: float) -> None:
        self.taken.append(milliseconds)
        self.clock.advance(milliseconds)


def new_throttler(rate: float) -> tuple[CleanerThrottler, MockClock, Pauses, Meter]:
    clock = MockClock()
    meter = Meter(clock, "bytes")
    return CleanerThrottler(rate, clock, meter), clock, Pauses(clock), meter


def test_too_quick_is_made_up_for() -> None:
    throttler, clock, pauses, meter = new_throttler(1000)
    throttler.maybe_throttle(600, pauses)
    assert pauses.taken == []  # it looks every 300 ms
    clock.advance(400)
    throttler.maybe_throttle(400, pauses)
    assert pauses.taken == [600]  # 1000 bytes in a second, of which 400 ms had passed
    clock.advance(301)
    throttler.maybe_throttle(301, pauses)
    assert pauses.taken == [600]
    assert meter.count == 1301


def test_the_rate_is_kept_over_a_long_time() -> None:
    throttler, clock, pauses, _ = new_throttler(50_000)
    start = clock.milliseconds()
    for _ in range(1_000):
        clock.advance(10)
        throttler.maybe_throttle(5_000, pauses)
    assert 98_000 <= clock.milliseconds() - start <= 100_100  # five million bytes
    assert len(pauses.taken) > 30


def test_nobody_goes_on_while_another_thread_waits() -> None:
    throttler, clock, pauses, _ = new_throttler(1000)
    waited: list[float] = []
    clock.advance(400)
    throttler.maybe_throttle(1000, waited.append)
    clock.advance(100)
    throttler.maybe_throttle(1, pauses)
    assert (waited, pauses.taken) == ([600], [500])


def test_a_new_rate_counts_at_once() -> None:
    throttler, clock, pauses, _ = new_throttler(1e300)
    clock.advance(400)
    throttler.maybe_throttle(10**9, pauses)
    assert pauses.taken == []
    throttler.desired_rate_per_second = 0.0
    clock.advance(400)
    throttler.maybe_throttle(1, pauses)
    assert pauses.taken == [3_600_000]  # it looks again after an hour
