"""Converts tables of release 0.1, Parquet files with a manifest, to Delta or Iceberg tables. It runs once.

A pipeline's directory had this layout; the manifest with the highest number listed the current segments::

    requests/_manifests/000000042.json
    requests/latency_1m/v000000042/part-00000.parquet

The conversion copies the rows of each table to a table of the new format in the same directory, as the batch that the
manifest names. A table that holds the batch already is skipped, so a conversion that was interrupted can run again.
The old files are deleted only after the last table is committed and the pipeline's state is written. First the
directory of manifests is renamed: from then on the pipeline counts as converted, and another run removes the rest.

``lake`` wrote plain Parquet directories by default. Their conversion first writes a list of the old files. While the
list exists, the conversion is unfinished.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines import lake
from barnabas.spark.pipelines.config import PipelineConfig, TableOptions
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS
from barnabas.spark.pipelines.runner import TABLES
from barnabas.spark.pipelines.table_storage import TableStorage
from barnabas.spark.pipelines.tables import (
    CATALOG,
    CONVERTING,
    DELTA_LOG,
    OLD_MANIFESTS,
    BatchState,
    ForeignTablesError,
    OldTablesError,
    Table,
    TableStore,
    pipeline_store,
)
from barnabas.spark.pipelines.topic_tables import DEAD_LETTERS_DIRECTORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
NO_QUERY: Final = "barnabas-convert"
"""Query id of tables that no stream has written, such as those of quota-advice."""
CONVERTED: Final = f"{OLD_MANIFESTS}_converted"
_SEGMENT: Final = re.compile(r"v\d{9}(-[a-z]+)?")


@dataclass(frozen=True, slots=True)
class OldManifest:
    """The newest manifest of a pipeline."""

    version: int
    query_id: str
    batch_id: int
    segments: Mapping[str, tuple[str, ...]]
    """Directories of the current segments, by table."""
    newest_us: Mapping[str, int]

    @classmethod
    def read(cls, root: Path) -> OldManifest | None:
        """Returns the manifest of a pipeline's directory; None if there is none."""
        files = sorted((root / OLD_MANIFESTS).glob("*.json"))
        if not files:
            return None
        document: dict[str, Any] = json.loads(files[-1].read_bytes())
        if document["format"] != FORMAT:
            raise OldTablesError(f"{files[-1]} has format {document['format']}, expected {FORMAT}")
        segments = {name: tuple(one["path"] for one in listed) for name, listed in document["tables"].items()}
        return cls(document["version"], document["query_id"], document["batch_id"], segments, document["newest_us"])


def convert(
    spark: SparkSession, out: str | Path, options: TableOptions, note: Callable[[str, str], None] = lambda *_: None
) -> dict[str, int]:
    """Converts all pipelines below a directory; returns the rows of each table by ``pipeline/table``."""
    found: dict[str, int] = {}
    for pipeline, tables in TABLES.items():
        root = Path(out) / pipeline
        manifest = OldManifest.read(root)
        if manifest is not None:
            note(pipeline, "converting")
            counted = _convert_pipeline(spark, root, pipeline, manifest, options)
            found.update({f"{pipeline}/{name}": rows for name, rows in counted.items()})
            (root / OLD_MANIFESTS).rename(root / CONVERTED)
        if (root / CONVERTED).is_dir():
            for directory in old_segments(root, tables):
                shutil.rmtree(directory)
            shutil.rmtree(root / CONVERTED)
    for root in sorted((Path(out) / lake.NAME).glob("*/")):
        listed = _old_lake_files(root)
        if listed:
            note(f"{lake.NAME}/{root.name}", "converting")
            found[f"{lake.NAME}/{root.name}"] = _convert_lake_table(spark, root, listed, options)
    return found


def _old_lake_files(root: Path) -> list[str]:
    """Returns the Parquet files of a ``lake`` table that has no commits, or whose conversion has begun."""
    if (root / CONVERTING).exists():
        return list(json.loads((root / CONVERTING).read_bytes()))
    if (root / DELTA_LOG).exists() or (root / CATALOG).exists():
        return []
    found = (*root.glob("date=*/*.parquet"), *root.glob(f"{DEAD_LETTERS_DIRECTORY}/*.parquet"))
    return sorted(str(one.relative_to(root)) for one in found)


def _convert_lake_table(spark: SparkSession, root: Path, listed: list[str], options: TableOptions) -> int:
    """Converts a table of ``lake``; returns the number of its rows."""
    config = lake.LakeConfig(PipelineConfig(str(root.parents[1]), tables=options), (root.name,))
    store = TableStore(config.location, options, config.namespace, old_tables=True)
    TableStorage(store.root, store.table_format).replace(CONVERTING, json.dumps(listed).encode())
    state = store.state()
    dead_letters = [one for one in listed if one.startswith(DEAD_LETTERS_DIRECTORY)]
    rows = [one for one in listed if one not in dead_letters]
    counted = 0
    for names, table in ((rows, None), (dead_letters, config.dead_letters_table())):
        left = [str(root / one) for one in names if (root / one).exists()]
        if not left:
            continue
        reader = spark.read.option("basePath", str(root))
        if table is not None:
            reader = reader.schema(table.spark_schema())
        frame = reader.parquet(*left)
        if table is None:
            table = config.rows_table(frame.schema)  # noqa: PLW2901
            counted = frame.count()
        store.create((table,))
        store.add(table, frame, state.query_id or NO_QUERY, max(state.batch_id, 0))
    for name in listed:
        (root / name).unlink(missing_ok=True)
    (root / CONVERTING).unlink()
    return counted


def _convert_pipeline(
    spark: SparkSession, root: Path, pipeline: str, manifest: OldManifest, options: TableOptions
) -> dict[str, int]:
    store = pipeline_store(str(root.parent), pipeline, options, old_tables=True)
    state = store.state()
    query_id = manifest.query_id or NO_QUERY
    batch_id = manifest.batch_id if manifest.query_id else manifest.version
    if state.query_id not in ("", query_id) or state.batch_id > batch_id:
        raise ForeignTablesError(f"{root} has both old tables and newer ones of query {state.query_id}")
    tables = {one.name: one for one in TABLES[pipeline]}
    store.create(tables.values())
    counted: dict[str, int] = {}
    for name, table in tables.items():
        frame = old_rows(spark, root, table, manifest)
        store.add(table, frame, query_id, batch_id)
        counted[name] = _count(spark, store, table)
        expected = frame.count()
        if counted[name] != expected:
            raise OldTablesError(f"{root / name} has {counted[name]} rows after the conversion, expected {expected}")
    if manifest.query_id:
        dead_letters = counted.get(DEAD_LETTERS.name, 0)
        store.set_state(BatchState(manifest.query_id, manifest.batch_id, manifest.newest_us, dead_letters))
    return counted


def old_rows(spark: SparkSession, root: Path, table: Table, manifest: OldManifest) -> DataFrame:
    """Returns the rows of a table's segments."""
    segments = manifest.segments.get(table.name, ())
    if not segments:
        return spark.createDataFrame([], table.spark_schema())
    return spark.read.schema(table.spark_schema()).parquet(*(str(root / one) for one in segments))


def _count(spark: SparkSession, store: TableStore, table: Table) -> int:
    return store.read(spark, table, merged=False).count()


def old_segments(root: Path, tables: tuple[Table, ...]) -> Iterator[Path]:
    """Yields the directories of old segments."""
    for table in tables:
        directory = root / table.name
        if directory.is_dir():
            yield from (one for one in directory.iterdir() if _SEGMENT.fullmatch(one.name) and one.is_dir())
