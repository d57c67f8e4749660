"""A table that is made of topics which the user names: its name, its place, its dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS, ORIGIN, PROBLEM
from barnabas.spark.pipelines.stream import read_topics
from barnabas.spark.pipelines.tables import Table, TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTERS_DIRECTORY: Final = "_dead_letters"


@dataclass(frozen=True, slots=True)
class TopicTable:
    """Which topics become which table."""

    pipeline: PipelineConfig
    topics: tuple[str, ...]
    table: str | None = None
    """Name of the table: a directory below ``out``. By default the name of the topic, if there is only one."""

    kind: ClassVar[str]
    """The pipeline."""
    namespace: ClassVar[str]
    """Of the table in an Iceberg catalog."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("no topic given")
        if self.table is None and len(self.topics) > 1:
            raise ValueError("a table of several topics needs a name")

    @property
    def name(self) -> str:
        return self.table or self.topics[0]

    @property
    def query_name(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def location(self) -> str:
        return f"{self.pipeline.out.rstrip('/')}/{self.kind}/{self.name}"

    @property
    def checkpoint(self) -> str:
        return self.pipeline.checkpoint or f"{self.location}/_barnabas/checkpoint"

    def read(self, spark: SparkSession) -> DataFrame:
        """The records of the topics as a stream."""
        return read_topics(spark, self.query_name, self.topics, self.pipeline)

    def store(self) -> TableStore:
        return TableStore(self.location, self.pipeline.tables, self.namespace)

    def dead_letters_table(self) -> Table:
        return Table(
            f"{self.name}_dead_letters", DEAD_LETTERS.schema, DEAD_LETTERS.time_column, path=DEAD_LETTERS_DIRECTORY
        )


def rejected(parsed: DataFrame, value: str) -> DataFrame:
    """The rows of the table of dead letters. ``value``: the column with the bytes of the value."""
    from pyspark.sql import functions as sf

    return parsed.where(sf.col(PROBLEM).isNotNull()).select(
        *ORIGIN, sf.col(PROBLEM).alias("reason"), "key", sf.col(value).alias("value")
    )
