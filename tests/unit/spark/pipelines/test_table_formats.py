"""Delta and Iceberg tables without Spark: a batch once, files replaced in one commit, unused files removed."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType, TimestampType

from barnabas.spark.pipelines.config import DELTA, ICEBERG, TABLE_FORMATS, TableOptions
from barnabas.spark.pipelines.data_files import BATCH_FILE, DataFile, FileLayout, file_writer
from barnabas.spark.pipelines.schema_drift import DriftError
from barnabas.spark.pipelines.table_formats import BATCH, IcebergTableFormat, OpenTable, TableChangedError
from barnabas.spark.pipelines.table_storage import TableStorage
from barnabas.spark.pipelines.tables import (
    BatchState,
    ForeignTablesError,
    OldTablesError,
    Table,
    TableStore,
    pipeline_store,
)

pytestmark = pytest.mark.mechanism("S10")

SCHEMA = StructType().add("time", TimestampType()).add("n", LongType()).add("text", StringType())
LAYOUT = FileLayout(SCHEMA, order_by="time")


def batch(*numbers: int) -> pa.RecordBatch:
    """Rows whose times are their numbers, in the session's zone."""
    times = pa.array(numbers, pa.timestamp("us", "Europe/Berlin"))
    return pa.RecordBatch.from_arrays(
        [times, pa.array(numbers, pa.int64()), pa.array([f"t{number}" for number in numbers])], ["time", "n", "text"]
    )


def write(table: OpenTable, *numbers: int, prefix: str = "batch") -> list[DataFile]:
    """Writes the file of a task."""
    made = [row for one in file_writer(LAYOUT, table.storage(), prefix)([batch(*numbers)]) for row in one.to_pylist()]
    return [DataFile(**{**row, "partition": json.loads(row["partition"])}) for row in made]


def append(table: OpenTable, files: list[DataFile], batch_id: int) -> None:
    table.replace((), files, same_rows=False, batch=("q", batch_id))


