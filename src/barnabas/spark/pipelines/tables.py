"""The tables of a pipeline: their definition, and how batches get into them and out again.

One batch changes several tables, each in a commit of its own, and each commit notes the batch (`table_formats`). After
the last commit the *state* of the pipeline is written: query, batch, and the newest record of each partition. A process
can die at four points of a batch:

1. *Before or while files are written.* No commit names them. The batch runs again and writes others.
2. *Between the commits of two tables.* The batch runs again, with the same records and the same state: tables that
   hold it skip it, the others get it.
3. *After the state, before Spark's own commit.* The batch runs again, finds its number in the state, and is skipped.
4. *After Spark's commit.* The next batch is next.

So every record counts once in every table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from barnabas.spark.pipelines.config import DELTA, ICEBERG, TableOptions
from barnabas.spark.pipelines.data_files import BATCH_FILE, MERGED, DataFile, FileLayout, read_files, write_files
from barnabas.spark.pipelines.row_changes import OP, POSITION, UPSERT, Position, is_before, is_later
from barnabas.spark.pipelines.schema_drift import merged_type, plain_type
from barnabas.spark.pipelines.table_formats import (
    SMALL_BYTES,
    DeltaTableFormat,
    IcebergTableFormat,
    OpenTable,
    TableFile,
)
from barnabas.spark.pipelines.table_storage import TableStorage, local_path
from barnabas.spark.session import parallelism

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

HOUR_US: Final = 3_600_000_000
_DAY_SECONDS: Final = 86_400
STATE: Final = "_barnabas/batch.json"
STATUS: Final = "_barnabas/status.json"
OLD_MANIFESTS: Final = "_manifests"
"""Directory that tables of release 0.1 have."""
CONVERTING: Final = "_barnabas/converting.json"
"""List of the old files of a table whose conversion has not ended."""
DELTA_LOG: Final = "_delta_log"
CATALOG: Final = "catalog.db"
FILE: Final = "_file"
"""Column with the name of the data file that a row is in, while changes are merged."""
_SIMPLE_COLUMNS: Final = re.compile(r",(?![^<]*>)")
"""Commas between columns, but not those within a type such as ``map<string, string>``."""
Merge = Callable[["DataFrame"], "DataFrame"]


class ForeignTablesError(Exception):
    """Another query has written the tables: to go on would count the same records twice."""


class OldTablesError(Exception):
    """The tables have the format of release 0.1."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns, and how rows of the same window and key become one."""

    name: str
    schema: str | StructType
    """Columns and types, as SQL or as Spark's type; tables are written and read with exactly these."""
    time_column: str
    merge: Merge | None = None
    """For roll-ups. Each batch adds rows for the windows that it has records of; the merge makes one row of all rows of
    a window and key. None: rows are events, and stay as they are."""
    day_column: str | None = None
    """Name of the column with the day of ``time_column``, if the table is partitioned by it."""
    path: str | None = None
    """Directory below that of the pipeline, if it is not the name."""
    key: tuple[str, ...] = ()
    """Columns that tell the rows of a table apart that changes are merged into."""

    @property
    def directory(self) -> str:
        return self.name if self.path is None else self.path

    @property
    def column_names(self) -> list[str]:
        """The names of the columns; found without Spark."""
        if isinstance(self.schema, str):
            return [column.strip().split(" ")[0] for column in _SIMPLE_COLUMNS.split(self.schema)]
        return list(self.schema.names)

    def spark_schema(self) -> StructType:
        from pyspark.sql.types import StructType  # an extra

        schema = StructType.fromDDL(self.schema) if isinstance(self.schema, str) else self.schema
        assert isinstance(schema, StructType)
        return schema

    def layout(self) -> FileLayout:
        partition_by = () if self.day_column is None else (self.day_column,)
        return FileLayout(self.spark_schema(), partition_by, self.time_column)


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a pipeline has in its tables."""

    query_id: str = ""
    batch_id: int = -1
    """The last batch that all tables hold."""
    newest_us: Mapping[str, int] = field(default_factory=dict)
    """Time of the newest record of each partition, by ``topic-partition``: lateness is measured from it."""
    dead_letters: int = 0
    """Number of dead letters in all batches."""

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether all tables hold a batch; `ForeignTablesError` if another query has written them."""
        if self.query_id and self.query_id != query_id:
            raise ForeignTablesError(
                f"the tables were written with another checkpoint (query {self.query_id}, and this is {query_id}): "
                "use that checkpoint, or another directory for the tables"
            )
        return batch_id <= self.batch_id

    def to_json(self) -> bytes:
        return json.dumps({**asdict(self), "newest_us": dict(self.newest_us)}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        document = json.loads(data)
        return cls(
            document["query_id"], document["batch_id"], document.get("newest_us", {}), document.get("dead_letters", 0)
        )


class TableStore:
    """The tables of one pipeline, below one directory."""

    def __init__(self, root: str, options: TableOptions, namespace: str, *, old_tables: bool = False) -> None:
        """``old_tables``: the directory may have tables of release 0.1, which everything but the conversion refuses."""
        path = local_path(root)
        self.root = root.rstrip("/") if path is None else str(path)
        self._options = options
        self._namespace = identifier(namespace)
        self.table_format = options.table_format or self._found_format() or DELTA
        if not old_tables and path is not None and any((path / one).exists() for one in (OLD_MANIFESTS, CONVERTING)):
            raise OldTablesError(f"{path} has tables of release 0.1: barnabas pipeline convert converts them")
        self._storage = TableStorage(self.root, self.table_format, dict(options.properties))

    def _found_format(self) -> str | None:
        """The format of what is there."""
        path = local_path(self.root)
        if (
            self._options.catalog is not None
            or "uri" in self._options.properties
            or (path and (path / CATALOG).exists())
        ):
            return ICEBERG
        return None

    def open(self, table: Table) -> OpenTable:
        return self.open_named(table.name, table.directory)

    def open_named(self, name: str, directory: str) -> OpenTable:
        location = f"{self.root}/{directory}".rstrip("/")
        if self.table_format == ICEBERG:
            return IcebergTableFormat(location, (self._namespace, identifier(name)), self.root, self._options)
        return DeltaTableFormat(location, self._options)

    def create(self, tables: Iterable[Table]) -> None:
        """Creates those that are missing."""
        for table in tables:
            opened = self.open(table)
            if not opened.exists():
                opened.create(table.layout(), table.time_column if table.day_column else None)

    def prepare(self, table: Table) -> Table:
        """Creates a table, or adds the columns to it that it does not have. Returns it with all columns that it has.

        Raises `DriftError` if a column has another type.
        """
        import pyarrow as pa  # an extra
        from pyspark.sql.pandas.types import from_arrow_schema  # an extra

        self.create((table,))
        opened = self.open(table)
        stored, wanted = opened.schema(), table.layout().table_schema()
        merged = merged_type(pa.struct(list(stored)), pa.struct(list(wanted)))
        whole = replace(table, schema=from_arrow_schema(pa.schema(list(merged))))
        layout = whole.layout()
        added = [one for one in layout.table_schema() if one.name not in layout.partition_by]
        known = [one for one in stored if one.name not in layout.partition_by]
        if plain_type(pa.struct(added)) != plain_type(pa.struct(known)):
            opened.add_columns(layout)
        return whole

    # ------------------------------------------------------------------------------------------------ batches

    def state(self) -> BatchState:
        found = self._storage.read(STATE)
        return BatchState() if found is None else BatchState.from_json(found)

    def set_state(self, state: BatchState) -> None:
        self._storage.replace(STATE, state.to_json())

    def status(self) -> bytes | None:
        """Returns what the pipeline last said about itself (`barnabas.spark.pipelines.status`)."""
        return self._storage.read(STATUS)

    def set_status(self, status: bytes) -> None:
        self._storage.replace(STATUS, status)

    def add(self, table: Table, frame: DataFrame, query_id: str, batch_id: int) -> int:
        """Adds the rows of a batch to a table, unless the table holds the batch; returns how many rows it has.

        The number is the same if a batch runs again that the table holds: the first run may not have noted it.
        """
        opened = self.open(table)
        if opened.last_batch(query_id) >= batch_id:
            return sum(one.rows for one in opened.files() if one.batch == batch_id)
        files = write_files(frame, table.layout(), opened.storage(), f"{BATCH_FILE}-{batch_id:09d}")
        if files:
            opened.replace((), files, same_rows=False, batch=(query_id, batch_id))
        return sum(file.rows for file in files)

    def merge(
        self, table: Table, changes: DataFrame, truncates: Sequence[Position], query_id: str, batch_id: int
    ) -> None:
        """Applies the last change of each key to a table, unless the table holds the batch.

        ``changes`` has the columns of the table and `OP`, and one row for each key; it is used several times. Files
        that hold rows of these keys are written anew without them, and the new rows beside: one commit.
        """
        from pyspark.sql.types import StructType  # an extra

        opened = self.open(table)
        if opened.last_batch(query_id) >= batch_id:
            return
        spark = changes.sparkSession
        key = [f"`{name}`" for name in table.key]
        files = opened.files()
        wanted = {*table.key, *POSITION}
        narrow = replace(table, schema=StructType([one for one in table.spark_schema() if one.name in wanted]))
        found = _matches(self._read(spark, narrow, opened, files, FILE), changes, table.key).persist()
        try:
            # Only in the rare case of a change that is older than the row has this more than no rows.
            late = found.where("later").select(*key)
            if not late.isEmpty():
                changes = changes.join(late, list(table.key), "left_anti")
            changed = {row[FILE] for row in found.where("not later").select(FILE).distinct().collect()}
            taken = [one for one in files if truncates or one.path.rpartition("/")[2] in changed]
            kept = self._read(spark, table, opened, taken).join(changes.select(*key), list(table.key), "left_anti")
            if truncates:
                kept = kept.where(~is_before(truncates))
            rows = kept.unionByName(changes.where(f"{OP} = '{UPSERT}'").drop(OP), allowMissingColumns=True)
            rows = rows.coalesce(_parallelism(spark))
            made = write_files(rows, table.layout(), opened.storage(), f"{BATCH_FILE}-{batch_id:09d}")
        finally:
            found.unpersist()
        if taken or made:
            opened.replace(taken, made, same_rows=False, batch=(query_id, batch_id))

    def overwrite(self, table: Table, frame: DataFrame) -> None:
        """Puts rows in the place of all that the table has."""
        opened = self.open(table)
        files = write_files(frame, table.layout(), opened.storage(), "all")
        opened.replace(opened.files(), files, same_rows=False)

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, spark: SparkSession, table: Table, merged: bool = True) -> DataFrame:
        """All rows of a table; of a roll-up, one for each window and key unless ``merged`` is false."""
        opened = self.open(table)
        frame = self._read(spark, table, opened, opened.files() if opened.exists() else [])
        return table.merge(frame) if table.merge is not None and merged else frame

    @staticmethod
    def _read(
        spark: SparkSession, table: Table, opened: OpenTable, files: Sequence[TableFile], file_column: str | None = None
    ) -> DataFrame:
        """The rows of files; with the name of the file in a further column, if that is wanted."""
        from pyspark.sql import functions as sf  # an extra
        from pyspark.sql.types import StringType, StructField, StructType  # an extra

        schema = table.spark_schema()
        with_file = (
            schema if file_column is None else StructType([*schema.fields, StructField(file_column, StringType())])
        )
        if not files:
            return spark.createDataFrame([], with_file)
        uris = [opened.uri(one) for one in files]
        storage = opened.storage()
        if local_path(storage.location) is not None:
            rows = spark.read.schema(schema).parquet(*uris)
            return rows if file_column is None else rows.select("*", sf.col("_metadata.file_name").alias(file_column))
        # An object store: Spark itself reads it only with a connector jar.
        names = [one.removeprefix(f"{storage.location}/") for one in uris]
        arrow_schema = table.layout().file_schema()

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from read_files(batch.column("name").to_pylist(), storage, arrow_schema, file_column)

        listed = spark.createDataFrame([(one,) for one in names], "name string")
        return listed.repartition(min(len(names), 2 * parallelism(spark))).mapInArrow(read, with_file)

    # ------------------------------------------------------------------------------------------------ maintenance

    def compact(self, spark: SparkSession, tables: Iterable[Table], closed_us: int, keep_hours: int) -> None:
        """Merges the files of the last batches, and removes versions and files that are older than ``keep_hours``.

        Of a roll-up, hours before ``closed_us`` go to a file apart, so that hours which cannot change any more are not
        read and written again.
        """
        for table in tables:
            opened = self.open(table)
            if not opened.exists():
                continue
            if table.merge is not None:
                self._merge_rows(spark, table, opened, _hour(closed_us))
            elif not opened.compact():
                self._merge_files(spark, table, opened)
            opened.expire(keep_hours)

    def _merge_files(self, spark: SparkSession, table: Table, opened: OpenTable) -> None:
        """Makes large files of small ones, where the format's library does not do it."""
        by_directory: dict[str, list[TableFile]] = {}  # a day, if files are by day
        for one in opened.files():
            if one.size < SMALL_BYTES:
                by_directory.setdefault(one.path.rpartition("/")[0], []).append(one)
        small = [one for files in by_directory.values() if len(files) > 1 for one in files]
        if not small:
            return
        day, parallel = table.day_column, _parallelism(spark)
        if day is None:
            frame = self._read(spark, table, opened, small).coalesce(parallel)
        else:
            frame = self._read(spark, _without_day(table), opened, small).withColumn(day, utc_day(table.time_column))
            frame = frame.repartition(parallel, day)  # a file for each day
        made = write_files(frame, table.layout(), opened.storage(), MERGED)
        opened.replace(small, made, same_rows=True)

    def _merge_rows(self, spark: SparkSession, table: Table, opened: OpenTable, closed_us: int) -> None:
        """Makes one row of all rows of a window and key, in the hours that the last batches have changed."""
        assert table.merge is not None
        files = opened.files(table.time_column)
        fresh = [one for one in files if not one.is_merged]
        if not fresh:
            return
        from_us = _hour(min(one.first_us or 0 for one in fresh))
        taken = [*fresh, *(one for one in files if one.is_merged and (one.last_us is None or one.last_us >= from_us))]
        if len(taken) == len(fresh) and all(one.batch is not None and one.batch == fresh[0].batch for one in fresh):
            return  # a batch has one row for each window and key
        merged = table.merge(self._read(spark, table, opened, taken)).coalesce(_parallelism(spark)).persist()
        try:
            made: list[DataFile] = []
            for part in _split_at(merged, table.time_column, closed_us, taken):
                made += write_files(part, table.layout(), opened.storage(), MERGED)
        finally:
            merged.unpersist()
        opened.replace(taken, made, same_rows=True)


