"""Source, sink and pipelines under Spark Connect, and what ``barnabas doctor spark`` says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from barnabas import KafkaConsumer
from barnabas.cli.doctor_spark import check_interpreter, check_server, judge_interpreter
from barnabas.cli.main import run
from spark import connect_program
from spark.conftest import unavailable
from spark.topics import Topics

pytestmark = pytest.mark.mechanism("S12")
LIMIT_S = 900


def bare_environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that no activated environment and no shell profile has prepared."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}


def test_source_sink_and_pipelines_run_under_connect(
    connect_port: None, topics: Topics, topic: str, tmp_path: Path
) -> None:
    if shutil.which("java", path="/usr/local/bin:/usr/bin:/bin") is None:
        unavailable("Spark needs Java 17 or later")
    topics.create(topic)
    copy = topics.create(f"{topic}-copy")
    done = subprocess.run(
        [sys.executable, connect_program.__file__, topics.bootstrap_servers, topic, copy, str(tmp_path)],
        env=bare_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-8_000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["batch"] == ["cake", "tea"]
    assert seen["doctor"] == {"server": "ok", "server planner": "ok", "server workers": "ok"}
    with KafkaConsumer(
        copy,
        bootstrap_servers=topics.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        found: list[bytes] = []
        while len(found) < 2:
            polled = consumer.poll(timeout_ms=60_000)
            assert polled, "no record within 60 s"
            found += [record.value for record in polled]
    assert sorted(found) == [b"CAKE", b"TEA"]
    table = DeltaTable(str(tmp_path / "tables" / "lake" / topic)).to_pyarrow_table()
    assert sorted(table.column("value").to_pylist()) == [b"cake", b"tea"]


def interpreter(directory: Path, prints: str) -> str:
    """A program in the place of Python."""
    program = directory / "python3"
    program.write_text(f"#!/bin/sh\necho '{prints}'\n")
    program.chmod(0o755)
    return str(program)


def test_an_interpreter_without_the_package_is_named(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    assert check_interpreter("workers", sys.executable, dict(os.environ), "do").status == "ok"
    plain = str(Path(sys.base_prefix) / "bin" / "python3")
    found = check_interpreter("workers", plain, environment, "set it")
    assert (found.status, found.remedy) == ("error", "set it")
    assert "cannot load barnabas: No module named" in found.what
    assert "does not run" in check_interpreter("workers", interpreter(tmp_path, "nonsense"), environment, "").what
    assert "does not exist" in check_interpreter("workers", str(tmp_path / "none"), environment, "").what
    old = judge_interpreter("workers", {"python": "/p", "version": [3, 9]}, (3, 11), "")
    assert old.what == "the workers run Python 3.9 (/p), and the driver 3.11"


def test_a_server_that_is_not_there_is_reported() -> None:
    (found,) = check_server("sc://127.0.0.1:1", 5.0)
    assert found.status == "error"
    assert "no Connect server: 127.0.0.1:1 refuses connections" in found.what
    (found,) = check_server("127.0.0.1:15002", 5.0)
    assert "write it as sc://host:15002" in found.remedy


def test_the_doctor_checks_spark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def findings(code: int, *arguments: str) -> dict[str, dict[str, str]]:
        assert run(["doctor", "spark", "--json", *arguments]) == code
        return {one["step"]: one for one in json.loads(capsys.readouterr().out)}

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = findings(0)
    assert {found[step]["status"] for step in ("pyspark", "workers", "connect", "delta", "iceberg")} == {"ok"}
    assert "pipelines need none" in found["delta"]["what"]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "JAVA_HOME is /nowhere, where there is no Java" in findings(1)["java"]["what"]
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert "where there is no Spark" in findings(1)["pyspark"]["what"]
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").write_text("")
    assert "SPARK_HOME has Spark 3.5.1" in findings(1)["pyspark"]["what"]
    assert run(["doctor", "--remote", "sc://h"]) == 2
    assert "--remote is for barnabas doctor spark" in capsys.readouterr().err
