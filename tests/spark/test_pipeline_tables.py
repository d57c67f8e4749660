"""Each record counts once in each table, whatever happens, and records that cannot be used are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark.pipelines import requests
from barnabas.spark.pipelines.config import DELTA, ICEBERG, TABLE_FORMATS, PipelineConfig, TableOptions
from barnabas.spark.pipelines.dead_letter import DEAD_LETTERS
from barnabas.spark.pipelines.requests import LATENCY_1M, REQUESTS
from barnabas.spark.pipelines.stream import BatchWriter, compact
from barnabas.spark.pipelines.table_formats import DeltaTableFormat, IcebergTableFormat
from barnabas.spark.pipelines.tables import ForeignTablesError, Table, TableStore, pipeline_store, table_files
from spark.pipeline_records import SECOND, START_US, raw_frame, record, request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S06")

QUERY = "q1"


class Crash(BaseException):
    """The process is gone."""


class Tables:
    """The tables of ``requests``, written batch by batch."""

    def __init__(self, spark: SparkSession, out: Path, table_format: str = DELTA) -> None:
        self.config = PipelineConfig(
            out=str(out),
            compact_every=1_000,
            lateness_ms=60_000,
            sketch_k=200,
            keep_hours=0,
            tables=TableOptions(table_format),
        )
        self._spark = spark

    @property
    def store(self) -> TableStore:
        return pipeline_store(self.config.out, REQUESTS.name)

    def write(self, batch_id: int, rows: list[tuple[Any, ...]], query: str = QUERY) -> None:
        """As a process does that has just been started."""
        BatchWriter(REQUESTS, self.config).write(raw_frame(self._spark, rows), query, batch_id)

    def compact(self) -> None:
        compact(self._spark, REQUESTS, self.config)

    def read(self, table: Table, merged: bool = True) -> DataFrame:
        return self.store.read(self._spark, table, merged)

    def requests(self) -> int:
        """How many requests the table has counted, by Arrow."""
        return sum(arrow_rows(self.config.out, "counts_1m").column("requests").to_pylist())

    def dead_letters(self) -> list[Any]:
        return self.read(DEAD_LETTERS).orderBy("offset").collect()


def arrow_rows(out: str, table: str) -> pa.Table:
    """The rows of a table, by its format's own reader."""
    place = f"{out}/requests"
    if Path(place, "catalog.db").exists():
        with SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}") as catalog:
            return catalog.load_table(f"requests.{table}").scan().to_arrow()
    return DeltaTable(f"{place}/{table}").to_pyarrow_table()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path)


