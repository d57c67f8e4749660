"""Writes a project of Spark Declarative Pipelines, and runs it.

``spark-pipelines`` takes its interpreter from ``PYSPARK_PYTHON`` or the path, its Java from ``JAVA_HOME`` or the path,
and its start-up settings from ``SPARK_CONF_DIR``. Any of them may be missing or belong to another installation, so
`run_project` sets all three.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from barnabas.spark.java_runtime import require_java
from barnabas.spark.pipelines.declared import SOURCE_PREFIX
from barnabas.spark.pipelines.runner import PipelineError, cause_of

SPEC: Final = "spark-pipeline.yml"
TEMPLATE: Final = "project_files"
_EVENT: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: (.*)")
"""A line that ``spark-pipelines`` writes about the run; all others are logs and stack traces."""
_PLACEHOLDER: Final = re.compile(r"@([A-Z]+)@")
_KEPT_LINES: Final = 200


class ProjectError(Exception):
    """A project cannot be written or run; the message says why."""


def write_project(directory: Path, source: Mapping[str, str]) -> list[Path]:
    """Writes a project into a new or empty directory and returns its files. ``source`` has options of the source."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ProjectError(f"{directory} exists and is not an empty directory")
    root = directory.resolve()
    values = {
        "NAME": root.name,
        "STORAGE": _quoted((root / "storage").as_uri()),
        "TABLES": str(root / "tables"),
        "METASTORE": str(root / "metastore"),
        "SETTINGS": "\n".join(f"  {SOURCE_PREFIX}{name}: {_quoted(value)}" for name, value in sorted(source.items())),
    }
    written = []
    for path, text in _templates(files("barnabas.spark.pipelines") / TEMPLATE):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_PLACEHOLDER.sub(lambda found: values[found[1]], text), encoding="utf-8")
        written.append(file)
    return written


def run_project(directory: Path, arguments: Sequence[str], show: Callable[[str], None]) -> None:
    """Runs ``spark-pipelines`` with arguments in a project, and passes each event of the run to ``show``."""
    if not (directory / SPEC).is_file():
        raise ProjectError(f"{directory} has no {SPEC}: barnabas pipeline init makes a project")
    bash = shutil.which("bash")
    if bash is None:
        raise ProjectError("spark-pipelines is a script for bash, which is not on the path")
    with subprocess.Popen(  # noqa: S603 - a program of the installed Spark
        [bash, str(spark_home() / "bin" / "spark-pipelines"), *arguments],
        cwd=directory,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that all of its processes can be ended together
    ) as process:
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            for line in process.stdout:
                event = _EVENT.match(line)
                if event is not None:
                    show(event[1])
                elif not line.startswith("WARNING: "):
                    last.append(line.removeprefix('Exception in thread "main" '))
        except BaseException:
            # Ctrl-C: the launcher, the Python process and the server would go on without it.
            os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        if os.environ.get("BARNABAS_DEBUG"):
            sys.stderr.writelines(last)
        raise PipelineError(failure_of("".join(last)))


def failure_of(output: str) -> str:
    """Returns the line of the output that says why ``spark-pipelines`` failed."""
    if "BindException" in output:
        return (
            "port 15002 is in use: another run, or a Spark Connect server, is on this machine; "
            "wait until it ends, or name the server with --remote"
        )
    cause = cause_of(RuntimeError(output))
    if cause.endswith(":"):
        # The message begins on the next line.
        after = (line.strip() for line in output.rpartition(cause)[2].splitlines())
        return f"{cause} {next(filter(None, after), '')}".rstrip()
    return cause


def environment(directory: Path) -> dict[str, str]:
    """Returns the environment of ``spark-pipelines``. Variables that are set stay, except the home of another Spark."""
    own = dict(os.environ)
    own["SPARK_HOME"] = str(spark_home())
    own.setdefault("PYSPARK_PYTHON", sys.executable)
    own.setdefault("PYSPARK_DRIVER_PYTHON", own["PYSPARK_PYTHON"])
    own.setdefault("JAVA_HOME", str(require_java().home))
    if "SPARK_CONF_DIR" not in own and (directory / "conf").is_dir():
        own["SPARK_CONF_DIR"] = str((directory / "conf").resolve())
    own.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return own


def spark_home() -> Path:
    """Returns the directory of the installed PySpark; raises `ProjectError` if a package is missing."""
    for module in ("pyspark", "grpc", "yaml"):
        if find_spec(module) is None:
            raise ProjectError(f"{module} is missing: pip install 'barnabas[spark]' 'pyspark[pipelines]'")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _templates(root: Traversable, below: Path = Path()) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for entry in sorted(root.iterdir(), key=lambda one: one.name):
        path = below / entry.name
        if entry.name == "__pycache__":
            continue
        found += _templates(entry, path) if entry.is_dir() else [(path, entry.read_text(encoding="utf-8"))]
    return found


def _quoted(text: str) -> str:
    """Returns a YAML string."""
    return json.dumps(text)
