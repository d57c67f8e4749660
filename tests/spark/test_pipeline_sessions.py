"""The pipeline ``sessions``: what it writes is what a model without Spark says, whatever is killed meanwhile."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from barnabas.cli.main import run
from barnabas.spark.pipelines.config import DELTA, ICEBERG, TABLE_FORMATS, PipelineConfig
from barnabas.spark.pipelines.session_processor import STATE, SessionProcessor
from barnabas.spark.pipelines.sessions import Aggregate, SessionsConfig
from spark.conftest import unavailable
from spark.session_clicks import clicks, expected, rows, value_of
from spark.table_crash_program import AFTER_COMMIT, POINTS
from spark.test_pipeline_crash import TIMEOUT_S, files_of, write_part
from spark.test_pipeline_crash import run as run_program
from spark.topics import Topics

pytestmark = pytest.mark.mechanism("S08")

SQL = """select key, epoch_us(start_time), epoch_us(end_time), records, first_record."offset", last_record."offset",
ms_sum, page_last from read_parquet($files) order by all"""
REASONS = 'select "offset", reason from read_parquet($files) order by all'


def found(place: Path, table_format: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Sessions and dead letters, as DuckDB reads them."""
    if table_format == ICEBERG:
        tables = [files_of(place, "sessions", name, ICEBERG) for name in ("clicks", "clicks_dead_letters")]
    else:
        tables = [files_of(one, "barnabas", "", DELTA) for one in (place, place / "_dead_letters")]
    sessions, rejected = tables
    return duckdb.execute(SQL, {"files": sessions}).fetchall(), duckdb.execute(REASONS, {"files": rejected}).fetchall()


def input_row(time_ms: int, offset: int, amount: int | None = None, problem: str | None = None) -> Row:
    return Row(
        time_us=time_ms * 1_000,
        topic="clicks",
        partition=0,
        offset=offset,
        problem=problem,
        raw_key=b"k",
        raw_value=b"v",
        amount_sum=amount,
    )


def session_tester() -> TwsTester:
    """Spark's own tester. It would drop late rows, which the pipeline prevents: so nothing is late for it."""
    processor = SessionProcessor(10_000_000, ["sum"], ["amount_sum"])
    return TwsTester(processor, timeMode="EventTime", eventTimeExtractor=lambda _row: 1 << 60)


