"""The tables of a pipeline: directories of Parquet files, and the manifest that says which of them count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.file_system import FileSystem
from barnabas.spark.pipelines.manifest import DIRECTORY, Manifest, ManifestStore, Segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HOUR_US: Final = 3_600_000_000
Merge = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns, and how rows that say something about the same thing become one."""

    name: str
    schema: str
    """Columns and types as SQL has them; tables are written and read with exactly these."""
    time_column: str
    merge: Merge | None = None
    """For roll-ups. Each batch adds rows for the windows that it has records of; the merge makes one row of all rows of
    a window. None: rows are events, and stay as they are."""


class TableStore:
    """Reads and writes the tables of one pipeline below ``out/<pipeline>``."""

    def __init__(self, spark: SparkSession, out: str, pipeline: str) -> None:
        self._spark = spark
        self.files = FileSystem(spark, f"{out.rstrip('/')}/{pipeline}")
        self.manifests = ManifestStore(self.files)

    def write(
        self, table: Table, frame: DataFrame, manifest: Manifest, span: tuple[int, int], part: str = ""
    ) -> Segment:
        """Writes rows as a segment of the version after this one. They count when the manifest says so."""
        path = f"{table.name}/v{manifest.version + 1:09d}{part}"
        columns = [field.name for field in self._schema(table).fields]
        frame.select(*columns).write.mode("overwrite").parquet(f"{self.files.root}/{path}")
        return Segment(path, *span)

    def read(self, table: Table, manifest: Manifest | None = None, merged: bool = True) -> DataFrame:
        """All rows of a table; of a roll-up one for each window and key, unless told otherwise."""
        manifest = manifest or self.manifests.latest()
        frame = self._read(table, manifest.tables.get(table.name, ()))
        return table.merge(frame) if table.merge is not None and merged else frame

    def _read(self, table: Table, segments: tuple[Segment, ...]) -> DataFrame:
        schema = self._schema(table)
        if not segments:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(f"{self.files.root}/{one.path}" for one in segments))

    def _schema(self, table: Table) -> StructType:
        from pyspark.sql.types import StructType  # noqa: PLC0415

        schema = StructType.fromDDL(table.schema)
        assert isinstance(schema, StructType)
        return schema

    def compact(self, tables: tuple[Table, ...], lateness_us: int) -> Manifest:
        """Merges what the last batches have written, as a version of its own.

        Of a roll-up the hours that can still change are kept in a segment apart, so that what is closed is never read
        and written again: a window is closed when the newest records of all partitions are so much later that nothing
        for it can come but what is too late.
        """
        manifest = self.manifests.latest()
        closed_us = _hour(min(manifest.newest_us.values(), default=0) - lateness_us)
        changed: dict[str, tuple[Segment, ...]] = dict(manifest.tables)
        for table in tables:
            segments = manifest.tables.get(table.name, ())
            fresh = [one for one in segments if not one.compacted]
            if not fresh:
                continue
            from_us = _hour(min(one.first_us for one in fresh))
            again = [one for one in segments if one.compacted and table.merge is not None and one.last_us >= from_us]
            if len(fresh) + len(again) < 2 and table.merge is None:
                continue
            taken = (*again, *fresh)
            span = (min(one.first_us for one in taken), max(one.last_us for one in taken))
            made = self._compacted(table, taken, manifest, span, closed_us)
            changed[table.name] = (*(one for one in segments if one not in taken), *made)
        if changed == dict(manifest.tables):
            return manifest
        after = manifest.with_tables(changed)
        self.manifests.commit(after)
        return after

    def _compacted(
        self, table: Table, segments: tuple[Segment, ...], manifest: Manifest, span: tuple[int, int], closed_us: int
    ) -> list[Segment]:
        frame = self._read(table, segments)
        files = max(self._spark.sparkContext.defaultParallelism // 2, 1)
        if table.merge is None:
            return [replace(self.write(table, frame.coalesce(files), manifest, span, "-all"), compacted=True)]
        frame = table.merge(frame)
        first_us, last_us = span
        if last_us < closed_us or closed_us <= first_us:
            return [replace(self.write(table, frame.coalesce(files), manifest, span, "-all"), compacted=True)]
        from pyspark.sql import functions as sf  # noqa: PLC0415

        boundary = sf.timestamp_micros(sf.lit(closed_us))
        old = frame.where(sf.col(table.time_column) < boundary)
        new = frame.where(sf.col(table.time_column) >= boundary)
        return [
            replace(self.write(table, part.coalesce(files), manifest, part_span, name), compacted=True)
            for part, part_span, name in (
                (old, (first_us, closed_us - 1), "-closed"),
                (new, (closed_us, last_us), "-open"),
            )
        ]


def table_files(out: str | Path, pipeline: str, table: str) -> list[Path]:
    """For readers without Spark: the Parquet files that make up a table, in a local directory.

    A roll-up may have several rows for a window and key until it is compacted, which a run with ``--once`` does at its
    end.
    """
    root = Path(out) / pipeline
    versions = sorted((root / DIRECTORY).glob("*.json"))
    if not versions:
        return []
    manifest = Manifest.from_json(versions[-1].read_bytes())
    segments = manifest.tables.get(table, ())
    return [file for segment in segments for file in sorted((root / segment.path).glob("*.parquet"))]


def segments_with(manifest: Manifest, added: Mapping[str, Segment]) -> dict[str, tuple[Segment, ...]]:
    """The segments of all tables with these besides."""
    tables = dict(manifest.tables)
    for name, segment in added.items():
        tables[name] = (*tables.get(name, ()), segment)
    return tables


def _hour(time_us: int) -> int:
    return time_us // HOUR_US * HOUR_US
