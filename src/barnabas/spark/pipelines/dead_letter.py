"""Keeps the records that a pipeline could not use, unchanged and with the reason.

A pipeline that fails at an invalid record never gets past it, and one that skips it loses data unnoticed. So the
pipeline writes such a record to a table, with its topic, partition, offset and bytes. It can be processed again once
the reason is gone.
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
"""The column with the reason why a record cannot be used; null if it can."""
ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
"""The origin of a record. Every parsed row has these columns."""
RAW: Final = ("key", "value")


def mark_late(raw: DataFrame, newest_us: dict[str, int], lateness_us: int) -> DataFrame:
    """Adds the column `PROBLEM`: set for records that are much older than the newest record of their partition.

    Spark's own watermark drops late rows silently, and is based on the newest row of all partitions: a partition that
    is read later than the others would lose its records.
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
    """Returns the rows of the table: each record once, even if it was parsed to several rows."""
    from pyspark.sql import functions as sf

    return parsed.where(sf.col(PROBLEM).isNotNull()).select(*ORIGIN, sf.col(PROBLEM).alias("reason"), *RAW)
