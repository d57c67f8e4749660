"""The pipeline ``changes``: topics of changes as a table that is up to date, one row for each key.

    config = ChangesConfig(PipelineConfig(out="tables"), ("shop.public.orders",), schemas=ConnectSchemas(), key=("id",))
    build(spark, config)

A batch is reduced to the last change of each key (`row_changes`), and merged into the table in one commit, which notes
the batch (`tables`). Rows have the columns of all schemas that their topic ever had (`schema_drift`), and the position
of the record that they are from. Records that cannot be used go to a table ``_dead_letters`` below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from barnabas.spark.pipelines.change_envelopes import KEY, Debezium, Envelope
from barnabas.spark.pipelines.change_keys import KeyFormat
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.lake_values import struct_of
from barnabas.spark.pipelines.row_changes import DELETE, OP, POSITION, TRUNCATE, Position, is_before, last_changes
from barnabas.spark.pipelines.schema_drift import plain_type
from barnabas.spark.pipelines.tables import Table
from barnabas.spark.pipelines.topic_batches import AddedBatch, TopicBatch, TopicTableWriter
from barnabas.spark.pipelines.topic_tables import TopicTable, rejected
from barnabas.spark.pipelines.value_schemas import (
    Decoding,
    FoundSchemas,
    OneSchema,
    ValueFormatError,
    ValueSchema,
    ValueSchemas,
    fitting_schemas,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

NAME: Final = "changes"
_ROW: Final = "_row"
_VALUE: Final = "_value"
_NO_KEY: Final = "_needs_key"


@dataclass(frozen=True, slots=True)
class ChangesConfig(TopicTable):
    """Which topics become which table, and how."""

    kind: ClassVar[str] = NAME
    namespace: ClassVar[str] = NAME

    schemas: ValueSchemas = field(kw_only=True)
    key: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns of the row. Without any, the key of the record is the key of the row, in a column `KEY`."""
    keys: KeyFormat = field(default_factory=KeyFormat, kw_only=True)
    """What the keys of records are; needed for tombstones, if the table has key columns."""
    envelope: Envelope = field(default_factory=Debezium, kw_only=True)

    def rows_table(self, schema: StructType) -> Table:
        return Table(self.name, schema, POSITION[-1], path="", key=self.key or (KEY,))


def json_rows(ddl: str, envelope: Envelope) -> OneSchema:
    """JSON without a schema: the columns that the user names, as Spark writes them, are those of the row."""

    def make() -> ValueSchema:
        from pyspark.sql.pandas.types import to_arrow_type

        from barnabas.spark.pipelines.json_values import json_schema_of

        return json_schema_of(envelope.value_type(plain_type(to_arrow_type(struct_of(ddl), timezone="UTC"))))

    return OneSchema(make, "JSON")


