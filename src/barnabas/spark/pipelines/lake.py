"""The pipeline ``lake``: writes each record of any topic to a table, exactly once.

Rows have ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``, in partitions by
``date``, the day of the timestamp. With a schema, ``value`` is a struct. Records that do not fit the schema go to the
table ``_dead_letters`` below the table of the topic.

    config = LakeConfig(PipelineConfig(out="lake"), topics=("orders",), values=JsonValues("id bigint, total double"))
    build(spark, config)

`tables` explains why each batch is added once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.spark.pipelines.dead_letter import PROBLEM
from barnabas.spark.pipelines.lake_values import KEPT, RAW_VALUE, RawValues, ValueFormat
from barnabas.spark.pipelines.schema_drift import type_of
from barnabas.spark.pipelines.stream import query_id_of, read_topics, start_query
from barnabas.spark.pipelines.tables import BatchState, OldTablesError, Table
from barnabas.spark.pipelines.topic_tables import TopicTable, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

NAME: Final = "lake"
DATE: Final = "date"


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
    name = f"{NAME}-{config.name}"
    raw = read_topics(spark, name, config.topics, config.pipeline)
    return start_query(raw, LakeWriter(config), name, config.pipeline, config.checkpoint)


class LakeWriter:
    """Adds batches to the table."""

    def __init__(self, config: LakeConfig) -> None:
        self._config = config

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.write(batch, query_id_of(batch, self._config.checkpoint), batch_id)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch, unless the table holds it."""
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructType

        store = self._config.store()
        state = store.state()
        if state.has_batch(query_id, batch_id):
            logger.info("%s: the table already holds batch %d", self._config.name, batch_id)
            return
        opened = store.open(self._config.rows_table(StructType()))
        exists = opened.exists()
        if state.batch_id >= 0 and not exists:
            raise OldTablesError(
                f"{self._config.location} is a Parquet table of release 0.1: convert it with barnabas pipeline convert"
            )
        if self._config.values.many:
            batch.persist()
        parsed = self._config.values.parse(batch, type_of(opened.schema(), "value") if exists else None).persist()
        try:
            value = ["value"] if "value" in parsed.columns else []
            rows = parsed.where(sf.col(PROBLEM).isNull()).select(
                *KEPT[:4], "key", *value, "headers", sf.to_date("timestamp").alias(DATE)
            )
            table, dead = store.prepare(self._config.rows_table(rows.schema)), self._config.dead_letters_table()
            store.create((dead,))
            store.add(table, rows, query_id, batch_id)
            bad = store.add(dead, rejected(parsed, RAW_VALUE), query_id, batch_id)
        finally:
            parsed.unpersist()
            batch.unpersist()
        store.set_state(BatchState(query_id, batch_id, dead_letters=state.dead_letters + bad))
        every = self._config.pipeline.compact_every
        if batch_id % every == every - 1:
            store.compact(batch.sparkSession, (table, dead), 0, self._config.pipeline.keep_hours)
