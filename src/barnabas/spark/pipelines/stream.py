"""How a pipeline runs: records of topics come in batches, and rows of tables go out, each of them once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.config import SOURCE_FORMAT, PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS, PROBLEM, dead_letters, mark_late
from barnabas.spark.pipelines.manifest import Manifest, Segment
from barnabas.spark.pipelines.tables import Table, TableStore, segments_with
from barnabas.spark.pipelines.topics import ensure_topics, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property of Spark's streaming thread that has the query's id. It stays for the life of a checkpoint."""


@dataclass(frozen=True, slots=True)
class StreamPipeline:
    """A pipeline from topics to tables, in three pure functions.

    * ``parse`` makes rows of records. What it gets are the columns of the source, and ``problem``, which is set for
      records that are not to be looked at. What it returns has at least the `ORIGIN` columns, ``problem``, and ``key``
      and ``value`` where there is a problem.
    * ``rows`` makes the rows of the tables of those without a problem.
    * The merge of each table that is a roll-up.
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
    """The records of topics, as a stream."""
    options = source_options(pipeline, topics, config)
    if config.source_format == SOURCE_FORMAT:
        from barnabas.spark.data_source import BarnabasDataSource  # noqa: PLC0415

        spark.dataSource.register(BarnabasDataSource)
        ensure_topics(options, topics)
    return spark.readStream.format(config.source_format).options(**options).load()


def start(raw: DataFrame, pipeline: StreamPipeline, config: PipelineConfig) -> StreamingQuery:
    """Runs a pipeline over a stream that has the columns of the source."""
    writer = raw.writeStream.foreachBatch(BatchWriter(pipeline, config))
    writer = writer.option("checkpointLocation", config.checkpoint_of(pipeline.name)).queryName(pipeline.name)
    trigger: dict[str, Any] = (
        {"availableNow": True} if config.once else {"processingTime": f"{config.trigger_ms} milliseconds"}
    )
    return writer.trigger(**trigger).start()


class BatchWriter:
    """Writes the tables of one batch after the other. `Manifest` says why a batch counts once."""

    def __init__(self, pipeline: StreamPipeline, config: PipelineConfig) -> None:
        self._pipeline = pipeline
        self._config = config
        self._store: TableStore | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        self.write(batch, query_id, batch_id)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch to the tables, unless it is in them already."""
        store = self._store = self._store or TableStore(batch.sparkSession, self._config.out, self._pipeline.name)
        manifest = store.manifests.latest()
        if manifest.has_batch(query_id, batch_id):
            logger.info("%s: batch %d is in the tables already", self._pipeline.name, batch_id)
            return
        lateness_us = self._config.lateness_ms * 1_000
        marked = mark_late(batch, dict(manifest.newest_us), lateness_us)
        parsed = self._pipeline.parse(marked, self._config).persist()
        try:
            after = self._write(store, parsed, manifest)
        finally:
            parsed.unpersist()
        store.manifests.commit(replace(after, version=manifest.version + 1, query_id=query_id, batch_id=batch_id))
        if batch_id % self._config.compact_every == self._config.compact_every - 1:
            store.compact(self._pipeline.all_tables, lateness_us)

    def _write(self, store: TableStore, parsed: DataFrame, manifest: Manifest) -> Manifest:
        from pyspark.sql import functions as sf  # noqa: PLC0415

        found = (
            parsed.groupBy("topic", "partition")
            .agg(
                sf.unix_micros(sf.min("timestamp")).alias("first"),
                sf.unix_micros(sf.max("timestamp")).alias("last"),
                sf.count(PROBLEM).alias("problems"),
                sf.count("*").alias("rows"),
            )
            .collect()
        )
        if not found:
            return manifest
        span = (min(row["first"] for row in found), max(row["last"] for row in found))
        newest = dict(manifest.newest_us)
        for row in found:
            place = f"{row['topic']}-{row['partition']}"
            newest[place] = max(row["last"], newest.get(place, row["last"]))
        added: dict[str, Segment] = {}
        if any(row["rows"] > row["problems"] for row in found):
            good = parsed.where(sf.col(PROBLEM).isNull())
            for name, frame in self._pipeline.rows(good, self._config).items():
                added[name] = store.write(self._pipeline.table(name), frame, manifest, span)
        if any(row["problems"] for row in found):
            added[DEAD_LETTERS.name] = store.write(DEAD_LETTERS, dead_letters(parsed), manifest, span)
        return replace(manifest, tables=segments_with(manifest, added), newest_us=newest)
