"""Runs a pipeline: reads records of topics in batches, and adds the rows of each batch to tables once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.config import SOURCE_FORMAT, PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS, PROBLEM, dead_letters, mark_late
from barnabas.spark.pipelines.table_storage import local_path
from barnabas.spark.pipelines.tables import BatchState, Table, TableStore, pipeline_store
from barnabas.spark.pipelines.topics import ensure_topics, source_options
from barnabas.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property of Spark's streaming thread with the query id, which is constant for a checkpoint."""


@dataclass(frozen=True, slots=True)
class StreamPipeline:
    """A pipeline from topics to tables, in three pure functions.

    * ``parse`` converts records to rows. Its input has the columns of the source, and ``problem``, which is set for
      records that must not be parsed. Its output has at least the `ORIGIN` columns and ``problem``, and ``key`` and
      ``value`` where there is a problem.
    * ``rows`` converts parsed rows without a problem to the rows of the tables.
    * The merge function of each roll-up table.
    """

    name: str
    summary: str
    topics: tuple[str, ...]
    tables: tuple[Table, ...]
    parse: Callable[[DataFrame, PipelineConfig], DataFrame]
    rows: Callable[[DataFrame, PipelineConfig], Mapping[str, DataFrame]]

    @property
    def all_tables(self) -> tuple[Table, ...]:
        return (*self.tables, DEAD_LETTERS)

    def table(self, name: str) -> Table:
        return next(table for table in self.all_tables if table.name == name)

    def build(self, spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
        """Starts the pipeline."""
        return start(read_topics(spark, self.name, self.topics, config), self, config)


def read_topics(spark: SparkSession, pipeline: str, topics: tuple[str, ...], config: PipelineConfig) -> DataFrame:
    """Returns the records of topics as a stream."""
    options = source_options(pipeline, topics, config)
    if config.source_format == SOURCE_FORMAT:
        from barnabas.spark.data_source import BarnabasDataSource

        spark.dataSource.register(BarnabasDataSource)
        ensure_topics(options, topics)
    return spark.readStream.format(config.source_format).options(**options).load()


def start(raw: DataFrame, pipeline: StreamPipeline, config: PipelineConfig) -> StreamingQuery:
    """Runs a pipeline over a stream that has the columns of the source."""
    return start_query(raw, BatchWriter(pipeline, config), pipeline.name, config, config.checkpoint_of(pipeline.name))


def start_query(
    raw: DataFrame, write: Callable[[DataFrame, int], None], name: str, config: PipelineConfig, checkpoint: str
) -> StreamingQuery:
    """Starts a query that calls ``write`` with each batch."""
    writer = raw.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).queryName(name)
    trigger: dict[str, Any] = (
        {"availableNow": True} if config.once else {"processingTime": f"{config.trigger_ms} milliseconds"}
    )
    return writer.trigger(**trigger).start()


def query_id_of(batch: DataFrame, checkpoint: str) -> str:
    """Returns the id of the query that a batch belongs to, within ``foreachBatch``.

    Under Spark Connect that function runs in a process beside the server, which has no Spark context. There the id is
    read from the checkpoint, where Spark has written it before the first batch.
    """
    if not is_connect(batch.sparkSession):
        return batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
    path = local_path(checkpoint)
    if path is None:
        raise ValueError(f"under Spark Connect a checkpoint must be a directory of the server: {checkpoint}")
    return str(json.loads((path / "metadata").read_text())["id"])


class BatchWriter:
    """Adds batches to the tables. `tables` explains why each batch is added once."""

    def __init__(self, pipeline: StreamPipeline, config: PipelineConfig) -> None:
        self._pipeline = pipeline
        self._config = config
        self._store: TableStore | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.write(batch, query_id_of(batch, self._config.checkpoint_of(self._pipeline.name)), batch_id)

    def _opened(self) -> TableStore:
        if self._store is None:
            self._store = pipeline_store(self._config.out, self._pipeline.name, self._config.tables)
            self._store.create(self._pipeline.all_tables)
        return self._store

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch to the tables, unless they hold it."""
        store = self._opened()
        state = store.state()
        if state.has_batch(query_id, batch_id):
            logger.info("%s: the tables already hold batch %d", self._pipeline.name, batch_id)
            return
        marked = mark_late(batch, dict(state.newest_us), self._config.lateness_ms * 1_000)
        parsed = self._pipeline.parse(marked, self._config).persist()
        try:
            new_state = self._add(store, parsed, state, query_id, batch_id)
        finally:
            parsed.unpersist()
        store.set_state(new_state)
        if batch_id % self._config.compact_every == self._config.compact_every - 1:
            compact(batch.sparkSession, self._pipeline, self._config)

    def _add(self, store: TableStore, parsed: DataFrame, state: BatchState, query_id: str, batch_id: int) -> BatchState:
        """Adds the rows of a batch to all tables; returns the state after it."""
        from pyspark.sql import functions as sf

        found = (
            parsed.groupBy("topic", "partition")
            .agg(
                sf.unix_micros(sf.max("timestamp")).alias("last"),
                sf.count(PROBLEM).alias("problems"),
                sf.count("*").alias("rows"),
            )
            .collect()
        )
        if any(row["rows"] > row["problems"] for row in found):
            good = parsed.where(sf.col(PROBLEM).isNull())
            for name, frame in self._pipeline.rows(good, self._config).items():
                store.add(self._pipeline.table(name), frame, query_id, batch_id)
        problems = sum(row["problems"] for row in found)
        if problems:
            store.add(DEAD_LETTERS, dead_letters(parsed), query_id, batch_id)
        newest = dict(state.newest_us)
        for row in found:
            place = f"{row['topic']}-{row['partition']}"
            newest[place] = max(row["last"], newest.get(place, row["last"]))
        return BatchState(query_id, batch_id, newest, state.dead_letters + problems)


def compact(spark: SparkSession, pipeline: StreamPipeline, config: PipelineConfig) -> None:
    """Merges small files and rows of the same window and key, and removes expired files.

    A window is closed when the newest records of all partitions are so recent that a record for the window is late.
    """
    store = pipeline_store(config.out, pipeline.name, config.tables)
    closed_us = min(store.state().newest_us.values(), default=0) - config.lateness_ms * 1_000
    store.compact(spark, pipeline.all_tables, closed_us, config.keep_hours)
