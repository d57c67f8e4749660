"""Changes of rows by key: which one is the last, and which rows of a table they replace.

Each row of a table that is merged into has the position of the change that made it: topic, partition, offset and time
of the record. Of two changes of a key

* in one partition, the one with the higher offset is the later one;
* in different partitions, the one with the later time. Keys are in different partitions only after the number of
  partitions has changed, or if several topics feed one table.

So a change that was applied already, or that comes after a later one, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OP: Final = "_op"
"""Column of a change: what it does to the row of its key."""
UPSERT: Final = "u"
DELETE: Final = "d"
TRUNCATE: Final = "t"
POSITION: Final = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns of a row and of a change: the record that the row is from."""
Position = tuple[str, int, int, int]
"""The same, with the time in microseconds since 1970."""


def last_changes(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """The last change of each key."""
    from pyspark.sql import functions as sf  # an extra

    everything = sf.struct(*(sf.col(f"`{name}`") for name in changes.columns))
    keys = [sf.col(f"`{name}`") for name in key]
    topic, partition, offset, timestamp = POSITION
    by_partition = changes.groupBy(*keys, topic, partition).agg(sf.max_by(everything, offset).alias("last"))
    kept = [sf.col(f"last.`{name}`").alias(name) for name in key]
    later = sf.struct(f"last.{timestamp}", f"last.{topic}", f"last.{partition}")
    by_key = by_partition.select(*kept, "last", later.alias("later"))
    return by_key.groupBy(*keys).agg(sf.max_by("last", "later").alias("last")).select("last.*")


def is_before(truncates: Sequence[Position]) -> Column:
    """Whether a row, which has the columns `POSITION`, is from before one of these positions."""
    from pyspark.sql import functions as sf  # an extra

    columns = [sf.col(name) for name in POSITION]
    found: Column = sf.lit(False)
    for position in truncates:
        topic, partition, offset, time_us = (sf.lit(one) for one in position)
        same = (columns[0] == topic) & (columns[1] == partition)
        found |= (same & (columns[2] < offset)) | (~same & (columns[3] <= sf.timestamp_micros(time_us)))
    return found


def is_later(row: Column, change: Column) -> Column:
    """Whether a row, a struct of `POSITION`, holds a later change than the one given, or that one itself."""
    topic, partition, offset, timestamp = POSITION
    same = (row[topic] == change[topic]) & (row[partition] == change[partition])
    return (same & (row[offset] >= change[offset])) | (~same & (row[timestamp] > change[timestamp]))
