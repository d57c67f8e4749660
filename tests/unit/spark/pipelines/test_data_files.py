"""Files of tables: what is written, and the statistics by which readers skip files."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DataType, DateType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from barnabas.spark.pipelines.config import DELTA, TABLE_FORMATS, TableOptions
from barnabas.spark.pipelines.data_files import DataFile, FileLayout, file_writer
from barnabas.spark.pipelines.table_storage import TableStorage
from barnabas.spark.pipelines.tables import pipeline_store

INFINITY_US = 9_223_372_036_825_200_000
"""What Debezium makes of Postgres's timestamp ``infinity``."""
ZERO_TIME = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


def write(directory: Path, kind: DataType, values: pa.Array) -> tuple[pa.Table, dict[str, Any]]:
    """Writes a file of one table; returns its rows and its statistics."""
    layout = FileLayout(StructType([StructField("at", kind), StructField("number", LongType())]))
    storage = TableStorage(str(directory), DELTA)
    numbers = pa.array(range(len(values)), pa.int64())
    batch = pa.RecordBatch.from_arrays([values, numbers], ["at", "number"])
    (report,) = (row for one in file_writer(layout, storage, "batch-0")([batch]) for row in one.to_pylist())
    return pq.read_table(directory / report["path"]), json.loads(report["stats"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TimestampType(), pa.array([INFINITY_US, 0], pa.timestamp("us", "UTC"))),
        (TimestampType(), pa.array([-INFINITY_US, 0], pa.timestamp("us", "UTC"))),
        (DateType(), pa.array([2_147_483_647, 0], pa.date32())),
    ],
)
def test_dates_that_python_does_not_have_are_written_without_bounds(
    tmp_path: Path, kind: DataType, values: pa.Array
) -> None:
    rows, statistics = write(tmp_path, kind, values)
    assert rows.column("at").combine_chunks().equals(values)
    assert statistics["minValues"] == {"number": 0}
    assert statistics["maxValues"] == {"number": 1}
    assert statistics["nullCount"] == {"number": 0}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_table_takes_files_with_dates_that_python_does_not_have(tmp_path: Path, table_format: str) -> None:
    inner = StructType([StructField("at", TimestampType()), StructField("number", LongType())])
    layout = FileLayout(StructType([StructField("time", TimestampType()), StructField("value", inner)]))
    table = pipeline_store(str(tmp_path), "p", TableOptions(table_format)).open_named("t", "t")
    table.create(layout, None)
    schema = layout.file_schema()
    rows = pa.RecordBatch.from_pylist([{"time": 5, "value": {"at": INFINITY_US, "number": 1}}], schema)
    (report,) = (row for one in file_writer(layout, table.storage(), "batch-0")([rows]) for row in one.to_pylist())
    file = DataFile(**{**report, "partition": json.loads(report["partition"])})
    table.replace((), [file], same_rows=False, batch=("q", 0))
    (found,) = table.files("time")
    assert (found.first_us, found.last_us) == (5, 5)
    assert pq.read_table(table.uri(found).removeprefix("file://"), schema=schema).equals(pa.table(rows))


def test_bounds_of_early_years_have_four_digits(tmp_path: Path) -> None:
    values = pa.array([ZERO_TIME, dt.datetime(2026, 11, 18, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    _, statistics = write(tmp_path, TimestampType(), values)
    assert statistics["minValues"]["at"] == "0001-01-01T00:00:00.000000Z"
    assert statistics["maxValues"]["at"] == "2026-11-18T00:00:00.000000Z"


@pytest.fixture
def another_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("another_zone")
def test_bounds_of_times_without_a_zone_do_not_depend_on_the_zone_of_the_machine(tmp_path: Path) -> None:
    values = pa.array([dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)], pa.timestamp("us"))
    _, statistics = write(tmp_path, TimestampNTZType(), values)
    assert statistics["minValues"]["at"] == "2026-11-18T12:00:00.000000"
