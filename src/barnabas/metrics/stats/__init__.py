"""Stats: compute a measured value from recorded values.

`sampled` keeps values in time windows (averages, extremes, sums), `rate` divides such a sum by its time, `token_bucket`
keeps a credit, `cumulative` covers all time, `counted` reads counters that are kept elsewhere. None of them has a lock:
a sensor's lock guards its stats.
"""

from __future__ import annotations

from barnabas.metrics.stats.counted import CountedAvg, CountedMax, CountedRate, CountedTotal, Counter
from barnabas.metrics.stats.cumulative import CumulativeCount, CumulativeSum, Value
from barnabas.metrics.stats.rate import Meter, Rate, SimpleRate
from barnabas.metrics.stats.sampled import Avg, Max, Min, Sample, SampledStat, WindowedCount, WindowedSum
from barnabas.metrics.stats.stat import CompoundStat, Measurable, MeasurableStat, NamedMeasurable, Stat
from barnabas.metrics.stats.token_bucket import TokenBucket

__all__ = [
    "Avg",
    "CompoundStat",
    "CountedAvg",
    "CountedMax",
    "CountedRate",
    "CountedTotal",
    "Counter",
    "CumulativeCount",
    "CumulativeSum",
    "Max",
    "Measurable",
    "MeasurableStat",
    "Meter",
    "Min",
    "NamedMeasurable",
    "Rate",
    "Sample",
    "SampledStat",
    "SimpleRate",
    "Stat",
    "TokenBucket",
    "Value",
    "WindowedCount",
    "WindowedSum",
]
