"""Source and pipelines on a real cluster: a master, two workers, and the wheel installed beside them (S09)."""

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
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from barnabas.common.topic_names import REQUEST_LOG_TOPIC
from barnabas.spark import register
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.lake import LakeConfig, build
from barnabas.spark.pipelines.progress import LineProgress
from barnabas.spark.pipelines.requests import REQUESTS
from barnabas.spark.pipelines.runner import read_table, run_stream
from barnabas.spark.pipelines.topics import ensure_topics
from clients.broker_process import BrokerProcess
from spark.conftest import unavailable
from spark.pipeline_records import SECOND, request
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.fixture
def quiet_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that does not note requests itself, so that the request log has what the test puts there."""
    with BrokerProcess(tmp_path, {"barnabas.request.log.sample.rate": "0.0"}) as broker:
        yield broker


_SUBMIT_ARGUMENTS = (
    "--conf spark.executor.memory=512m --conf spark.executor.cores=1 --conf spark.sql.shuffle.partitions=2 "
    "--conf spark.scheduler.minRegisteredResourcesRatio=1.0 pyspark-shell"
)
"""What an operator would say of the cluster in ``spark-defaults.conf``."""


def _write_log(bootstrap_servers: str, records: list[tuple[bytes, int]]) -> None:
    """Brokers write to such topics themselves, and let nobody else but administrators do so."""
    settings = {"bootstrap.servers": bootstrap_servers, "client.id": "__admin_client", "enable.metrics.push": False}
    producer = Producer(settings)
    failed: list[Any] = []
    for value, time_us in records:
        producer.produce(
            REQUEST_LOG_TOPIC,
            value,
            timestamp=time_us // 1_000,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failed == []


def _rows(frame: DataFrame) -> list[str]:
    """All but the sketches, whose bytes depend on the order in which they were merged."""
    names = [field.name for field in frame.schema.fields if field.name != "sketch"]
    return sorted(map(str, frame.select(*names).collect()))


def test_pipelines_on_a_cluster(
    master: str,
    environment: dict[str, str],
    installed: Path,
    spark: SparkSession,
    quiet_broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
) -> None:
    """The command, with nothing but the address of a master, makes the tables that it makes on one machine."""
    register(spark)
    topics = Topics(quiet_broker.bootstrap_servers)
    ensure_topics({"kafka.bootstrap.servers": topics.bootstrap_servers}, [REQUEST_LOG_TOPIC])
    orders = topics.create(f"{topic}-orders", 2)
    start_us = int(time.time()) * SECOND - 600 * SECOND  # not so old that the broker would remove it
    log = []
    for number in range(120):
        time_us = start_us + number * 3 * SECOND
        log.append((request(number, time_us, client_id=f"c{number % 3}")[1], time_us))
        topics.send(orders, [f"order {number}"], partition=number % 2, timestamp=time_us // 1_000)
    _write_log(topics.bootstrap_servers, [*log, (b"not JSON", start_us)])
    on_cluster, local = tmp_path / "cluster", tmp_path / "local"

    def run(name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "barnabas.cli.main", "pipeline", "run", name, "--once", "--master", master]
        completed = subprocess.run(
            [*command, "--bootstrap-server", topics.bootstrap_servers, "--out", str(on_cluster), *arguments],
            env={**environment, "PYSPARK_SUBMIT_ARGS": _SUBMIT_ARGUMENTS},
            cwd=installed,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr

    run("requests")
    run("lake", "--topic", orders)

    config = PipelineConfig(out=str(local), bootstrap_servers=topics.bootstrap_servers, once=True)
    run_stream(spark, "requests", config, LineProgress())
    query = build(spark, LakeConfig(config, topics=(orders,)))
    assert query.awaitTermination(_SECONDS)

    for table in REQUESTS.all_tables:
        expected = _rows(read_table(spark, str(local), "requests", table.name))
        assert _rows(read_table(spark, str(on_cluster), "requests", table.name)) == expected
        assert expected, table.name
    places = [out / "lake" / orders for out in (on_cluster, local)]
    ours, theirs = (_rows(spark.read.parquet(str(place))) for place in places)
    assert ours == theirs
    assert len(ours) == 120