def utc_day(time: str) -> Column:
    """The day of a timestamp in UTC, whatever the time zone of the session: to_date() takes that one.

    The partition of an Iceberg table is the day in UTC, and a file must not have rows of two.
    """
    from pyspark.sql import functions as sf  # an extra

    return sf.date_from_unix_date(sf.floor(sf.unix_seconds(time) / _DAY_SECONDS).cast("int"))


def _matches(stored: DataFrame, changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows that have a change: key, file, and whether the row is from a later change."""
    from pyspark.sql import functions as sf  # an extra

    columns = [sf.col(f"`{name}`") for name in key]
    rows = stored.select(*columns, FILE, sf.struct(*POSITION).alias("row"))
    with_change = rows.join(changes.select(*columns, sf.struct(*POSITION).alias("change")), list(key))
    return with_change.select(*columns, FILE, is_later(sf.col("row"), sf.col("change")).alias("later"))


def _without_day(table: Table) -> Table:
    """The table as its files have it: the day is the name of their directory."""
    from pyspark.sql.types import StructType  # an extra

    fields = [one for one in table.spark_schema() if one.name != table.day_column]
    return replace(table, schema=StructType(fields), day_column=None)


def _split_at(rows: DataFrame, column: str, boundary_us: int, files: Sequence[TableFile]) -> list[DataFrame]:
    """The rows before and from a boundary; all of them where the files lie on one side of it."""
    from pyspark.sql import functions as sf  # an extra

    first_us = min(one.first_us or 0 for one in files)
    last_us = max(one.last_us if one.last_us is not None else boundary_us for one in files)
    if last_us < boundary_us or boundary_us <= first_us:
        return [rows]
    boundary = sf.timestamp_micros(sf.lit(boundary_us))
    return [rows.where(sf.col(column) < boundary), rows.where(sf.col(column) >= boundary)]


def pipeline_store(
    out: str, pipeline: str, options: TableOptions | None = None, *, old_tables: bool = False
) -> TableStore:
    """The tables of a pipeline, at ``out/<pipeline>/<table>``."""
    root = f"{out.rstrip('/')}/{pipeline}"
    return TableStore(root, options or TableOptions(), pipeline, old_tables=old_tables)


def table_files(out: str | Path, pipeline: str, table: str, options: TableOptions | None = None) -> list[Path]:
    """The Parquet files of the current version of a table in a local directory, for readers without Spark.

    A roll-up may have several rows for a window and key until it is compacted, which a run with ``--once`` does at its
    end.
    """
    if not has_tables(out, pipeline):
        return []
    opened = pipeline_store(str(out), pipeline, options).open_named(table, table)
    if not opened.exists():
        return []
    return [path for one in opened.files() if (path := local_path(opened.uri(one))) is not None]


def has_tables(out: str | Path, pipeline: str) -> bool:
    """Whether a local directory has tables of a pipeline."""
    root = Path(out) / pipeline
    return (root / CATALOG).exists() or any(root.glob(f"*/{DELTA_LOG}"))


def identifier(name: str) -> str:
    """A name that every catalog takes: letters, digits and underscores.

    >>> identifier("quota-advice")
    'quota_advice'
    """
    return "".join(one if one.isalnum() else "_" for one in name)


def _hour(time_us: int) -> int:
    return time_us // HOUR_US * HOUR_US


def _parallelism(spark: SparkSession) -> int:
    return max(parallelism(spark) // 2, 1)