def build(spark: SparkSession, config: ChangesConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return changes_writer(config).start(config.read(spark))


def changes_writer(config: ChangesConfig) -> TopicTableWriter:
    """Returns what merges the batches into the table."""
    return TopicTableWriter(config, partial(_merge, config))


def _merge(config: ChangesConfig, batch: TopicBatch) -> AddedBatch:
    from pyspark.sql.types import StructType

    store = batch.store
    dead = config.dead_letters_table()
    store.create((dead,))
    opened = store.open(config.rows_table(StructType()))
    known = stored_row_type(opened.schema()) if opened.exists() else None
    # Batches whose values name their schemas are read twice.
    held = [batch.records.persist()] if config.schemas.many else []
    try:
        parsed = parse_changes(batch.records, config, known)
        held.append(parsed.decoded)
        tables = [dead]
        if parsed.has_rows:
            changes = last_changes(parsed.changes(), config.key or (KEY,))
            table = store.prepare(config.rows_table(changes.drop(OP).schema))
            tables.append(table)
            truncates = parsed.truncates()
            if truncates:
                changes = changes.where(~is_before(truncates))
            held.append(changes.persist())
            store.merge(table, changes, truncates, batch.query_id, batch.batch_id)
        return AddedBatch(tables, batch.add(dead, rejected(parsed.frame, "value")))
    finally:
        for frame in held:
            frame.unpersist()


def stored_row_type(schema: pa.Schema) -> pa.DataType:
    """The columns of a table that come from rows, without those for the position and the key of the record."""
    import pyarrow as pa  # an extra

    return plain_type(pa.struct([one for one in schema if one.name not in {KEY, *POSITION}]))


@dataclass(frozen=True, slots=True)
class ParsedChanges:
    """The records of a batch: `ORIGIN`, ``key`` and ``value`` as they came, `PROBLEM`, `OP` and the row."""

    frame: DataFrame
    decoded: DataFrame
    """What the frame is made of; it is kept in memory, because to decode is the costly part."""
    has_rows: bool
    """False if no record has said yet what a row is: then there is neither `OP` nor a row."""
    by_record_key: bool

    def changes(self) -> DataFrame:
        """The upserts and deletions: columns of the row, `POSITION` and `OP`."""
        from pyspark.sql import functions as sf

        position = [sf.col(name).alias(column) for name, column in zip(ORIGIN, POSITION, strict=True)]
        key = [sf.col("key").alias(KEY)] if self.by_record_key else []
        usable = self.frame.where(sf.col(PROBLEM).isNull() & (sf.col(OP) != TRUNCATE))
        return usable.select(f"{_ROW}.*", *key, *position, OP)

    def truncates(self) -> list[Position]:
        """The last truncation of each partition."""
        from pyspark.sql import functions as sf

        last = sf.max_by(sf.struct("offset", sf.unix_micros("timestamp").alias("time_us")), "offset").alias("last")
        found = self.frame.where(sf.col(PROBLEM).isNull() & (sf.col(OP) == TRUNCATE))
        rows = found.groupBy("topic", "partition").agg(last).collect()
        return [(row["topic"], row["partition"], row["last"]["offset"], row["last"]["time_us"]) for row in rows]


def parse_changes(raw: DataFrame, config: ChangesConfig, known: pa.DataType | None) -> ParsedChanges:
    """Decodes the records of a batch. ``known``: the type of the rows that the table has; None if it has none yet."""
    import pyarrow as pa  # an extra
    from pyspark.sql import functions as sf

    def row_of(value: pa.DataType) -> pa.DataType:
        row = config.envelope.row_type(value)
        if missing := [name for name in config.key if name not in {one.name for one in row}]:
            raise ValueFormatError(f"its rows have no column {', '.join(missing)}, which is to be the key")
        return row

    found, row = fitting_schemas(config.schemas, raw, "value", known, row_of)
    columns = raw.select(*ORIGIN, "key", "value")
    if row is None:
        frame = Decoding(config.schemas, found, pa.null()).add_to(columns, "value", _VALUE, PROBLEM).drop(_VALUE)
        return ParsedChanges(frame, frame.persist(), False, not config.key)
    decoding = Decoding(config.schemas, found, config.envelope.value_type(row))
    decoded = decoding.add_to(columns, "value", _VALUE, PROBLEM)
    value = sf.col(_VALUE)
    with_op = decoded.select(
        *ORIGIN,
        "key",
        "value",
        PROBLEM,
        sf.when(sf.col(PROBLEM).isNull(), config.envelope.op(value)).alias(OP),
        config.envelope.row(value).alias(_ROW),
    )
    with_op.persist()
    with_keys = _with_record_keys(with_op, config, row) if config.key else with_op
    judged = with_keys.withColumn(PROBLEM, sf.coalesce(PROBLEM, _problem(config)))
    return ParsedChanges(judged, with_op, True, not config.key)


def _problem(config: ChangesConfig) -> Column:
    """What is wrong with a change that could be decoded; null if nothing is."""
    from pyspark.sql import functions as sf

    is_row = sf.col(OP) != TRUNCATE
    problem = sf.when(sf.col(OP).isNull(), "not a change of a row: its op is none of c, r, u, d and t")
    if not config.key:
        problem = problem.when(is_row & sf.col("key").isNull(), "the record has no key")
    problem = problem.when(is_row & (sf.col(OP) != DELETE) & sf.col(_ROW).isNull(), "there is no row in it")
    for name in config.key:
        problem = problem.when(is_row & sf.col(f"{_ROW}.`{name}`").isNull(), f"the key column {name} is null")
    return problem


def _with_record_keys(frame: DataFrame, config: ChangesConfig, row: pa.DataType) -> DataFrame:
    """Takes the key columns of deletions that have no row, such as tombstones, from the keys of the records."""
    import pyarrow as pa  # an extra
    from pyspark.sql import functions as sf

    needs_key = (sf.col(OP) == DELETE) & sf.col(_ROW).isNull() & sf.col(PROBLEM).isNull()
    marked = frame.withColumn(_NO_KEY, sf.coalesce(needs_key, sf.lit(False)))
    needing = marked.where(_NO_KEY).drop(_NO_KEY, PROBLEM)
    if needing.isEmpty():
        return frame
    kind = pa.struct([one for one in row if one.name in config.key])
    schemas = config.keys.for_columns(kind)
    found = FoundSchemas.in_column(schemas, needing, "key")
    decoded = Decoding(schemas, found, kind).add_to(needing, "key", _VALUE, PROBLEM)
    fields = [
        (sf.col(f"{_VALUE}.`{one.name}`") if one.name in config.key else sf.col(f"{_ROW}.`{one.name}`")).alias(one.name)
        for one in row
    ]
    with_row = decoded.withColumn(_ROW, sf.struct(*fields)).drop(_VALUE)
    return marked.where(~sf.col(_NO_KEY)).drop(_NO_KEY).unionByName(with_row)
