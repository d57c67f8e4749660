"""The pipeline ``sessions``: records of the same key with less than a gap between them, as one row.

    config = SessionsConfig(PipelineConfig(out="tables"), topics=("clicks",), gap_ms=1_800_000, key_column="user",
                            schema="user string, amount double", aggregates=(Aggregate("amount", "sum"),))
    build(spark, config)

A session is written once it is over: when the *watermark*, the time of the newest record less the allowed lateness, has
reached its last record plus the gap. Until then Spark keeps it in a state store (RocksDB) within the checkpoint, which
a restart reads again. Records behind the watermark go to the table ``_dead_letters``.

Spark would drop late rows by itself, before anybody sees them. It finds them by the column that the watermark is of, so
that column is not among those which the stateful operator gets; `SessionProcessor` compares the times itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS, PROBLEM
from barnabas.spark.pipelines.declared import RECORD, with_json
from barnabas.spark.pipelines.session_windows import FUNCTIONS
from barnabas.spark.pipelines.stream import query_id_of, read_topics, start_query
from barnabas.spark.pipelines.tables import BatchState, Table, TableStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

NAME: Final = "sessions"
DEAD_LETTERS_DIRECTORY: Final = "_dead_letters"
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only state store that takes timers."""
INTEGER_TYPES: Final = ("tinyint", "smallint", "int", "bigint")
NUMBER_TYPES: Final = (*INTEGER_TYPES, "float", "double")
VALUE_TYPES: Final = (*NUMBER_TYPES, "string", "boolean")
"""Types of columns that can be aggregated, as Spark writes them."""
FIXED_COLUMNS: Final = ("key", "start_time", "end_time", "records", "first_record", "last_record")
_PLACE: Final = "struct<topic: string, partition: int, offset: bigint>"
_REJECTED: Final = (
    "struct<topic: string, partition: int, offset: bigint, time_us: bigint, reason: string, key: binary, value: binary>"
)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of the values, and what becomes of it in a session."""

    column: str
    function: str

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise ValueError(
                f"aggregate {self.column}:{self.function}: unknown function; expected {', '.join(FUNCTIONS)}"
            )

    @property
    def name(self) -> str:
        """The column of the table."""
        return f"{self.column}_{self.function}"

    def type_name(self, schema: StructType) -> str:
        """Returns the type of the table's column; raises ValueError if the values have no such column."""
        if self.column not in schema.names:
            raise ValueError(
                f"aggregate {self.column}:{self.function}: the schema has no column {self.column}; "
                f"it has {', '.join(schema.names)}"
            )
        found = schema[self.column].dataType.simpleString()
        allowed = NUMBER_TYPES if self.function == "sum" else VALUE_TYPES
        if found not in allowed:
            raise ValueError(
                f"aggregate {self.column}:{self.function}: the column is of type {found}; expected one of "
                f"{', '.join(allowed)}"
            )
        if self.function != "sum":
            return found
        return "bigint" if found in INTEGER_TYPES else "double"


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    """Which records make sessions, and what their rows have."""

    pipeline: PipelineConfig
    topics: tuple[str, ...]
    gap_ms: int
    """Records of a key with at least this time between them belong to different sessions."""
    table: str | None = None
    """Name of the table: a directory below ``out``. That of the topic, if there is one topic."""
    key_column: str | None = None
    """Column of the values that is the key of a session; None: the key of the record."""
    schema: str | None = None
    """Columns and types of the values, which are JSON; None: the values are not looked at."""
    aggregates: tuple[Aggregate, ...] = ()

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("there is no topic to make sessions of")
        if self.table is None and len(self.topics) > 1:
            raise ValueError("a table of several topics needs a name")
        if self.gap_ms <= 0:
            raise ValueError(f"the gap of sessions must be positive: {self.gap_ms} ms")
        if self.schema is None and (self.key_column is not None or self.aggregates):
            raise ValueError("a key column and aggregates are of the values: these need a schema")
        names = [*FIXED_COLUMNS, *(one.name for one in self.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the table would have two columns {', '.join(twice)}")

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
        return TableStore(self.location, self.pipeline.tables, NAME)

    def value_schema(self) -> StructType:
        """Returns the columns of the values. Spark parses them, so there must be a session."""
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(self.schema) if self.schema is not None else StructType()
        assert isinstance(schema, StructType)
        return schema

    def aggregate_columns(self) -> str:
        """Returns names and types of the aggregates, each after a comma."""
        schema = self.value_schema()
        return "".join(f", `{one.name}` {one.type_name(schema)}" for one in self.aggregates)

    def sessions_table(self) -> Table:
        columns = "key string, start_time timestamp, end_time timestamp, records bigint"
        places = f"first_record {_PLACE}, last_record {_PLACE}"
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(f"{columns}, {places}{self.aggregate_columns()}")
        assert isinstance(schema, StructType)
        return Table(self.name, schema, "start_time", path="")

    def dead_letters_table(self) -> Table:
        return Table(
            f"{self.name}_dead_letters", DEAD_LETTERS.schema, DEAD_LETTERS.time_column, path=DEAD_LETTERS_DIRECTORY
        )


def build(spark: SparkSession, config: SessionsConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return start(read_topics(spark, f"{NAME}-{config.name}", config.topics, config.pipeline), config)


def start(raw: DataFrame, config: SessionsConfig) -> StreamingQuery:
    """Runs the pipeline over a stream that has the columns of the source."""
    with _state_store(raw.sparkSession):
        name = f"{NAME}-{config.name}"
        return start_query(sessions(raw, config), SessionsWriter(config), name, config.pipeline, config.checkpoint)


@contextmanager
def _state_store(spark: SparkSession) -> Iterator[None]:
    """Sets the state store for queries that are started meanwhile. A query copies the settings when it starts."""
    before = spark.conf.get(STATE_STORE, None)
    spark.conf.set(STATE_STORE, ROCKSDB)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(STATE_STORE)
        else:
            spark.conf.set(STATE_STORE, before)


def sessions(raw: DataFrame, config: SessionsConfig) -> DataFrame:
    """Returns the stream of closed sessions and rejected records: each row has one of ``session`` and ``rejected``."""
    from pyspark.sql import functions as sf

    from barnabas.spark.pipelines.session_processor import SessionProcessor

    names = [one.name for one in config.aggregates]
    output = (
        f"session struct<key string, start_us bigint, end_us bigint, records bigint, first_record {_PLACE}, "
        f"last_record {_PLACE}{config.aggregate_columns()}>, rejected {_REJECTED}"
    )
    rows = raw.withColumn(PROBLEM, sf.lit(None).cast("string"))
    if config.schema is not None:
        rows = with_json(rows, config.schema)
    key, problem = _session_key(config)
    # A record from the future must not make all others late.
    clock = sf.least("timestamp", sf.current_timestamp())
    timed = rows.withColumn("_clock", clock).withWatermark("_clock", f"{config.pipeline.lateness_ms} milliseconds")
    values = [sf.col(f"{RECORD}.`{one.column}`").alias(one.name) for one in config.aggregates]
    judged = timed.select(
        # What has no key goes to the processor as well, for there is one way out of it.
        sf.coalesce(sf.when(problem.isNull(), key), sf.lit("")).alias("key"),
        sf.unix_micros("timestamp").alias("time_us"),
        "topic",
        "partition",
        "offset",
        problem.alias(PROBLEM),
        sf.col("key").alias("raw_key"),
        sf.col("value").alias("raw_value"),
        *values,
    )
    processor = SessionProcessor(config.gap_ms * 1_000, [one.function for one in config.aggregates], names)
    return judged.groupBy("key").transformWithState(processor, output, "Append", "EventTime")


def _session_key(config: SessionsConfig) -> tuple[Column, Column]:
    """Returns the key of a record's session as text, and what is wrong with the record."""
    from pyspark.sql import functions as sf

    if config.key_column is None:
        key = sf.col("key").cast("string")
        unusable = sf.when(sf.col("key").isNull(), sf.lit("no key")).when(
            ~sf.is_valid_utf8(key), sf.lit("the key is not UTF-8")
        )
    else:
        if config.key_column not in config.value_schema().names:
            names = ", ".join(config.value_schema().names)
            raise ValueError(f"the schema has no column {config.key_column} for the key; it has {names}")
        key = sf.col(f"{RECORD}.`{config.key_column}`").cast("string")
        unusable = sf.when(key.isNull(), sf.lit(f"{config.key_column} is missing"))
    return key, sf.coalesce(PROBLEM, unusable)


class SessionsWriter:
    """Adds the sessions that each batch has closed to the table."""

    def __init__(self, config: SessionsConfig) -> None:
        self._config = config

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.write(batch, query_id_of(batch, self._config.checkpoint), batch_id)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch, unless the table holds it."""
        from pyspark.sql import functions as sf

        # The batch runs once, whether or not the table holds it: running it is what changes the state of the sessions.
        batch.persist()
        try:
            rejected = batch.agg(sf.count("rejected").alias("rejected")).collect()[0]["rejected"]
            self._add(batch, rejected, query_id, batch_id)
        finally:
            batch.unpersist()

    def _add(self, batch: DataFrame, rejected: int, query_id: str, batch_id: int) -> None:
        from pyspark.sql import functions as sf

        store = self._config.store()
        state = store.state()
        if state.has_batch(query_id, batch_id):
            logger.info("%s: the table already holds batch %d", self._config.name, batch_id)
            return
        tables = table, dead = self._config.sessions_table(), self._config.dead_letters_table()
        store.create(tables)
        closed = batch.where("session is not null").select("session.*")
        times = {"start_time": sf.timestamp_micros("start_us"), "end_time": sf.timestamp_micros("end_us")}
        store.add(table, closed.withColumns(times), query_id, batch_id)
        if rejected:
            bad = batch.where("rejected is not null").select("rejected.*")
            store.add(dead, bad.withColumn("timestamp", sf.timestamp_micros("time_us")), query_id, batch_id)
        store.set_state(BatchState(query_id, batch_id, dead_letters=state.dead_letters + rejected))
        every = self._config.pipeline.compact_every
        if batch_id % every == every - 1:
            compact(batch.sparkSession, self._config)


def compact(spark: SparkSession, config: SessionsConfig) -> None:
    """Makes large files of small ones, and removes what is expired."""
    tables = (config.sessions_table(), config.dead_letters_table())
    config.store().compact(spark, tables, 0, config.pipeline.keep_hours)
