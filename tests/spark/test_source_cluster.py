"""The source on a real cluster: a master, two workers, and the package as a wheel installed beside them (S09)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.conftest import unavailable
from spark.topics import Topics

pytestmark = [pytest.mark.mechanism("S09"), pytest.mark.nightly]

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 400


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which the wheel of this source tree was installed.

    It is built from a copy, for a build leaves files in its tree.
    """
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"
    shutil.copytree(
        _ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(tree)]
    subprocess.run(build, check=True, timeout=_SECONDS, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    target = directory / "installed"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
        timeout=_SECONDS,
        capture_output=True,
    )
    return target


@pytest.fixture(scope="module")
def environment(installed: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }


@pytest.fixture(scope="module")
def master(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two workers with one core each."""
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    directory = tmp_path_factory.mktemp("cluster")
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for number in (1, 2):
        work = str(directory / f"worker-{number}")
        resources = ["--cores", "1", "--memory", "600m", "--work-dir", work]
        commands.append([f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", *resources, address])
    log = directory / "log"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            processes.extend(
                subprocess.Popen([str(spark_class), *command], env=environment, stdout=output, stderr=output)
                for command in commands
            )
        deadline = time.monotonic() + _SECONDS
        while log.read_text(errors="replace").count("Registering worker") < 2:
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def test_batch_and_stream_on_a_cluster(
    master: str, environment: dict[str, str], installed: Path, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    for partition in (0, 1):
        topics.send(topic, map(str, range(1000)), partition=partition)
    program = Path(__file__).with_name("cluster_program.py")
    completed = subprocess.run(
        [sys.executable, str(program), master, topics.bootstrap_servers, topic, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    found = json.loads(completed.stdout.splitlines()[-1])
    assert {name: found[name] for name in ("batch", "distinct", "streamed", "streamed distinct")} == {
        "batch": 2000,
        "distinct": 2000,
        "streamed": 2000,
        "streamed distinct": 2000,
    }
    assert len(found["executors"]) == 2
    assert found["packages"] == [str(installed / "barnabas" / "__init__.py")]
