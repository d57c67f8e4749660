"""Percentiles that the report reads from sketches are those that Spark reads from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.report.kll_sketch import quantiles, sketch_values
from barnabas.spark.pipelines.rollup import measures, merge_rows, with_percentiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANKS = (0.5, 0.99, 0.999)


@pytest.mark.parametrize(("count", "k"), [(1, 4_096), (2, 4_096), (3_000, 4_096), (60_000, 200)])
def test_percentiles_are_those_of_spark(spark: SparkSession, count: int, k: int) -> None:
    from pyspark.sql import functions as sf

    values = spark.range(count).select(
        sf.timestamp_micros(sf.lit(0)).alias("window_start"),
        (sf.col("id") % 3).alias("part"),
        # Neither sorted nor each once.
        ((sf.col("id") * 7_919) % (count // 2 + 1)).cast("double").alias("value"),
    )
    rolled = values.groupBy("window_start", "part").agg(*measures("value", sf.lit(1.0), k))
    rows = with_percentiles(rolled).collect()
    for row in rows:
        kept, weights = sketch_values(bytes(row["sketch"]))
        assert weights.sum() == row["count"]
        assert kept.min() >= row["min"]
        assert kept.max() <= row["max"]
        assert quantiles([(bytes(row["sketch"]), 1.0)], RANKS) == [row["p50"], row["p99"], row["p999"]]
    # Over all rows: what Spark gets by merging, within the error of a sketch; of few values exactly.
    (merged,) = merge_rows(with_percentiles(rolled).withColumn("all", sf.lit(1)), ["all"]).collect()
    found = quantiles([(bytes(row["sketch"]), 1.0) for row in rows], RANKS)
    expected = [merged["p50"], merged["p99"], merged["p999"]]
    if count <= k:
        assert found == expected
    else:
        error = 0.03 * (count // 2)
        assert all(one is not None and abs(one - other) < error for one, other in zip(found, expected, strict=True))
