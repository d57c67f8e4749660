"""Writes the rows of a DataFrame as Parquet files, from Spark's workers, and describes each file.

Each task writes its rows to files with random names and reports them to the driver, which adds them to the table in
one commit. A task that fails or runs twice leaves files that no commit names; the table's clean-up removes them. This
needs no staging directory, no renaming and no listing, which object stores do slowly or not at all.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines.table_storage import TableStorage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

BATCH_FILE: Final = "batch"
"""Name prefix of the files of a batch; the batch's number comes after it."""
MERGED: Final = "merged"
"""Name prefix of the files of a compaction."""
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
COMPRESSION: Final = "zstd"
_REPORT: Final = "path string, size bigint, rows bigint, partition string, stats string"
_ROW_GROUP_ROWS: Final = 131_072
_ROW_GROUP_BYTES: Final = 64 << 20
_LONGEST_STATISTIC: Final = 64


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table."""

    path: str
    """Relative to the table's location."""
    size: int
    rows: int
    partition: dict[str, str | None]
    stats: str
    """Row count, and bounds and null counts of columns, as JSON in Delta's form."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the rows of a table are laid out in files."""

    schema: StructType
    """All columns, those of ``partition_by`` included."""
    partition_by: tuple[str, ...] = ()
    """Columns in the name of the directory (``date=2026-11-15``), not in the file."""
    order_by: str | None = None
    """Sort column within a row group; its bounds let readers skip row groups."""

    def file_schema(self) -> pa.Schema:
        import pyarrow as pa  # an extra

        return pa.schema([one for one in self.table_schema() if one.name not in self.partition_by])

    def table_schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema  # an extra

        return to_arrow_schema(self.schema, timezone="UTC")


def write_files(frame: DataFrame, layout: FileLayout, storage: TableStorage, prefix: str) -> list[DataFile]:
    """Runs the frame, and writes a file per task and partition value. A commit has to add them to the table."""
    from pyspark.sql import functions as sf  # an extra

    present = set(frame.columns)
    columns = [
        sf.col(f"`{one.name}`") if one.name in present else sf.lit(None).cast(one.dataType).alias(one.name)
        for one in layout.schema.fields
    ]
    write = file_writer(layout, storage, prefix)
    rows = frame.select(*columns).mapInArrow(write, _REPORT).collect()
    return [DataFile(row["path"], row["size"], row["rows"], json.loads(row["partition"]), row["stats"]) for row in rows]


def file_writer(
    layout: FileLayout, storage: TableStorage, prefix: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function for ``mapInArrow``: it writes rows, and yields a row for each file."""
    schema, partition_by, order_by = layout.file_schema(), layout.partition_by, layout.order_by

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # runs on Spark's workers

        files: dict[tuple[str | None, ...], _FileWriter] = {}
        for batch in batches:
            for values, part in _split(pa.Table.from_batches([batch]), partition_by):
                if values not in files:
                    partition = dict(zip(partition_by, values, strict=True))
                    files[values] = _FileWriter(storage, prefix, partition, schema, order_by)
                files[values].add(part)
        reports = [one.close() for one in files.values()]
        if reports:
            yield pa.RecordBatch.from_pylist(reports)

    return write


def _split(table: pa.Table, partition_by: tuple[str, ...]) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yields the rows of each partition value."""
    import pyarrow.compute as pc  # runs on Spark's workers

    if not table.num_rows:
        return
    if not partition_by:
        yield (), table
        return
    for row in table.select(partition_by).group_by(list(partition_by)).aggregate([]).to_pylist():
        mask = None
        for name in partition_by:
            column = table.column(name)
            same = pc.is_null(column) if row[name] is None else pc.fill_null(pc.equal(column, row[name]), False)
            mask = same if mask is None else pc.and_(mask, same)
        values = tuple(None if row[name] is None else str(row[name]) for name in partition_by)
        yield values, table.filter(mask).drop_columns(list(partition_by))


class _FileWriter:
    """Writes one Parquet file. Collects rows into row groups of a useful size."""

    def __init__(
        self,
        storage: TableStorage,
        prefix: str,
        partition: Mapping[str, str | None],
        schema: pa.Schema,
        order_by: str | None,
    ) -> None:
        directory = "".join(
            f"{name}={NULL_PARTITION if value is None else value}/" for name, value in partition.items()
        )
        self._storage = storage
        self._prefix = f"{directory}{prefix}"
        self._partition = dict(partition)
        self._schema = schema
        self._order_by = order_by
        self._waiting: list[pa.Table] = []
        self._open(True)

    def _open(self, statistics: bool | list[str]) -> None:
        """Begins a file. ``statistics``: the columns that have bounds in it, or all."""
        import pyarrow.parquet as pq  # runs on Spark's workers

        self._path = f"{self._prefix}-{uuid.uuid4()}.parquet"
        self._stream = self._storage.open_output(self._path)
        self._metadata: list[Any] = []
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema,
            compression=COMPRESSION,
            write_statistics=statistics,
            metadata_collector=self._metadata,
        )

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        if (
            sum(one.num_rows for one in self._waiting) >= _ROW_GROUP_ROWS
            or sum(one.nbytes for one in self._waiting) >= _ROW_GROUP_BYTES
        ):
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa  # runs on Spark's workers

        if self._waiting:
            # Spark labels timestamps with the session's zone, and may use other string types.
            rows = pa.concat_tables(self._waiting).cast(self._schema)
            if self._order_by is not None:
                rows = rows.sort_by(self._order_by)
            self._writer.write_table(rows)
            self._waiting.clear()

    def close(self) -> dict[str, Any]:
        """Closes the file; returns the row that describes it to the driver."""
        self._flush()
        metadata, size = self._finish()
        if columns := columns_without_bounds(metadata):
            metadata, size = self._write_again(columns)
        return {
            "path": self._path,
            "size": size,
            "rows": metadata.num_rows,
            "partition": json.dumps(self._partition),
            "stats": delta_statistics(metadata, self._schema),
        }

    def _finish(self) -> tuple[Any, int]:
        """Ends the file; returns its footer and its size."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return self._metadata[0], size

    def _write_again(self, without_bounds: set[str]) -> tuple[Any, int]:
        """Writes another file with the same rows. No commit names the first one, so the table's clean-up removes it."""
        import pyarrow.parquet as pq  # runs on Spark's workers

        with self._storage.file_system().open_input_file(self._path) as stream:
            first = pq.ParquetFile(stream)
            names = [first.metadata.schema.column(number).path for number in range(first.metadata.num_columns)]
            self._open([name for name in names if name not in without_bounds])
            for group in range(first.num_row_groups):
                self._writer.write_table(first.read_row_group(group).cast(self._schema))
        return self._finish()


