"""Source and pipelines on a real cluster: a master, two workers, and the wheel installed beside them (S09)."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import fastavro
import pytest
from benchmarks.waiting import until
from deltalake import DeltaTable

from barnabas.quota.config import QuotaWindows
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.lake import LakeConfig, build
from barnabas.spark.pipelines.lake_values import ValueSettings, value_format
from barnabas.spark.pipelines.progress import LineProgress
from barnabas.spark.pipelines.quota_advice import AdviceOptions, proposals
from barnabas.spark.pipelines.quota_dry_run import DryRunOptions
from barnabas.spark.pipelines.quota_proposal import Tenancy
from barnabas.spark.pipelines.quotas import noisy_neighbours
from barnabas.spark.pipelines.runner import (
    ADVICE,
    DRY_RUN,
    STREAMS,
    TABLES,
    read_table,
    run_advice,
    run_dry_run,
    run_stream,
)
from barnabas.spark.pipelines.topics import ensure_topics
from clients.broker_process import BrokerProcess
from spark.conftest import unavailable
from spark.pipeline_records import SECOND
from spark.pipeline_workload import (
    PARTS,
    SECONDS_PER_PART,
    Rows,
    comparable_rows,
    pushes,
    quota_usage,
    request_log,
    write_records,
)
from spark.standalone_cluster import SECONDS, WORKERS, StandaloneCluster
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.mechanism("S09"), pytest.mark.nightly]

_ROOT = Path(__file__).resolve().parents[2]
_TABLES = "tables"
"""Where a command makes them, from where it is run: executors run elsewhere, and have to find the same directory."""


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
    shutil.copytree(_ROOT / "tools", tree / "tools")  # setup.py makes the package's page with one of them
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(tree)]
    subprocess.run(build, check=True, timeout=SECONDS, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    target = directory / "installed"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
        timeout=SECONDS,
        capture_output=True,
    )
    return target


@pytest.fixture(scope="module")
def cluster(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYSPARK_PYTHON": sys.executable}
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), environment) as cluster:
        yield cluster


@pytest.mark.parametrize("with_connect", [False, True], ids=["classic", "connect"])
def test_batch_and_stream_on_a_cluster(
    with_connect: bool,
    cluster: StandaloneCluster,
    installed: Path,
    topics: Topics,
    topic: str,
    tmp_path: Path,
) -> None:
    """With Spark Connect the server is the driver, and the user's program knows nothing but its address."""
    topics.create(topic, 2)
    for partition in (0, 1):
        topics.send(topic, map(str, range(1000)), partition=partition)
    program = Path(__file__).with_name("cluster_program.py")
    with cluster.connect_server(tmp_path) if with_connect else nullcontext(cluster.master) as master:
        completed = subprocess.run(
            [sys.executable, str(program), master, topics.bootstrap_servers, topic, str(tmp_path)],
            env=cluster.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
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
    assert len(found["executors"]) == WORKERS
    assert found["packages"] == [str(installed / "barnabas" / "__init__.py")]


@pytest.fixture
def quiet_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that writes nothing about requests itself, so that the topics have what the test puts there."""
    with BrokerProcess(tmp_path, {"barnabas.request.log.sample.rate": "0.0"}) as broker:
        yield broker


class Pipelines(NamedTuple):
    """The command on the cluster, and the same in this process, with a broker and directories of their own."""

    cluster: StandaloneCluster
    spark: SparkSession
    topics: Topics
    directory: Path

    @property
    def on_cluster(self) -> Path:
        return self.directory / _TABLES

    @property
    def local(self) -> Path:
        return self.directory / "local"

    @property
    def config(self) -> PipelineConfig:
        return PipelineConfig(out=str(self.local), bootstrap_servers=self.topics.bootstrap_servers, once=True)

    def run(self, name: str, part: int, *arguments: str) -> None:
        """Reads what is new: one batch, after those of the runs before it."""
        address = ("--bootstrap-server", self.topics.bootstrap_servers)
        # More tasks than the topic has partitions, so that all executors have something to do.
        reading = ("--once", "--option", "minPartitions=4", *address)
        said = self.command(name, *reading, *arguments)
        assert re.findall(r": batch (\d+): ", said) == [str(part)], said

    def command(self, name: str, *arguments: str) -> str:
        """What it says, with a directory for its tables that is relative to where it runs."""
        completed = self.cluster.command(self.directory, "pipeline", "run", name, "--out", _TABLES, *arguments)
        return completed.stderr + completed.stdout

    def stream(self, name: str, make_part: Callable[[int], Rows]) -> None:
        """Runs a pipeline on the cluster for each part of its input, and here for all of it at once."""
        topics = STREAMS[name].topics
        ensure_topics({"kafka.bootstrap.servers": self.topics.bootstrap_servers}, topics)
        for part in range(PARTS):
            write_records(self.topics.bootstrap_servers, make_part(part))
            self.run(name, part)
        run_stream(self.spark, name, self.config, LineProgress())

    def same_tables(self, name: str) -> dict[str, list[str]]:
        """The rows of all tables of a pipeline, which are the same on the cluster and here."""
        found = {table.name: comparable_rows(self.table(name, table.name)) for table in TABLES[name]}
        for table, rows in found.items():
            assert rows == comparable_rows(read_table(self.spark, str(self.local), name, table)), table
            assert rows, table
        return found

    def table(self, name: str, table: str) -> DataFrame:
        """A table as the cluster has made it."""
        return read_table(self.spark, str(self.on_cluster), name, table)

    def total(self, name: str, table: str, column: str) -> float:
        return float(self.table(name, table).agg({column: "sum"}).collect()[0][0])


@pytest.fixture
def pipelines(
    cluster: StandaloneCluster, spark: SparkSession, quiet_broker: BrokerProcess, tmp_path: Path
) -> Pipelines:
    return Pipelines(cluster, spark, Topics(quiet_broker.bootstrap_servers), tmp_path)


@pytest.fixture
def start_us() -> int:
    """Not so long ago that the broker would remove it."""
    return int(time.time()) * SECOND - 600 * SECOND


def test_telemetry_on_a_cluster(pipelines: Pipelines, start_us: int) -> None:
    pipelines.stream("telemetry", lambda part: pushes(start_us, part))
    found = pipelines.same_tables("telemetry")
    pushed = PARTS * SECONDS_PER_PART * 2 * 3
    assert len(found["points"]) == 2 * pushed
    assert pipelines.total("telemetry", "metrics_1m", "count") == 2 * pushed
    assert pipelines.total("telemetry", "metrics_1h", "count") == 2 * pushed
    reasons = [row["reason"].split()[0] for row in pipelines.table("telemetry", "dead_letters").collect()]
    assert sorted(reasons) == sorted(["Invalid", "schema_version"] * PARTS)


def test_requests_on_a_cluster(pipelines: Pipelines, start_us: int) -> None:
    pipelines.stream("requests", lambda part: request_log(start_us, part))
    found = pipelines.same_tables("requests")
    sent = PARTS * SECONDS_PER_PART * 10 * 4
    assert pipelines.total("requests", "counts_1m", "requests") == sent
    for table in ("latency_1m", "latency_1h"):
        rows = pipelines.table("requests", table).where("part = 'total'").collect()
        assert sum(row["count"] for row in rows) == sent
    assert len(found["dead_letters"]) == PARTS


def test_quotas_on_a_cluster(pipelines: Pipelines, start_us: int) -> None:
    """Also advice, and a dry run of what is advised."""
    pipelines.stream("quotas", lambda part: quota_usage(start_us, part) + request_log(start_us, part))
    found = pipelines.same_tables("quotas")
    assert len(found["traffic"]) == PARTS * SECONDS_PER_PART * 10 * 4
    assert len(found["usage"]) == PARTS * 3
    assert len(found["dead_letters"]) == PARTS * 2
    # As often as the log says, and as long as the exact figures say.
    assert pipelines.total("quotas", "tenants_1m", "throttled") == PARTS * SECONDS_PER_PART * 2
    assert pipelines.total("quotas", "usage", "throttle_ms") == PARTS * 16 * 40
    ours, theirs = (
        comparable_rows(noisy_neighbours(read_table(pipelines.spark, str(out), "quotas", "tenants_1m"), at_least=1.5))
        for out in (pipelines.on_cluster, pipelines.local)
    )
    assert ours == theirs
    assert all("noisy-1" in row for row in ours)
    assert ours

    windows = ("--windows", "3x1", "--by", "user")
    said = pipelines.command(ADVICE, "--capacity", "producer_byte_rate=100kB", *windows)
    assert "well-behaved" in said
    spark, local = pipelines.spark, str(pipelines.local)
    options = AdviceOptions({"producer_byte_rate": 100_000}, Tenancy.USER, windows=QuotaWindows(3, 1))
    advice = run_advice(spark, local, options)
    pipelines.same_tables(ADVICE)
    verdicts = {row["user"]: (row["verdict"], row["limit"]) for row in advice.collect()}
    assert verdicts["noisy"] == ("noisy", 60_000)
    assert {verdicts["quiet"][0], verdicts["middle"][0]} == {"well-behaved"}

    pipelines.command(DRY_RUN, "--advised", *windows)
    limits = tuple(proposals(advice, Tenancy.USER))
    run_dry_run(spark, local, DryRunOptions(limits, windows=QuotaWindows(3, 1)))
    pipelines.same_tables(DRY_RUN)
    held_back = {row["user"] for row in pipelines.table(DRY_RUN, "summary").collect() if row["throttle_ms"]}
    assert held_back == {"noisy"}


_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "of", "type": "string"}],
}


def _avro(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(_AVRO), {"id": number, "of": "somebody"})
    return stream.getvalue()


def _lake_rows(place: Path) -> list[dict[str, Any]]:
    """As others read the table, who know nothing of us."""
    table = DeltaTable(place).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def test_a_lake_on_a_cluster(pipelines: Pipelines, topic: str, start_us: int) -> None:
    """Its values have a schema, and the file that it is in is where the command runs."""
    pipelines.topics.create(topic, 2)
    schema = pipelines.directory / "order.avsc"
    schema.write_text(json.dumps(_AVRO))
    for part in range(PARTS):
        for number in range(60):
            time_ms = start_us // 1_000 + number
            pipelines.topics.send(topic, [_avro(number)], partition=number % 2, timestamp=time_ms)
        pipelines.topics.send(topic, [b"\xff"], timestamp=start_us // 1_000)
        pipelines.run("lake", part, "--topic", topic, "--values", "avro", "--schema", schema.name)
    query = build(
        pipelines.spark, LakeConfig(pipelines.config, (topic,), values=value_format(ValueSettings("avro", str(schema))))
    )
    assert query.awaitTermination(SECONDS)

    places = [out / "lake" / topic for out in (pipelines.on_cluster, pipelines.local)]
    ours, theirs = map(_lake_rows, places)
    assert ours == theirs
    assert [row["value"]["id"] for row in ours] == [*range(0, 60, 2)] * PARTS + [*range(1, 60, 2)] * PARTS
    ours, theirs = (_lake_rows(place / "_dead_letters") for place in places)
    assert ours == theirs
    assert [row["value"] for row in ours] == [b"\xff"] * PARTS


def test_a_killed_executor_loses_and_repeats_nothing(pipelines: Pipelines, topic: str) -> None:
    """Executors are killed at their start, while a batch writes its files, and after a batch."""
    records, batches = 6_000, 6
    pipelines.topics.create(topic, 2)
    for partition in (0, 1):
        pipelines.topics.send(topic, map(str, range(records // 2)), partition=partition)
    place = pipelines.on_cluster / "lake" / topic
    reading = ("--once", "--option", "minPartitions=4", "--option", f"maxOffsetsPerTrigger={records // batches}")
    command = ("pipeline", "run", "lake", "--topic", topic, "--out", _TABLES, *reading)
    killed: set[int] = set()

    def kill_another() -> bool:
        """Kills an executor of those that were not killed yet."""
        for pid in set(pipelines.cluster.executor_pids()) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            return True
        return False

    with pipelines.cluster.started(
        pipelines.directory, *command, "--bootstrap-server", pipelines.topics.bootstrap_servers
    ) as process:

        def said() -> str:
            return f"{process.poll()}, {len(killed)} executors were killed"

        # A step of the pipeline, after which an executor is killed.
        for is_reached in (
            lambda: True,
            lambda: any(place.glob("date=*/batch-000000001-*")),
            (place / "_delta_log" / f"{4:020d}.json").exists,
        ):
            until(lambda step=is_reached: process.poll() is not None or step(), said, SECONDS)  # type: ignore[misc]
            assert process.poll() is None, said()
            until(kill_another, said, SECONDS)
        assert process.wait(SECONDS) == 0, said()
    assert len(killed) == 3
    files = DeltaTable(place).file_uris()
    counts = 'select count(*), count(distinct (partition, "offset")) from read_parquet($files)'
    assert duckdb.execute(counts, {"files": files}).fetchall() == [(records, records)]
