"""The pipeline ``lake``: writes each record of any topic to a table, exactly once.

Rows have ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``, in partitions by
``date``, the day of the timestamp. With a schema, ``value`` is a struct. Records that do not fit the schema go to the
table ``_dead_letters`` below the table of the topic.

    config = LakeConfig(PipelineConfig(out="lake"), topics=("orders",), values=JsonValues("id bigint, total double"))
    build(spark, config)

`tables` explains why each batch is added once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.spark.pipelines.dead_letter import PROBLEM
from barnabas.spark.pipelines.lake_values import KEPT, RAW_VALUE, RawValues, ValueFormat
from barnabas.spark.pipelines.schema_drift import type_of
from barnabas.spark.pipelines.tables import OldTablesError, Table, utc_day
from barnabas.spark.pipelines.topic_batches import AddedBatch, TopicBatch, TopicTableWriter
from barnabas.spark.pipelines.topic_tables import TopicTable, rejected

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

NAME: Final = "lake"
DATE: Final = "date"
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
"""The first and the last second of the years 1 to 9999, since 1970."""


@dataclass(frozen=True, slots=True)
class LakeConfig(TopicTable):
    """Which topics become which table, and what their values are."""

    kind: ClassVar[str] = NAME
    namespace: ClassVar[str] = "barnabas"

    values: ValueFormat = field(default_factory=RawValues)

    def rows_table(self, schema: StructType) -> Table:
        return Table(self.name, schema, "timestamp", day_column=DATE, path="")


def build(spark: SparkSession, config: LakeConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return lake_writer(config).start(config.read(spark))


def lake_writer(config: LakeConfig) -> TopicTableWriter:
    """Returns what adds the batches to the table."""
    return TopicTableWriter(config, partial(_add, config))


def _add(config: LakeConfig, batch: TopicBatch) -> AddedBatch:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    store = batch.store
    opened = store.open(config.rows_table(StructType()))
    exists = opened.exists()
    if not batch.is_first and not exists:
        raise OldTablesError(
            f"{config.location} is a Parquet table of release 0.1: convert it with barnabas pipeline convert"
        )
    if config.values.many:
        batch.records.persist()
    found = config.values.parse(batch.records, type_of(opened.schema(), "value") if exists else None)
    parsed = found.withColumn(PROBLEM, sf.coalesce(PROBLEM, _without_day())).persist()
    try:
        value = ["value"] if "value" in parsed.columns else []
        rows = parsed.where(sf.col(PROBLEM).isNull()).select(
            *KEPT[:4], "key", *value, "headers", utc_day("timestamp").alias(DATE)
        )
        table, dead = store.prepare(config.rows_table(rows.schema)), config.dead_letters_table()
        store.create((dead,))
        batch.add(table, rows)
        return AddedBatch((table, dead), batch.add(dead, rejected(parsed, RAW_VALUE)))
    finally:
        parsed.unpersist()
        batch.records.unpersist()


def _without_day() -> Column:
    """The reason if the timestamp of a record has no day that table formats and Python have; null if it has one.

    A producer that sends microseconds for milliseconds writes such records, if its topic allows it.
    """
    from pyspark.sql import functions as sf

    seconds = sf.unix_seconds("timestamp")
    return sf.when(~seconds.between(*_SECONDS), sf.lit("the timestamp is not between the years 1 and 9999"))