def columns_without_bounds(metadata: Any) -> set[str]:
    """Returns the columns whose bounds no Python program can read: dates outside the years 1 to 9999.

    Databases have such dates: Debezium writes Postgres's ``infinity`` as one. pyiceberg reads the bounds of all columns
    when a file is added to a table, and fails if it cannot.
    """
    found: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            if column.statistics is not None and column.statistics.has_min_max:
                try:
                    _ = column.statistics.min, column.statistics.max
                except (OverflowError, ValueError):
                    found.add(column.path_in_schema)
    return found


def delta_statistics(metadata: Any, schema: pa.Schema) -> str:
    """Returns the column statistics of a Parquet file's footer, in Delta's form.

    Floating-point columns are left out: Parquet's bounds ignore NaN, which engines order differently.
    """
    import pyarrow as pa  # runs on Spark's workers

    kinds = pa.types
    bounded = {
        one.name
        for one in schema
        if kinds.is_integer(one.type)
        or kinds.is_timestamp(one.type)
        or kinds.is_date(one.type)
        or kinds.is_string(one.type)
    }
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name, statistics = column.path_in_schema, column.statistics
            if name not in bounded:
                continue
            if statistics is None or not statistics.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            if statistics.has_min_max:
                least[name] = min(statistics.min, least.get(name, statistics.min))
                greatest[name] = max(statistics.max, greatest.get(name, statistics.max))
            elif statistics.null_count < column.num_values:
                unknown.add(name)
    for name, value in (*least.items(), *greatest.items()):
        if isinstance(value, str) and len(value) > _LONGEST_STATISTIC:
            unknown.add(name)
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _json(value) for name, value in least.items() if name not in unknown},
            "maxValues": {name: _json(value) for name, value in greatest.items() if name not in unknown},
            "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
        }
    )


def _json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        # Without a zone it is a local time of nobody in particular: astimezone() would shift it by this machine's zone.
        zone = "" if value.tzinfo is None else "Z"
        moment = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        # strftime("%Y") does not pad years before 1000, and such a bound hides the file from readers.
        return f"{moment.isoformat(timespec='microseconds')}{zone}"
    return value.isoformat() if isinstance(value, dt.date) else value


def read_files(
    names: Iterable[str], storage: TableStorage, schema: pa.Schema, file_column: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of Parquet files, with exactly these columns and types.

    Columns that a file does not have are null. ``file_column``: a further column with the name of the file.
    """
    import pyarrow as pa  # runs on Spark's workers
    import pyarrow.dataset as ds  # runs on Spark's workers

    files = storage.file_system()
    for name in names:
        for batch in ds.dataset(name, schema=schema, filesystem=files, format="parquet").to_batches():
            if file_column is None:
                yield batch
            else:
                yield batch.append_column(file_column, pa.repeat(name.rpartition("/")[2], batch.num_rows))
