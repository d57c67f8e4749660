"""The pipeline ``lake``: any topic as a table that others can read, each record once.

Rows have ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``, in directories by
``date``, the day of their timestamps. With a schema ``value`` is a struct; records that do not fit it go to the
directory ``_dead_letters`` beside the data, which readers of the table pass over.

    config = LakeConfig(PipelineConfig(out="lake"), topics=("orders",), values=JsonValues("id bigint, total double"))
    build(spark, config)

`LakeFiles` says why a batch counts once; formats with commits of their own, Delta and Iceberg, change in one step.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.lake_files import LakeFiles
from barnabas.spark.pipelines.lake_formats import DeltaLakeTable, IcebergTable, LakeTable, ParquetTable
from barnabas.spark.pipelines.lake_values import KEPT, RAW_VALUE, RawValues, ValueFormat
from barnabas.spark.pipelines.manifest import ForeignTablesError
from barnabas.spark.pipelines.stream import QUERY_ID, read_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

NAME: Final = "lake"
DATE: Final = "date"
DEAD_LETTERS_DIRECTORY: Final = "_dead_letters"
FORMATS: Final = ("parquet", "delta", "iceberg")
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """Which topics become which table."""

    pipeline: PipelineConfig
    topics: tuple[str, ...]
    table: str | None = None
    """A name for the table: a directory below ``out``. That of the topic, if there is one."""
    table_format: str = "parquet"
    values: ValueFormat = field(default_factory=RawValues)
    catalog: str | None = None
    """For Iceberg: the name of a catalog that pyiceberg knows."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("there is no topic to make a table of")
        if self.table_format not in FORMATS:
            raise ValueError(f"there is no table format {self.table_format}; there are {', '.join(FORMATS)}")
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


def build(spark: SparkSession, config: LakeConfig) -> StreamingQuery:
    """Starts the pipeline."""
    raw = read_topics(spark, f"{NAME}-{config.name}", config.topics, config.pipeline)
    writer = raw.writeStream.foreachBatch(LakeWriter(config))
    writer = writer.option("checkpointLocation", config.checkpoint).queryName(f"{NAME}-{config.name}")
    trigger: dict[str, Any] = (
        {"availableNow": True}
        if config.pipeline.once
        else {"processingTime": f"{config.pipeline.trigger_ms} milliseconds"}
    )
    return writer.trigger(**trigger).start()


class LakeWriter:
    """Adds one batch after the other to the table."""

    def __init__(self, config: LakeConfig) -> None:
        self._config = config

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        self.write(batch, query_id, batch_id)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch, unless it is in the table already."""
        from pyspark.sql import functions as sf  # noqa: PLC0415

        spark = batch.sparkSession
        files = LakeFiles(spark, self._config.location)
        marked, last = files.mark()
        if marked and marked != query_id:
            raise ForeignTablesError(
                f"{self._config.location} was written with another checkpoint (query {marked}, this is {query_id}): "
                "use that checkpoint, or another directory for the table"
            )
        parsed = self._config.values.parse(batch)
        rows = parsed.where(sf.col(PROBLEM).isNull()).select(
            *KEPT[:4], "key", "value", "headers", sf.to_date("timestamp").alias(DATE)
        )
        table = self._table(files, rows.schema)
        if batch_id <= max(last, table.last_batch(query_id)):
            logger.info("%s: batch %d is in the table already", self._config.name, batch_id)
            if last < batch_id:  # the table has it, and the process ended before the mark
                files.set_mark(query_id, batch_id)
            return
        files.undo(last)
        # The default is a format of 96 bits that Spark is nearly the last to write, and Iceberg does not read.
        spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        parsed.persist()
        try:
            bad = parsed.where(sf.col(PROBLEM).isNotNull()).select(
                *ORIGIN, sf.col(PROBLEM).alias("reason"), "key", sf.col(RAW_VALUE).alias("value")
            )
            frames = {"": rows}
            if not bad.isEmpty():
                frames[DEAD_LETTERS_DIRECTORY] = bad
            added = files.add(frames, (DATE,), query_id, batch_id)
        finally:
            parsed.unpersist()
        if added[""]:
            table.commit(added[""], query_id, batch_id)
        files.set_mark(query_id, batch_id)

    def _table(self, files: LakeFiles, schema: StructType) -> LakeTable:
        from pyspark.sql.types import StructType  # noqa: PLC0415

        root = files.files.root
        match self._config.table_format:
            case "delta":
                return DeltaLakeTable(root, schema, (DATE,))
            case "iceberg":
                in_files = StructType([one for one in schema.fields if one.name != DATE])
                return IcebergTable(root, in_files, f"barnabas.{_identifier(self._config.name)}", self._config.catalog)
            case _:
                return ParquetTable(files)


def _identifier(name: str) -> str:
    """A name for a table that has no dot or dash in it."""
    return "".join(one if one.isalnum() else "_" for one in name)
