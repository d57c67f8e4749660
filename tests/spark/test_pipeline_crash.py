"""A driver that is killed at any step of a batch: each record counts once in each table, as DuckDB reads them."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark.pipelines.config import DELTA, ICEBERG, TABLE_FORMATS
from spark.change_records import envelope, json_bytes
from spark.conftest import unavailable
from spark.pipeline_records import START_US
from spark.pipeline_workload import SECONDS_PER_PART, Rows, pushes, quota_usage, request_log
from spark.table_crash_program import AFTER_COMMIT, AFTER_FILES, POINTS

pytestmark = pytest.mark.mechanism("S10")

PROGRAM = Path(__file__).with_name("table_crash_program.py")
TIMEOUT_S = 600
REQUESTS = SECONDS_PER_PART * 10 * 4
VALUES = SECONDS_PER_PART * 2 * 3 * 2
"""Requests, and metric values, of one part of the workload."""
KEYS = 20
"""Rows that each part of the changes adds."""
PARTS: Mapping[str, Callable[[int, int], Rows]] = {
    "requests": request_log,
    "telemetry": pushes,
    "quotas": lambda start_us, part: quota_usage(start_us, part) + request_log(start_us, part),
    "lake": request_log,
    "changes": lambda start_us, part: change_records(start_us, part),  # noqa: PLW0108 - defined below
}
EXPECTED: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "requests": {
        "counts_1m": ("sum(requests)", REQUESTS),
        "latency_1m": ("sum(count) filter (part = 'total')", REQUESTS),
        "latency_1h": ("sum(count) filter (part = 'total')", REQUESTS),
        "dead_letters": ("count(*)", 1),
    },
    "telemetry": {
        "points": ("count(*)", VALUES),
        "metrics_1m": ("sum(count)", VALUES),
        "metrics_1h": ("sum(count)", VALUES),
        "dead_letters": ("count(*)", 2),
    },
    "quotas": {
        "usage": ("count(*)", 3),
        "traffic": ("count(*)", REQUESTS),
        "tenants_1m": ("sum(requests)", REQUESTS),
        "dead_letters": ("count(*)", 2),
    },
    "lake": {"records": ("count(*)", REQUESTS + 1)},
    "changes": {"records": ("sum(n)", KEYS), "records_dead_letters": ("count(*)", 1)},
}
"""What each part of the workload adds to each table."""
DIRECTORIES = {"records": "", "records_dead_letters": "_dead_letters"}
"""Of the tables of topics."""
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def change_records(start_us: int, part: int) -> Rows:
    """New rows of which one is deleted again, updates of all earlier rows, deletions of rows that are not there."""
    first = part * (KEYS + 1)
    keys = range(first, first + KEYS + 1)
    values: list[tuple[int, Any]] = [(key, ("c", None, {"id": key, "n": 5})) for key in keys]
    values += [(key, ("u", None, {"id": key, "n": 1})) for key in range(first + KEYS + 1) if (key + 1) % (KEYS + 1)]
    values += [(keys[-1], ("d", {"id": keys[-1]}, None)), (keys[-1], None), (1_000_000, None)]
    values.append((0, "nonsense"))
    time = dt.datetime.fromtimestamp(start_us / 1e6, dt.UTC)
    return [
        (
            json_bytes({"id": key}),
            None if value is None else envelope(*value) if isinstance(value, tuple) else json_bytes(value),
            "records",
            0,
            part * 10_000 + number,
            time,
            0,
            [],
        )
        for number, (key, value) in enumerate(values)
    ]


def write_part(directory: Path, number: int, rows: Rows) -> None:
    """A file with the records of a batch; Spark takes the oldest first."""
    directory.mkdir(parents=True, exist_ok=True)
    documents = []
    for row in rows:
        document: dict[str, Any] = dict(zip(RAW.names, row, strict=True))
        document["headers"] = [{"key": key, "value": value} for key, value in document["headers"]]
        documents.append(document)
    file = directory / f"part-{number}.parquet"
    pq.write_table(pa.Table.from_pylist(documents, RAW), file)
    os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def run(pipeline: str, table_format: str, place: Path, *crash: str) -> int:
    """Runs the pipeline in a process of its own; its exit code."""
    command = [sys.executable, str(PROGRAM), pipeline, table_format, str(place / "in"), str(place / "out"), *crash]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr[-3_000:]
    return done.returncode


def files_of(place: Path, namespace: str, table: str, table_format: str) -> list[str]:
    """The files that the table consists of, by the format's own library."""
    if table_format == DELTA:
        directory = DIRECTORIES.get(table, table)
        return list(DeltaTable(place / directory).file_uris())
    with SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}") as catalog:
        tasks = catalog.load_table((namespace, table)).scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]


def figures(pipeline: str, table_format: str, out: Path) -> dict[str, Any]:
    """What DuckDB finds in the tables."""
    place = out / pipeline / ("records" if pipeline in {"lake", "changes"} else "")
    namespace = "barnabas" if pipeline == "lake" else pipeline
    found = {}
    for table, (expression, _) in EXPECTED[pipeline].items():
        files = files_of(place, namespace, table, table_format)
        query = f"select {expression} from read_parquet($files)"
        found[table] = duckdb.execute(query, {"files": files}).fetchall()[0][0]
    return found


SHORT: Mapping[tuple[str, str], Sequence[str]] = {
    ("requests", DELTA): (AFTER_FILES, AFTER_COMMIT),
    ("lake", ICEBERG): (AFTER_COMMIT,),
}
"""The others take as long, and are for the night."""
CASES = [pytest.param(*case, points, id="-".join(case)) for case, points in SHORT.items()] + [
    pytest.param(pipeline, table_format, POINTS, id=f"{pipeline}-{table_format}-all", marks=pytest.mark.nightly)
    for pipeline in EXPECTED
    for table_format in TABLE_FORMATS
]


@pytest.mark.parametrize(("pipeline", "table_format", "points"), CASES)
def test_a_killed_driver_loses_and_repeats_nothing(
    pipeline: str, table_format: str, points: Sequence[str], tmp_path: Path
) -> None:
    """A batch for each point at which the driver is killed, and one more."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        unavailable("Spark needs Java 17 or later")
    for number in range(len(points) + 1):
        write_part(tmp_path / "in", number, PARTS[pipeline](START_US, number))
    for batch, point in enumerate(points):
        assert run(pipeline, table_format, tmp_path, str(batch), point) == -signal.SIGKILL, point
    assert run(pipeline, table_format, tmp_path) == 0
    expected = {table: amount * (len(points) + 1) for table, (_, amount) in EXPECTED[pipeline].items()}
    assert figures(pipeline, table_format, tmp_path / "out") == expected
