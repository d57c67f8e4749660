"""A broker that is killed at any step of a batch: each record counts once in each table, as DuckDB reads them.

The broker is started again on the same directory and port. The pipeline waits for it, and goes on where it was.
Meanwhile a producer writes more records: it waits for the broker as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.waiting import until

from barnabas.spark.pipelines.config import DELTA, ICEBERG
from barnabas.spark.pipelines.runner import STREAMS
from spark.broker_crash_program import PID, POINTS, SECONDS
from spark.conftest import unavailable
from spark.pipeline_records import SECOND
from spark.pipeline_workload import write_records
from spark.test_pipeline_crash import EXPECTED, PARTS, figures
from spark.topics import Topics

CASES = [("requests", DELTA), ("telemetry", ICEBERG), ("quotas", DELTA), ("lake", ICEBERG), ("changes", DELTA)]
RECORDS = "records"
"""The topic of pipelines that read any topic."""
PARTITIONS = 2
FIRST_PARTS = 2
"""Parts of the workload that are written before the pipeline starts; one more while the broker is dead each time."""


@pytest.mark.nightly
@pytest.mark.mechanism("S10")
@pytest.mark.parametrize(("pipeline", "table_format"), CASES)
def test_a_killed_broker_loses_and_repeats_nothing(pipeline: str, table_format: str, tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        unavailable("Spark needs Java 17 or later")
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    start_us = int(time.time()) * SECOND - 600 * SECOND
    log = tmp_path / "log"
    with BrokerProcess(tmp_path / "data") as broker, ThreadPoolExecutor(1) as producer, log.open("wb") as output:
        address = broker.bootstrap_servers
        command = [sys.executable, "-m", "spark.broker_crash_program", pipeline, table_format, address]
        command += [str(tmp_path / "out"), str(deaths)]
        part_size = len(PARTS[pipeline](start_us, 0))

        def note_pid() -> None:
            (tmp_path / PID).write_text(str(broker.process.pid))
            (tmp_path / PID).replace(deaths / PID)

        def said() -> str:
            killed = sorted(one.name for one in deaths.iterdir())
            return f"killed at {killed}\n{log.read_text(errors='replace')[-3_000:]}"

        def write(part: int) -> None:
            rows = PARTS[pipeline](start_us, part)
            if pipeline not in STREAMS:
                rows = [(*row[:2], RECORDS, *row[3:]) for row in rows]
            write_records(address, rows, SECONDS)

        topics = Topics(address)
        for name in STREAMS[pipeline].topics if pipeline in STREAMS else (RECORDS,):
            topics.create(name, PARTITIONS)
        note_pid()
        for part in range(FIRST_PARTS):
            write(part)
        environment = source_environment()
        with subprocess.Popen(
            [*command, str(part_size // 2)], env=environment, stdout=output, stderr=output
        ) as process:
            for number in range(len(POINTS)):
                until(lambda: broker.process.poll() is not None, said, SECONDS, process=process)
                written = producer.submit(write, FIRST_PARTS + number)
                broker.spawn()
                note_pid()
                written.result(SECONDS)
            assert process.wait(SECONDS) == 0, said()
        assert sorted(one.name for one in deaths.iterdir()) == sorted([PID, *POINTS])
        command.append(str(part_size * 100))
        again = subprocess.run(command, env=environment, stdout=output, stderr=output, timeout=SECONDS, check=False)
        assert again.returncode == 0, said()
    parts = FIRST_PARTS + len(POINTS)
    expected = {table: amount * parts for table, (_, amount) in EXPECTED[pipeline].items()}
    assert figures(pipeline, table_format, tmp_path / "out") == expected
