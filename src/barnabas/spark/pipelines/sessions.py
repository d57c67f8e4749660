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

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.spark.pipelines.dead_letter import PROBLEM
from barnabas.spark.pipelines.declared import RECORD, with_json
from barnabas.spark.pipelines.session_windows import FUNCTIONS
from barnabas.spark.pipelines.tables import Table
from barnabas.spark.pipelines.topic_batches import AddedBatch, TopicBatch, TopicTableWriter
from barnabas.spark.pipelines.topic_tables import TopicTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

NAME: Final = "sessions"
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
class SessionsConfig(TopicTable):
    """Which records make sessions, and what their rows have."""

    kind: ClassVar[str] = NAME
    namespace: ClassVar[str] = NAME

    gap_ms: int = field(kw_only=True)
    """Records of a key with at least this time between them belong to different sessions."""
    key_column: str | None = field(default=None, kw_only=True)
    """Column of the values that is the key of a session; None: the key of the record."""
    schema: str | None = field(default=None, kw_only=True)
    """Columns and types of the values, which are JSON; None: the values are not looked at."""
    aggregates: tuple[Aggregate, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        TopicTable.__post_init__(self)  # super() does not find the class that slots make
        if self.gap_ms <= 0:
            raise ValueError(f"the gap of sessions must be positive: {self.gap_ms} ms")
        if self.schema is None and (self.key_column is not None or self.aggregates):
            raise ValueError("a key column and aggregates are of the values: these need a schema")
        names = [*FIXED_COLUMNS, *(one.name for one in self.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the table would have two columns {', '.join(twice)}")

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


def build(spark: SparkSession, config: SessionsConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return start(config.read(spark), config)


def start(raw: DataFrame, config: SessionsConfig) -> StreamingQuery:
    """Runs the pipeline over a stream that has the columns of the source."""
    # Running a batch is what changes the state of the sessions.
    writer = TopicTableWriter(config, partial(_add, config), run_skipped=True)
    with _state_store(raw.sparkSession):
        return writer.start(sessions(raw, config))


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


def _add(config: SessionsConfig, batch: TopicBatch) -> AddedBatch:
    """Adds the sessions that a batch has closed to the table."""
    from pyspark.sql import functions as sf

    found = batch.records.persist()
    try:
        rejected = found.agg(sf.count("rejected").alias("rejected")).collect()[0]["rejected"]
        tables = table, dead = config.sessions_table(), config.dead_letters_table()
        batch.store.create(tables)
        closed = found.where("session is not null").select("session.*")
        times = {"start_time": sf.timestamp_micros("start_us"), "end_time": sf.timestamp_micros("end_us")}
        batch.add(table, closed.withColumns(times))
        if rejected:
            bad = found.where("rejected is not null").select("rejected.*")
            batch.add(dead, bad.withColumn("timestamp", sf.timestamp_micros("time_us")))
        return AddedBatch(tables, rejected)
    finally:
        found.unpersist()


def compact(spark: SparkSession, config: SessionsConfig) -> None:
    """Makes large files of small ones, and removes what is expired."""
    tables = (config.sessions_table(), config.dead_letters_table())
    config.store().compact(spark, tables, 0, config.pipeline.keep_hours)
