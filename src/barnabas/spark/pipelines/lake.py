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
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS, ORIGIN, PROBLEM
from barnabas.spark.pipelines.lake_values import KEPT, RAW_VALUE, RawValues, ValueFormat
from barnabas.spark.pipelines.stream import query_id_of, read_topics, start_query
from barnabas.spark.pipelines.tables import BatchState, OldTablesError, Table, TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

NAME: Final = "lake"
DATE: Final = "date"
DEAD_LETTERS_DIRECTORY: Final = "_dead_letters"
NAMESPACE: Final = "barnabas"
"""The namespace of the tables in an Iceberg catalog."""


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """The topics to read and the table to write."""

    pipeline: PipelineConfig
    topics: tuple[str, ...]
    table: str | None = None
    """Name of the table: a directory below ``out``. By default the name of the topic, if there is only one."""
    values: ValueFormat = field(default_factory=RawValues)

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("no topic given")
        if self.table is None and len(self.topics) > 1:
            raise ValueError("a table of several topics needs a name")

    @property
    def name(self) -> str:
        return self.table or self.topics[0]

    @property
    def location(self) -> str:
        return f"{self.pipeline.out.rstrip('/')}/{NAME}/{self.name}"

    @property
    def checkpoint(self) -> str:
        return self.pipeline.checkpoint or f"{self.location}/_barnabas/checkpoint"

    def store(self) -> TableStore:
        return TableStore(self.location, self.pipeline.tables, NAMESPACE)

    def rows_table(self, schema: StructType) -> Table:
        return Table(self.name, schema, "timestamp", day_column=DATE, path="")

    def dead_letters_table(self) -> Table:
        return Table(
            f"{self.name}_dead_letters", DEAD_LETTERS.schema, DEAD_LETTERS.time_column, path=DEAD_LETTERS_DIRECTORY
        )


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

        store = self._config.store()
        state = store.state()
        if state.has_batch(query_id, batch_id):
            logger.info("%s: the table already holds batch %d", self._config.name, batch_id)
            return
        parsed = self._config.values.parse(batch)
        rows = parsed.where(sf.col(PROBLEM).isNull()).select(
            *KEPT[:4], "key", "value", "headers", sf.to_date("timestamp").alias(DATE)
        )
        table, dead = self._config.rows_table(rows.schema), self._config.dead_letters_table()
        if state.batch_id >= 0 and not store.open(table).exists():
            raise OldTablesError(
                f"{self._config.location} is a Parquet table of release 0.1: convert it with barnabas pipeline convert"
            )
        store.create((table, dead))
        parsed.persist()
        try:
            bad = parsed.where(sf.col(PROBLEM).isNotNull()).select(
                *ORIGIN, sf.col(PROBLEM).alias("reason"), "key", sf.col(RAW_VALUE).alias("value")
            )
            store.add(table, rows, query_id, batch_id)
            rejected = store.add(dead, bad, query_id, batch_id)
        finally:
            parsed.unpersist()
        store.set_state(BatchState(query_id, batch_id, dead_letters=state.dead_letters + rejected))
        every = self._config.pipeline.compact_every
        if batch_id % every == every - 1:
            store.compact(batch.sparkSession, (table, dead), 0, self._config.pipeline.keep_hours)
