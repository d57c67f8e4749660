"""Stats: the arithmetic from recorded values to a measured one.

`sampled` keeps values in windows of time (averages, extremes, sums), `rate` divides such a sum by the time it took,
`token_bucket` keeps a credit, `cumulative` never forgets, `counted` looks at what others count. None of them has a
lock: a sensor's lock guards its stats.
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