@pytest.fixture(params=TABLE_FORMATS)
def any_tables(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Tables:
    return Tables(spark, tmp_path, request.param)


def some(first: int, count: int, start_us: int = START_US) -> list[tuple[Any, ...]]:
    return [request(offset, start_us + offset * SECOND) for offset in range(first, first + count)]


FORMATS = {DELTA: DeltaTableFormat, ICEBERG: IcebergTableFormat}
FILES, COMMIT, BETWEEN, STATE = "after the files", "after a commit", "between two commits", "after the state"


def crash_at(patch: pytest.MonkeyPatch, table_format: str, point: str) -> None:
    """Ends the process at a point of the next batch."""
    owner: Any = TableStore if point == STATE else FORMATS[table_format]
    name = "set_state" if point == STATE else "replace"
    original = getattr(owner, name)
    calls = {FILES: 0, COMMIT: 1, BETWEEN: 2, STATE: 1}[point]

    def crashing(self: Any, *arguments: Any, **settings: Any) -> None:
        nonlocal calls
        if calls:
            calls -= 1
            original(self, *arguments, **settings)
        if not calls:
            raise Crash

    patch.setattr(owner, name, crashing)


SHORT = {(DELTA, BETWEEN), (ICEBERG, COMMIT)}
"""The others take as long, and are for the night."""


@pytest.mark.mechanism("S10")
@pytest.mark.parametrize(
    ("table_format", "point"),
    [
        pytest.param(one, point, marks=[] if (one, point) in SHORT else [pytest.mark.nightly])
        for one in TABLE_FORMATS
        for point in (FILES, COMMIT, BETWEEN, STATE)
    ],
)
def test_a_batch_that_runs_again_counts_once(
    spark: SparkSession, tmp_path: Path, table_format: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, tmp_path, table_format)
    tables.write(0, some(0, 3))
    with monkeypatch.context() as patch:
        crash_at(patch, tables.store.table_format, point)
        with pytest.raises(Crash):
            tables.write(1, some(3, 4))
    for _ in range(2):
        tables.write(1, some(3, 4))
        assert tables.requests() == 7
        counts = arrow_rows(tables.config.out, "latency_1h")
        totals = [row["count"] for row in counts.to_pylist() if row["part"] == "total"]
        assert sum(totals) == 7
    tables.write(2, some(7, 2))
    assert tables.requests() == 9


def test_another_checkpoint_is_refused(tables: Tables) -> None:
    tables.write(0, some(0, 3))
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        tables.write(0, some(0, 3), query="q2")
    assert tables.requests() == 3


def test_what_cannot_be_used_is_kept_with_the_reason(tables: Tables) -> None:
    topic = "__request_log"
    good = some(0, 2)
    document = json.loads(good[0][1])
    wrong = {
        10: (b"\xff\x00 no JSON", "not JSON"),
        11: (b'{"schema_version": "one"}', "not JSON, or not of the expected types"),
        12: (json.dumps({**document, "schema_version": 2}).encode(), "schema_version is 2"),
        13: (json.dumps({**document, "api": None}).encode(), "api is missing"),
        14: (json.dumps({**document, "sample_rate": 0.0}).encode(), "sample_rate is not between"),
        15: (None, "no value"),
    }
    elsewhere = record("mirrored", 16, START_US, good[0][1])
    wrongs = [record(topic, offset, START_US, value) for offset, (value, _) in wrong.items()]
    tables.write(0, [*good, *wrongs, elsewhere])
    *found, other = tables.dead_letters()
    assert (other["topic"], other["reason"]) == ("mirrored", f"of topic mirrored, expected {topic}")
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [(topic, 0, one) for one in wrong]
    for row in found:
        value, reason = wrong[row["offset"]]
        assert row["reason"].startswith(reason)
        assert (None if row["value"] is None else bytes(row["value"])) == value, "it can be read again"
    assert tables.requests() == 2


def test_what_is_too_late_is_kept_too(tables: Tables) -> None:
    tables.write(0, some(0, 2, START_US + 300 * SECOND))
    just_in_time = request(2, START_US + 245 * SECOND)
    late = request(3, START_US + 200 * SECOND)
    elsewhere = list(request(0, START_US))
    elsewhere[3] = 1  # another partition is read later, and nothing of it is late by that
    tables.write(1, [just_in_time, late, tuple(elsewhere)])
    (row,) = tables.dead_letters()
    assert row["offset"] == 3
    assert row["reason"].startswith("late: ")
    assert tables.requests() == 4


@pytest.mark.mechanism("S10")
def test_compaction_changes_nothing_but_the_files(any_tables: Tables) -> None:
    tables = any_tables

    def files() -> set[str]:
        return {str(one) for one in table_files(tables.config.out, "requests", "latency_1m")}

    for batch, start in enumerate((0, 1, 4_000, 4_001, 8_000)):
        tables.write(batch, some(batch * 4, 4, START_US + start * SECOND))
        if not batch:
            only = files()
            tables.compact()
            assert files() == only, "the rows of one batch are merged already"

    def content() -> list[Any]:
        kept = ("count", "weight", "min", "max", "p50", "p99", "p999")
        frame = tables.read(LATENCY_1M).orderBy("window_start", "part")
        return [tuple(row[name] for name in ("window_start", "part", *kept)) for row in frame.collect()]

    before = content()
    tables.compact()
    assert content() == before
    # Other engines find one row for each window and key now.
    assert arrow_rows(tables.config.out, "latency_1m").num_rows == len(before)
    first = files()
    tables.compact()
    assert files() == first, "there is nothing to do"
    tables.write(5, some(20, 4, START_US + 8_001 * SECOND))
    tables.compact()
    assert first & files(), "closed hours are not written again"
    assert first - files(), "open hours are"
    assert tables.requests() == 24
    # The batches are known after snapshots have expired.
    tables.write(5, some(20, 4, START_US + 8_001 * SECOND))
    assert tables.store.open(LATENCY_1M).last_batch(QUERY) == 5
    assert tables.requests() == 24


@pytest.mark.mechanism("S10")
def test_expired_and_orphaned_files_are_removed(any_tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = any_tables
    tables.write(0, some(0, 2))
    with monkeypatch.context() as patch:
        crash_at(patch, tables.store.table_format, FILES)
        with pytest.raises(Crash):
            tables.write(1, some(2, 2))
    tables.write(1, some(2, 2))
    tables.compact()
    for table in REQUESTS.tables:
        used = {one.name for one in table_files(tables.config.out, "requests", table.name)}
        there = {one.name for one in Path(tables.config.out, "requests", table.name).rglob("*.parquet")}
        there = {one for one in there if "checkpoint" not in one}
        assert there == used, table.name
    assert tables.requests() == 4


def test_a_table_without_rows_has_its_columns(tables: Tables) -> None:
    frame = tables.read(LATENCY_1M)
    assert frame.count() == 0
    assert set(requests.KEYS) <= set(frame.columns)
    assert table_files(tables.config.out, "requests", "latency_1m") == []