def brief(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [
        (row.session.start_us, row.session.end_us, row.session.records, row.session.amount_sum)
        if row.session is not None
        else (row.rejected.offset, row.rejected.reason)
        for row in rows
    ]


def test_a_timer_closes_a_session_and_an_early_one_is_set_again() -> None:
    spark = session_tester()
    assert spark.test("anna", [input_row(1_000, 0, 2), input_row(3_000, 1, 3)]) == []
    assert spark.test("anna", [input_row(9_000, 2)]) == []
    assert spark.setWatermark(13_500) == []  # the timer of the first two
    assert brief(spark.setWatermark(19_000)) == [(1_000_000, 9_000_000, 3, 5)]
    assert spark.peekValueState(STATE, "anna") is None
    assert spark.setWatermark(60_000) == []


def test_a_session_that_is_due_is_closed_before_the_rows_of_its_key() -> None:
    """In a batch, Spark calls for rows first. A row must not get into a session whose time is over."""
    spark = session_tester()
    spark.test("anna", [input_row(1_000, 0, 2)])
    spark.handle.setWatermark(30_000)
    spark._currentWatermarkMs = 30_000
    assert brief(spark.test("anna", [input_row(35_000, 1, 7)])) == [(1_000_000, 1_000_000, 1, 2)]
    assert brief(spark.setWatermark(45_000)) == [(35_000_000, 35_000_000, 1, 7)]


def test_late_rows_and_rows_with_a_problem_are_rejected_and_leave_no_state() -> None:
    spark = session_tester()
    spark.setWatermark(20_000)
    rejected = spark.test("anna", [input_row(19_999, 0), input_row(25_000, 1, problem="no key")])
    assert brief(rejected) == [(0, "late: 1 ms behind the watermark"), (1, "no key")]
    assert spark.peekValueState(STATE, "anna") is None
    spark.test("anna", [input_row(20_000, 2)])
    assert spark.peekValueState(STATE, "anna") is not None


def test_a_sum_beyond_64_bits_is_null() -> None:
    spark = session_tester()
    spark.test("anna", [input_row(1_000, 0, 2**62), input_row(1_001, 1, 2**62)])
    assert brief(spark.setWatermark(60_000)) == [(1_000_000, 1_001_000, 2, None)]


def test_what_cannot_be_is_refused() -> None:
    config = PipelineConfig(out="out")
    with pytest.raises(ValueError, match="the gap of sessions must be positive: 0 ms"):
        SessionsConfig(config, ("clicks",), gap_ms=0)
    with pytest.raises(ValueError, match="a table of several topics needs a name"):
        SessionsConfig(config, ("clicks", "views"), gap_ms=1)
    with pytest.raises(ValueError, match="these need a schema"):
        SessionsConfig(config, ("clicks",), gap_ms=1, key_column="user")
    twice = (Aggregate("ms", "sum"), Aggregate("ms", "sum"))
    with pytest.raises(ValueError, match="the table would have two columns ms_sum"):
        SessionsConfig(config, ("clicks",), gap_ms=1, schema="ms int", aggregates=twice)
    with pytest.raises(ValueError, match="aggregate ms:mean: unknown function; expected sum, min, max, first, last"):
        Aggregate("ms", "mean")


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(*arguments: str) -> str:
        assert run(["pipeline", "run", "sessions", *arguments]) == 2
        return capsys.readouterr().err

    assert "sessions needs a --topic" in complaint()
    assert "'amount' is not COLUMN:FUNCTION, such as amount:sum" in complaint("--topic", "t", "--aggregate", "amount")
    assert "--values, --message and --registry-header are for lake" in complaint("--topic", "t", "--values", "avro")
    assert "a duration must have a form" in complaint("--topic", "t", "--gap", "long")


def test_aggregates_must_fit_the_schema(spark: Any) -> None:
    def types(schema: str, *aggregates: Aggregate) -> str:
        config = SessionsConfig(PipelineConfig(out="out"), ("t",), gap_ms=1, schema=schema, aggregates=aggregates)
        return config.aggregate_columns()

    given = (Aggregate("n", "sum"), Aggregate("n", "min"), Aggregate("x", "sum"), Aggregate("s", "last"))
    assert types("n int, x float, s string", *given) == (
        ", `n_sum` bigint, `n_min` int, `x_sum` double, `s_last` string"
    )
    with pytest.raises(ValueError, match="aggregate s:sum: the column is of type string; expected one of tinyint"):
        types("s string", Aggregate("s", "sum"))
    with pytest.raises(ValueError, match="aggregate m:sum: the schema has no column m; it has n, x"):
        types("n int, x float", Aggregate("m", "sum"))
    with pytest.raises(ValueError, match="aggregate d:max: the column is of type array<int>"):
        types("d array<int>", Aggregate("d", "max"))


@pytest.mark.nightly
def test_sessions_of_a_topic_across_runs_of_the_command(
    topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run reads a part. The state of the sessions, and the watermark, are in the checkpoint between them.

    The command is a process of its own: in this one it would stop the session of the other tests.
    """
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    topics.create("clicks")
    command = ["pipeline", "run", "sessions", "-b", topics.bootstrap_servers, "--once", "--out", str(tmp_path)]
    command += ["--topic", "clicks", "--key-column", "user", "--schema", "user string, ms int, page string"]
    command += ["--aggregate", "ms:sum", "--aggregate", "page:last"]
    for part in range(3):
        for click in clicks(part):
            topics.send("clicks", [value_of(click)], timestamp=click[0] // 1_000)
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert found(tmp_path / "sessions" / "clicks", DELTA) == expected(3, None)
    assert run(["pipeline", "status", "--json", "--out", str(tmp_path), "sessions/clicks"]) == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["state"], status["behind"], status["dead_letters"]) == ("ended", 0, len(expected(3, None)[1]))


CASES = [pytest.param(DELTA, (AFTER_COMMIT,), id="delta")] + [
    pytest.param(one, POINTS, id=f"{one}-all") for one in TABLE_FORMATS
]


@pytest.mark.nightly
@pytest.mark.parametrize(("table_format", "points"), CASES)
def test_a_killed_driver_loses_no_session_and_writes_none_twice(
    table_format: str, points: Sequence[str], tmp_path: Path
) -> None:
    parts = len(points) + 2
    for number in range(parts):
        write_part(tmp_path / "in", number, rows(number))
    for batch, point in enumerate(points, 1):
        assert run_program("sessions", table_format, tmp_path, str(batch), point) == -signal.SIGKILL, point
    assert run_program("sessions", table_format, tmp_path) == 0
    assert found(tmp_path / "out" / "sessions" / "clicks", table_format) == expected(parts)