@pytest.fixture(params=TABLE_FORMATS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TableStore:
    return pipeline_store(str(tmp_path), "p", TableOptions(request.param))


@pytest.fixture
def table(store: TableStore) -> OpenTable:
    opened = store.open_named("t", "t")
    assert not opened.exists()
    opened.create(LAYOUT, None)
    opened.create(LAYOUT, None)
    assert opened.exists()
    return opened


def numbers(table: OpenTable) -> list[int]:
    import pyarrow.parquet as pq

    paths = [table.uri(one).removeprefix("file://") for one in table.files()]
    return sorted(number for path in paths for number in pq.read_table(path).column("n").to_pylist())


def test_a_batch_is_added_once(table: OpenTable) -> None:
    assert table.last_batch("q") == -1
    for number in (0, 1, 1, 0):
        append(table, write(table, number), number)
    assert numbers(table) == [0, 1]
    assert (table.last_batch("q"), table.last_batch("other")) == (1, -1)


def test_a_batch_that_the_table_holds_still_has_its_rows(store: TableStore, table: OpenTable) -> None:
    """The number of dead letters is noted after the commit, by the run that comes to it."""
    for batch_id, found in ((8, (1,)), (9, (2, 3, 4))):
        append(table, write(table, *found, prefix=f"{BATCH_FILE}-{batch_id:09d}"), batch_id)
    never_run: Any = None
    assert store.add(Table("t", SCHEMA, "time"), never_run, "q", 9) == 3
    assert numbers(table) == [1, 2, 3, 4]


def test_files_that_replace_none_are_an_append(tmp_path: Path) -> None:
    """Streaming readers of an Iceberg table take appends only."""
    table = pipeline_store(str(tmp_path), "p", TableOptions(ICEBERG)).open_named("t", "t")
    table.create(LAYOUT, None)
    append(table, write(table, 0), 0)
    assert isinstance(table, IcebergTableFormat)
    with table._opened() as loaded:
        snapshot = loaded.current_snapshot()
    assert (snapshot.summary.operation.value, snapshot.summary.additional_properties[BATCH]) == ("append", "0")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_an_iceberg_catalog_is_open_only_while_it_is_used(tmp_path: Path) -> None:
    """A driver runs for months. Connections must not wait for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        table = pipeline_store(str(tmp_path), "p", TableOptions(ICEBERG)).open_named("t", "t")
        assert not table.exists()
        table.create(LAYOUT, None)
        for number in range(3):
            append(table, write(table, number), number)
        table.replace(table.files()[:1], (), same_rows=False)
        table.expire(0)
        assert (table.last_batch("q"), len(numbers(table)), len(table.schema())) == (2, 2, 3)
        links = [*Path("/proc/self/fd").iterdir()]
        assert not [link for link in links if link.is_symlink() and link.readlink().name == "catalog.db"]
    finally:
        gc.enable()


def test_a_second_driver_does_not_add_the_batch_again(table: OpenTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process commits the same batch after this one has looked for it, and before it commits."""
    append(table, write(table, 0), 0)
    first, second = write(table, 1), write(table, 1)
    load = type(table)._load  # type: ignore[attr-defined]
    loaded: list[Any] = []

    def load_then_lose(self: Any, *catalog: Any) -> Any:
        found = load(self, *catalog)
        if not loaded:
            loaded.append(found)
            append(table, first, 1)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(type(table), "_load", load_then_lose)
        if isinstance(table, IcebergTableFormat):
            append(table, second, 1)
        else:
            with pytest.raises(Exception, match=r"(?i)transaction|conflict"):
                append(table, second, 1)
    assert numbers(table) == [0, 1]


def test_files_are_replaced_in_one_commit_and_removed_later(table: OpenTable) -> None:
    for number in range(4):
        append(table, write(table, number), number)
    left = write(table, 9)  # of a batch that is never committed
    old = table.files("time")
    assert sorted((one.first_us, one.last_us, one.is_merged) for one in old) == [(n, n, False) for n in range(4)]
    table.replace(old[1:], write(table, 1, 2, 3, prefix="merged"), same_rows=True)
    assert len(table.files()) == 2
    assert sum(one.is_merged for one in table.files()) == 1
    table.expire(1)
    assert Path(storage_path(table), left[0].path).exists(), "it is not an hour old"
    table.expire(0)
    used = {table.uri(one).rpartition("/")[2] for one in table.files()}
    assert {one.name for one in Path(storage_path(table)).glob("*.parquet")} == used
    assert table.last_batch("q") == 3
    append(table, write(table, 3), 3)
    assert len(numbers(table)) == 4


def test_files_are_replaced_by_a_batch_once(table: OpenTable) -> None:
    append(table, write(table, 0, 1), 0)
    append(table, write(table, 5), 1)
    old = [one for one in table.files("time") if one.first_us == 0]
    for _ in range(2):
        table.replace(old, write(table, 0, 2), same_rows=False, batch=("q", 2))
    assert numbers(table) == [0, 2, 5]
    assert table.last_batch("q") == 2
    append(table, write(table, 7), 2)
    assert numbers(table) == [0, 2, 5]


def test_files_that_somebody_else_has_replaced_are_not_replaced_again(table: OpenTable) -> None:
    """Otherwise the rows of both would be in the table."""
    append(table, write(table, 0, 1), 0)
    old = table.files()
    table.replace(old, write(table, 0, 1, prefix="merged"), same_rows=True)
    with pytest.raises(TableChangedError, match="was changed meanwhile"):
        table.replace(old, write(table, 0, 2), same_rows=False, batch=("q", 1))
    assert (numbers(table), table.last_batch("q")) == ([0, 1], 0)


def test_columns_are_added(table: OpenTable, store: TableStore) -> None:
    append(table, write(table, 1), 0)
    before = table.files()
    inner = StructType()
    for name in ("a", "b"):
        inner = StructType([*inner, StructField(name, LongType())])
        wider = StructType([*SCHEMA.fields[:2], StructField("row", inner), SCHEMA["text"]])
        assert store.prepare(Table("t", wider, "time")).column_names == ["time", "n", "text", "row"]
        assert [one.name for one in table.schema().field("row").type] == inner.names
    assert (table.files()[0].path, len(table.files())) == (before[0].path, 1)
    narrow = store.prepare(Table("t", StructType().add("n", LongType()), "time"))
    assert narrow.column_names == ["time", "n", "text", "row"]
    with pytest.raises(DriftError, match="column n is int64 in the table and string"):
        store.prepare(Table("t", StructType().add("n", StringType()), "time"))


def storage_path(table: OpenTable) -> str:
    return table.storage().location


def test_a_batch_is_known_after_its_snapshot_is_gone(table: OpenTable) -> None:
    append(table, write(table, 0), 7)
    for _ in range(3):
        table.replace(table.files(), write(table, 0, prefix="merged"), same_rows=True)
        table.compact()
        table.expire(0)
    assert table.last_batch("q") == 7
    assert numbers(table) == [0]


def test_files_have_bounds_and_are_sorted(tmp_path: Path) -> None:
    schema = StructType(list(SCHEMA.fields)).add("value", DoubleType()).add("raw", BinaryType())
    storage = TableStorage(str(tmp_path), DELTA)
    rows = (
        batch(3, 1, 2).append_column("value", pa.array([1.5, None, 0.5])).append_column("raw", pa.nulls(3, pa.binary()))
    )
    long = rows.set_column(2, "text", pa.array(["x" * 100, "a", None]))
    for part, texts in ((rows, ("t1", "t3")), (long, None)):
        (report,) = next(iter(file_writer(FileLayout(schema, order_by="time"), storage, "f")([part]))).to_pylist()
        stats = json.loads(report["stats"])
        assert (stats["numRecords"], report["rows"], report["size"]) == (
            3,
            3,
            (tmp_path / report["path"]).stat().st_size,
        )
        least, greatest = stats["minValues"], stats["maxValues"]
        assert (least["time"], greatest["time"]) == ("1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000003Z")
        assert (least["n"], greatest["n"], stats["nullCount"]["n"]) == (1, 3, 0)
        assert "value" not in least
        assert (None if texts is None else (least["text"], greatest["text"])) == texts
        assert ("text" in least) is (texts is not None)
        import pyarrow.parquet as pq

        assert pq.read_table(tmp_path / report["path"]).column("n").to_pylist() == [1, 2, 3]


def test_files_by_partition_value(tmp_path: Path) -> None:
    layout = FileLayout(SCHEMA, ("text",))
    rows = batch(1, 2, 3).set_column(2, "text", pa.array(["a", None, "a"]))
    (made,) = file_writer(layout, TableStorage(str(tmp_path), DELTA), "f")([rows, batch()])
    found = {json.loads(row["partition"])["text"]: (row["path"].split("/")[0], row["rows"]) for row in made.to_pylist()}
    assert found == {"a": ("text=a", 2), None: ("text=__HIVE_DEFAULT_PARTITION__", 1)}
    assert list(file_writer(layout, TableStorage(str(tmp_path), DELTA), "f")([])) == []


def test_the_state_is_replaced_as_a_whole(store: TableStore) -> None:
    assert store.state() == BatchState()
    state = BatchState("q", 3, {"t-0": 17})
    store.set_state(state)
    assert store.state() == state
    assert state.has_batch("q", 3)
    assert not state.has_batch("q", 4)
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        state.has_batch("other", 4)


def test_the_format_is_that_of_the_tables(store: TableStore, table: OpenTable, tmp_path: Path) -> None:
    assert pipeline_store(str(tmp_path), "p").table_format == store.table_format
    if store.table_format == DELTA:
        assert DeltaTable(tmp_path / "p" / "t").version() == 0
    with pytest.raises(ValueError, match="needs a catalog"):
        pipeline_store("s3://bucket/x", "p", TableOptions(ICEBERG)).open_named("t", "t").exists()


def test_tables_of_release_0_1_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p" / "_manifests").mkdir(parents=True)
    with pytest.raises(OldTablesError, match="barnabas pipeline convert"):
        pipeline_store(str(tmp_path), "p")
