"""Tables of release 0.1, Parquet files with a manifest, become Delta or Iceberg tables with the same rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable

from barnabas.cli.main import run
from barnabas.report.table_reader import ReportError, TableReader
from barnabas.spark.pipelines import convert as conversion
from barnabas.spark.pipelines.config import DELTA, ICEBERG, PipelineConfig, TableOptions
from barnabas.spark.pipelines.convert import OldManifest, convert
from barnabas.spark.pipelines.lake import LakeConfig, lake_writer
from barnabas.spark.pipelines.quota_advice import LIMITS
from barnabas.spark.pipelines.requests import COUNTS_1M, REQUESTS
from barnabas.spark.pipelines.runner import read_table, replace_tables
from barnabas.spark.pipelines.stream import BatchWriter
from barnabas.spark.pipelines.table_formats import DeltaTableFormat
from barnabas.spark.pipelines.tables import (
    BatchState,
    ForeignTablesError,
    OldTablesError,
    Table,
    TableStore,
    pipeline_store,
)
from spark.pipeline_records import START_US, raw_frame
from spark.pipeline_workload import SECONDS_PER_PART, comparable_rows, request_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S10")

SENT = SECONDS_PER_PART * 10 * 4
QUERY = "q1"


class Crash(BaseException):
    """The process is gone."""


def old_pipeline(root: Path, frames: dict[Table, list[DataFrame]], query_id: str, state: BatchState) -> None:
    """The tables of a pipeline as release 0.1 left them, with a manifest and a segment that do not count any more."""
    listed: dict[str, list[dict[str, Any]]] = {}
    for table, parts in frames.items():
        for number, frame in enumerate(parts, 1):
            path = f"{table.name}/v{number:09d}"
            # The times of release 0.1 are in Spark's old format of 96 bits.
            frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
            frame.write.parquet(str(root / path))
            frame.sparkSession.conf.unset("spark.sql.parquet.outputTimestampType")
            listed.setdefault(table.name, []).append(
                {"path": path, "first_us": 0, "last_us": 0, "compacted": number > 1}
            )
    (root / "_manifests").mkdir(parents=True)
    for version, tables in ((1, {}), (2, listed)):
        document = {
            "format": 1,
            "version": version,
            "query_id": query_id,
            "batch_id": state.batch_id,
            "newest_us": dict(state.newest_us),
            "tables": tables,
        }
        (root / "_manifests" / f"{version:09d}.json").write_text(json.dumps(document))
    left = root / "counts_1m" / "v000000009"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"of a batch that was never finished")


@pytest.fixture(scope="module")
def batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Table, Any], BatchState]:
    """The rows of two batches of ``requests``, and the state after them."""
    out = tmp_path_factory.mktemp("new")
    config = PipelineConfig(out=str(out), sketch_k=200)
    for part in range(2):
        BatchWriter(REQUESTS, config).write(raw_frame(spark, request_log(START_US, part)), QUERY, part)
    store = pipeline_store(str(out), "requests")
    frames = {table: [store.read(spark, table, merged=False)] for table in REQUESTS.all_tables}
    return frames, store.state()


@pytest.fixture
def old(spark: SparkSession, tmp_path: Path, batches: tuple[dict[Table, Any], BatchState]) -> Path:
    """A directory of release 0.1 with tables of ``requests``."""
    frames, state = batches
    old_pipeline(tmp_path / "requests", frames, QUERY, state)
    return tmp_path


def rows(spark: SparkSession, out: Path, options: TableOptions | None = None) -> dict[str, list[str]]:
    store = pipeline_store(str(out), "requests", options)
    return {one.name: comparable_rows(store.read(spark, one, merged=False)) for one in REQUESTS.all_tables}


def go_on(spark: SparkSession, out: Path, options: TableOptions) -> float:
    """The pipeline runs again: the last batch of before is known, the next one is added. What it has counted then."""
    config = PipelineConfig(out=str(out), sketch_k=200, tables=options)
    for part in (1, 2):
        BatchWriter(REQUESTS, config).write(raw_frame(spark, request_log(START_US, part)), QUERY, part)
    found = pipeline_store(str(out), "requests", options).read(spark, COUNTS_1M)
    return float(found.agg({"requests": "sum"}).collect()[0][0])


@pytest.mark.parametrize("table_format", [DELTA, pytest.param(ICEBERG, marks=pytest.mark.nightly)])
def test_rows_and_state_are_the_same(
    spark: SparkSession, old: Path, batches: tuple[dict[Table, Any], BatchState], table_format: str
) -> None:
    frames, state = batches
    options = TableOptions(table_format)
    with pytest.raises(OldTablesError, match="barnabas pipeline convert"):
        BatchWriter(REQUESTS, PipelineConfig(out=str(old))).write(raw_frame(spark, []), QUERY, 2)
    with pytest.raises(ReportError, match="barnabas pipeline convert"):
        TableReader(old)
    counted = convert(spark, old, options)
    assert counted == {f"requests/{one.name}": frame.count() for one, (frame,) in frames.items()}
    assert rows(spark, old) == {one.name: comparable_rows(frame) for one, (frame,) in frames.items()}
    assert pipeline_store(str(old), "requests").state() == state
    assert not [*old.glob("requests/_manifests*"), *old.glob("requests/*/v0*")]
    assert convert(spark, old, options) == {}
    assert go_on(spark, old, options) == 3 * SENT
    assert TableReader(old).count("requests", "dead_letters") == 3


POINTS: dict[str, tuple[Any, str, int]] = {
    "before the second table": (DeltaTableFormat, "replace", 2),
    "after all tables": (TableStore, "set_state", 1),
    "after the state": (conversion, "old_segments", 1),
    "while old files are deleted": (shutil, "rmtree", 2),
}


@pytest.mark.parametrize(
    "point",
    [pytest.param(one, marks=[] if one == "before the second table" else [pytest.mark.nightly]) for one in POINTS],
)
def test_a_conversion_that_was_interrupted_runs_again(
    spark: SparkSession,
    old: Path,
    batches: tuple[dict[Table, Any], BatchState],
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, at_call = POINTS[point]
    original = getattr(owner, name)
    calls = 0

    def crash(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise Crash
        return original(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(Crash):
            convert(spark, old, TableOptions())
    if point != "while old files are deleted":
        assert (old / "requests" / "counts_1m" / "v000000001").is_dir(), "old files stay until all is committed"
    convert(spark, old, TableOptions())
    frames, _ = batches
    assert rows(spark, old) == {one.name: comparable_rows(frame) for one, (frame,) in frames.items()}
    assert not [*old.glob("requests/_manifests*"), *old.glob("requests/*/v0*")]
    assert go_on(spark, old, TableOptions()) == 3 * SENT


def test_tables_of_jobs_are_converted_too(spark: SparkSession, tmp_path: Path) -> None:
    """They belong to no query."""
    schema = LIMITS.spark_schema()
    values = [tuple("reports" if one.name == "client_id" else None for one in schema.fields)]
    frame = spark.createDataFrame(values, schema)
    old_pipeline(tmp_path / "quota-advice", {LIMITS: [frame]}, "", BatchState())
    assert convert(spark, tmp_path, TableOptions()) == {"quota-advice/limits": 1}
    assert read_table(spark, str(tmp_path), "quota-advice", "limits").collect()[0]["client_id"] == "reports"
    replace_tables(str(tmp_path), "quota-advice", {LIMITS: frame.limit(0)})
    assert DeltaTable(tmp_path / "quota-advice" / "limits").to_pyarrow_table().num_rows == 0


def test_a_parquet_directory_of_the_lake_is_converted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LakeConfig(PipelineConfig(str(tmp_path)), ("orders",))
    raw = raw_frame(spark, request_log(START_US, 0))
    columns = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    rows = raw.selectExpr(*columns, "to_date(timestamp) as date")
    root = Path(config.location)
    rows.write.partitionBy("date").parquet(str(root))
    raw.limit(1).selectExpr(*columns[:4], "'why' as reason", "key", "value").write.parquet(str(root / "_dead_letters"))
    (root / "_barnabas").mkdir()
    (root / "_barnabas" / "batch.json").write_text(json.dumps({"query_id": QUERY, "batch_id": 4}))
    with pytest.raises(OldTablesError, match="barnabas pipeline convert"):
        lake_writer(config).write(raw, QUERY, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=Crash))
        with pytest.raises(Crash):
            convert(spark, tmp_path, TableOptions())
    with pytest.raises(OldTablesError, match="barnabas pipeline convert"):
        lake_writer(config).write(raw, QUERY, 5)
    assert convert(spark, tmp_path, TableOptions()) == {"lake/orders": SENT + 1}
    assert convert(spark, tmp_path, TableOptions()) == {}
    assert DeltaTable(root / "_dead_letters").to_pyarrow_table().num_rows == 1
    for batch in (4, 5):
        lake_writer(config).write(raw, QUERY, batch)
    found = DeltaTable(root).to_pyarrow_table()
    assert found.num_rows == 2 * (SENT + 1)
    assert set(found.column_names) == {*columns, "date"}


def test_what_cannot_be_converted_is_left_alone(spark: SparkSession, old: Path) -> None:
    manifest = old / "requests" / "_manifests" / "000000002.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(OldTablesError, match="has format 2, expected 1"):
        OldManifest.read(old / "requests")
    manifest.write_text(text)
    pipeline_store(str(old), "requests", old_tables=True).set_state(BatchState("other", 7))
    with pytest.raises(ForeignTablesError, match="both old tables and newer ones"):
        convert(spark, old, TableOptions())
    assert manifest.exists()


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "convert", str(tmp_path / "missing")]) == 2
    assert "there is no directory" in capsys.readouterr().err
