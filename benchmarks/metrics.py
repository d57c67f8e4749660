"""Metrics: what it costs to count, because it is counted for every request.

There is no peer to reach; the peers here are the obvious ways to do the same. The budget: a request through the whole
broker takes some tens of microseconds, of which its seven times, its rates and its quotas may take one or two.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence

from barnabas._kernels import is_compiled
from barnabas._kernels.pure import metrics as pure_metrics
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Rate, TokenBucket
from barnabas.metrics.yammer.histogram import FADING_PER_SECOND, Histogram, HistogramSet
from barnabas.metrics.yammer.meter import Meter
from benchmarks.measure import Row, print_rows, rates

COUNT = 2_000
TIMES = 7


def run(rounds: int = 9) -> list[Row]:
    return request_times(rounds) + single_updates(rounds)


def request_times(rounds: int) -> list[Row]:
    """The seven times of a request, in nanoseconds, into seven histograms."""
    source = random.Random(1)
    requests = [tuple(int(source.lognormvariate(12, 1.5)) for _ in range(TIMES)) for _ in range(COUNT)]
    now_ns = SYSTEM_CLOCK.nanoseconds()

    together = HistogramSet(TIMES, SYSTEM_CLOCK, divisor=1e6).update
    apart = [Histogram(SYSTEM_CLOCK, divisor=1e6).update for _ in range(TIMES)]
    pure = pure_metrics.BucketTable(TIMES, FADING_PER_SECOND, now_ns, 1e6).add_row
    reservoirs = [Reservoir(now_ns).update for _ in range(TIMES)]

    def in_one_call(update: Callable[[tuple[int, ...], int], None]) -> Callable[[], int]:
        def work() -> int:
            for request in requests:
                update(request, now_ns)
            return COUNT

        return work

    def one_by_one(updates: Sequence[Callable[[float, int], None]]) -> Callable[[], int]:
        def work() -> int:
            for request in requests:
                for update, value in zip(updates, request, strict=True):
                    update(value, now_ns)
            return COUNT

        return work

    measured = rates(
        {
            f"one set of seven{'' if is_compiled('metrics') else ' (not compiled)'}": in_one_call(together),
            "seven histograms": one_by_one(apart),
            "one set of seven, pure Python": in_one_call(pure),
            "seven reservoirs like Yammer's": one_by_one(reservoirs),
        },
        rounds,
    )
    return _rows("the seven times of a request", "requests/s", measured)


def single_updates(rounds: int) -> list[Row]:
    """One value into one metric, at a time that is known."""
    metrics = Metrics(clock=SYSTEM_CLOCK)
    now_ms = SYSTEM_CLOCK.milliseconds()
    now_ns = SYSTEM_CLOCK.nanoseconds()
    quota = MetricConfig(samples=11, window_ms=1_000, quota=Quota(1e15))
    plain = metrics.sensor("plain")
    plain.add(metrics.metric_name("rate", "plain"), Rate())
    limited = metrics.sensor("limited", quota)
    limited.add(metrics.metric_name("rate", "limited"), Rate())
    bucket = metrics.sensor("bucket", quota)
    bucket.add(metrics.metric_name("tokens", "bucket"), TokenBucket())
    for second in range(12):  # all windows of the quota in use, as in a running broker
        limited.record(1, now_ms - (11 - second) * 1_000)
    meter = Meter(SYSTEM_CLOCK)

    def sensing(record: Callable[[float, int], None]) -> Callable[[], int]:
        def work() -> int:
            for _ in range(COUNT):
                record(1_024.0, now_ms)
            return COUNT

        return work

    def marking() -> int:
        for _ in range(COUNT):
            meter.mark(1, now_ns)
        return COUNT

    measured = rates(
        {
            "sensor with a rate": sensing(plain.record),
            "sensor with a rate under a quota": sensing(limited.record),
            "sensor with a token bucket under a quota": sensing(bucket.record),
            "meter": marking,
        },
        rounds,
    )
    return _rows("one value", "values/s", measured)


class Reservoir:
    """Yammer's sample, as one would write it down: a heap of 1,028 values with random priorities."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._heap: list[tuple[float, float]] = []

    def update(self, value: float, now_ns: int) -> None:
        seconds = (now_ns - self._start_ns) // 1_000_000_000
        entry = (math.exp(FADING_PER_SECOND * seconds) / (1 - random.random()), value / 1e6)
        if len(self._heap) < 1_028:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)


def _rows(case: str, unit: str, measured: dict[str, float]) -> list[Row]:
    return [Row(case, name, rate, f"{unit}, {1e9 / rate:6,.0f} ns each") for name, rate in measured.items()]


if __name__ == "__main__":
    print_rows(run())
