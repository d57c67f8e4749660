"""Records that a pipeline could not use: kept as they came, with the reason.

A pipeline that stops at a record it does not understand stops for good, and one that passes over it in silence loses
what nobody will look for. So such a record goes to a table, with its place in the topic and its bytes: it can be read
again once the reason is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEAD_LETTERS: Final = Table(
    "dead_letters",
    "topic string, partition int, offset bigint, timestamp timestamp, reason string, key binary, value binary",
    "timestamp",
)
"""The table that each pipeline has."""
LATE: Final = "late"
PROBLEM: Final = "problem"
"""The column that says why a record cannot be used; null if it can."""
ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
"""Where a record is from. Every parsed row has these."""
RAW: Final = ("key", "value")


def mark_late(raw: DataFrame, newest_us: dict[str, int], lateness_us: int) -> DataFrame:
    """Adds the column `PROBLEM`: set for records that are too much older than the newest of their partition.

    Spark's own watermark drops late rows without a word, and counts from the newest row of all partitions: one that is
    merely read later than others would lose its records.
    """
    from pyspark.sql import functions as sf

    problem: Column = sf.lit(None).cast("string")
    if newest_us:
        pairs = [sf.lit(item) for place, time_us in newest_us.items() for item in (place, time_us - lateness_us)]
        limit_us = sf.create_map(*pairs)[sf.concat_ws("-", "topic", "partition")]
        behind = limit_us - sf.unix_micros("timestamp")
        text = sf.format_string(f"{LATE}: %d ms after its window was closed", sf.floor(behind / 1000).cast("bigint"))
        problem = sf.when(behind > 0, text)
    return raw.withColumn(PROBLEM, problem)


def dead_letters(parsed: DataFrame) -> DataFrame:
    """The rows of the table: each record once, however many rows were made of it."""
    from pyspark.sql import functions as sf

    return parsed.where(sf.col(PROBLEM).isNotNull()).select(*ORIGIN, sf.col(PROBLEM).alias("reason"), *RAW)
