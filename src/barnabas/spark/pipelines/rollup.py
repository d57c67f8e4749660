"""Roll-ups: aggregate many values to one row, and merge such rows.

A row has the count, sum, minimum and maximum of its values, and a KLL sketch of their distribution. All of these can be
merged: the rows of sixty minutes give the row of the hour, and the rows of all clients give the row of the cluster.
Percentiles cannot be merged, so rows keep the sketch, and percentiles are read from it last.

**Samples.** If a topic has only a sample of all events, each row counts ``1 / sample_rate`` times: ``weight`` estimates
the number of events, and ``sum`` their total. A sketch has no weights, so the values of a sketch all have the same
sample rate: the rate is part of the key. `percentiles` merges rows of different rates by merging the sketch of a rarer
sample several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE: Final = "1 minute"
HOUR: Final = "1 hour"
RANKS: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
SCHEMA: Final = (
    "count bigint, weight double, sum double, min double, max double, "
    "p50 double, p99 double, p999 double, sketch binary"
)
"""The columns of a roll-up after its keys."""
WINDOW: Final = "window_start"
_MOST_COPIES: Final = 1_000


def window_start(time: str | Column, window: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.window(time, window).getField("start").alias(WINDOW)


def measures(value: str | Column, weight: str | Column, sketch_k: int) -> list[Column]:
    """Returns the aggregates of a roll-up without percentiles. Filter out null and NaN values first."""
    from pyspark.sql import functions as sf

    value = sf.col(value) if isinstance(value, str) else value
    weight = sf.col(weight) if isinstance(weight, str) else weight
    return [
        sf.count(value).alias("count"),
        sf.sum(weight).alias("weight"),
        sf.sum(weight * value).alias("sum"),
        sf.min(value).alias("min"),
        sf.max(value).alias("max"),
        sf.kll_sketch_agg_double(value, sketch_k).alias("sketch"),
    ]


def with_percentiles(rows: DataFrame, ranks: dict[str, float] | None = None) -> DataFrame:
    """Adds the percentile columns, read from the sketch."""
    from pyspark.sql import functions as sf

    wanted = RANKS if ranks is None else ranks
    found = sf.kll_sketch_get_quantile_double("sketch", sf.array(*(sf.lit(rank) for rank in wanted.values())))
    return rows.withColumns({name: found[place] for place, name in enumerate(wanted)})


def merge_rows(rows: DataFrame, keys: Sequence[str], window: str | None = None) -> DataFrame:
    """Merges rows to one for each window and key; ``window`` is the length of longer windows to merge them to."""
    from pyspark.sql import functions as sf

    start = sf.col(WINDOW) if window is None else window_start(WINDOW, window)
    merged = rows.groupBy(start, *keys).agg(
        sf.sum("count").alias("count"),
        sf.sum("weight").alias("weight"),
        sf.sum("sum").alias("sum"),
        sf.min("min").alias("min"),
        sf.max("max").alias("max"),
        sf.kll_merge_agg_double("sketch").alias("sketch"),
    )
    return with_percentiles(merged)


def percentiles(
    rows: DataFrame, keys: Sequence[str] = (), ranks: dict[str, float] | None = None, sample_rate: str | None = None
) -> DataFrame:
    """Returns a row for each key, over all windows: count, weight, mean, minimum, maximum and percentiles.

    With ``sample_rate``, the column of that name has the sample rate of a row's values.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    all_keys = list(keys)
    if sample_rate is not None:
        highest = sf.max(sample_rate).over(Window.partitionBy(*all_keys))
        copies = sf.least(sf.round(highest / sf.col(sample_rate)), sf.lit(_MOST_COPIES)).cast("int")
        rows = rows.withColumn("_sketches", sf.array_repeat("sketch", copies))
    else:
        rows = rows.withColumn("_sketches", sf.array("sketch"))
    totals = rows.groupBy(*all_keys).agg(
        sf.sum("count").alias("count"),
        sf.sum("weight").alias("weight"),
        (sf.sum("sum") / sf.sum("weight")).alias("mean"),
        sf.min("min").alias("min"),
        sf.max("max").alias("max"),
    )
    sketches = (
        rows.select(*all_keys, sf.explode("_sketches").alias("sketch"))
        .groupBy(*all_keys)
        .agg(sf.kll_merge_agg_double("sketch").alias("sketch"))
    )
    with_ranks = with_percentiles(sketches, ranks).drop("sketch")
    if not all_keys:
        return totals.crossJoin(with_ranks)
    # Keys may be null, such as the client id of a client without one.
    renamed = with_ranks.withColumnsRenamed({key: f"_{key}" for key in all_keys})
    same = sf.lit(True)
    for key in all_keys:
        same &= totals[key].eqNullSafe(renamed[f"_{key}"])
    return totals.join(renamed, same).drop(*(f"_{key}" for key in all_keys))
