"""A REST catalog that is killed in the middle of a commit: each record counts once in each table, as DuckDB reads them.

The pipeline fails, as it cannot go on without a catalog, and goes on when both are started again. The worst case is a
commit that was made, and of which the driver has not heard.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from spark.conftest import unavailable
from spark.pipeline_records import START_US
from spark.pipeline_workload import request_log
from spark.rest_catalog_program import POINTS, READY
from spark.test_pipeline_crash import EXPECTED, TIMEOUT_S, write_part
from spark.test_pipeline_crash import PROGRAM as PIPELINE

PROGRAM = Path(__file__).with_name("rest_catalog_program.py")
PIPELINES = ("requests", "lake")


@contextmanager
def running_catalog(directory: Path, port: int, *death: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its port."""
    command = [sys.executable, str(PROGRAM), str(directory), str(port), *death]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, found = process.stdout.readline().split()
            assert word == READY
            yield process, int(found)
        finally:
            process.kill()


def run_pipeline(pipeline: str, port: int, place: Path) -> int:
    command = [sys.executable, str(PIPELINE), pipeline, f"iceberg=http://127.0.0.1:{port}"]
    done = subprocess.run(
        [*command, str(place / "in"), str(place / "out")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode


@pytest.mark.nightly
@pytest.mark.mechanism("S10")
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_killed_catalog_loses_and_repeats_nothing(pipeline: str, tmp_path: Path) -> None:
    """The first and the second commit of a run are those of two tables, or of two batches of one table."""
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    deaths = [(number, point) for point in POINTS for number in (1, 2)]
    for number in range(len(deaths) + 2):
        write_part(tmp_path / "in", number, request_log(START_US, number))
    port = 0
    for number, point in deaths:
        with running_catalog(tmp_path / "catalog", port, str(number), point) as (process, port):
            assert run_pipeline(pipeline, port, tmp_path) == 1, "the query fails with its catalog"
            assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    with running_catalog(tmp_path / "catalog", port) as (_, port):
        assert run_pipeline(pipeline, port, tmp_path) == 0
        catalog = load_catalog("rest", type="rest", uri=f"http://127.0.0.1:{port}")
        namespace = "barnabas" if pipeline == "lake" else pipeline
        for table, (expression, amount) in EXPECTED[pipeline].items():
            planned = catalog.load_table((namespace, table)).scan().plan_files()
            files = [one.file.file_path.removeprefix("file://") for one in planned]
            found = duckdb.execute(f"select {expression} from read_parquet($files)", {"files": files}).fetchall()
            assert found == [(amount * (len(deaths) + 2),)], table
