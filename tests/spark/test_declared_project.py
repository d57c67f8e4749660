"""Declared projects: written by ``barnabas pipeline init``, run by ``spark-pipelines``, read without Spark.

The commands are those of the project's ``README.md``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import EmbeddedBroker, KafkaConsumer, KafkaProducer, TopicPartition
from barnabas.cli.main import run
from barnabas.cli.quota_requests import alter_quotas
from barnabas.cli.telemetry_requests import alter_subscription
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.topic_names import QUOTA_USAGE_TOPIC
from barnabas.spark.pipelines.declared import expect, usable, with_json
from barnabas.spark.pipelines.project import run_project
from barnabas.spark.pipelines.runner import PipelineError
from spark.conftest import unavailable
from spark.declared_projects import Project
from spark.pipeline_records import START_US, raw_frame, record
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S11")

ORDERS: list[dict[str, Any]] = [
    {"id": 1, "customer": "anna", "total": 12.5},
    {"id": 2, "customer": "anna", "total": 7.5},
    {"id": 3, "customer": "berta", "total": -1.0},
    {"id": None, "customer": "carla", "total": 1.0},
]
SOME_TABLES = "order_records,orders,revenue_by_customer,request_log,counts_1m,client_telemetry,quota_usage,dead_letters"


@pytest.fixture
def embedded(connect_port: None) -> Iterator[str]:
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    overrides = {"barnabas.request.log.sample.rate": "1.0", "barnabas.quota.usage.interval.ms": "1000"}
    with EmbeddedBroker(overrides=overrides) as broker:
        yield broker.bootstrap_servers


def send_orders(bootstrap: str, orders: list[dict[str, Any]]) -> None:
    Topics(bootstrap).send("orders", [json.dumps(order) for order in orders])


def wait_for_records(bootstrap: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    pause = threading.Event()
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        for _ in range(3_000):
            if topic in consumer.list_topics() and consumer.end_offsets([place])[place] > 0:
                return
            pause.wait(0.1)
    pytest.fail(f"no record in {topic} within 300 s")


def reasons(project: Project) -> list[tuple[str, int, str]]:
    return sorted((row["topic"], row["offset"], row["reason"]) for row in project.rows("dead_letters"))


def test_a_project_makes_tables_and_dead_letters(
    embedded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send_orders(embedded, ORDERS)
    Topics(embedded).send("orders", ["no JSON"])
    project = Project(tmp_path / "shop", embedded)
    assert project.refresh("--tables", SOME_TABLES) == 0
    assert "Run is COMPLETED." in capsys.readouterr().out
    assert len(project.rows("order_records")) == 5
    assert sorted((row["id"], row["total"]) for row in project.rows("orders")) == [(1, 12.5), (2, 7.5)]
    (revenue,) = project.rows("revenue_by_customer")
    assert (revenue["customer"], revenue["orders"], revenue["revenue"]) == ("anna", 2, 20.0)
    assert sum(row["requests"] for row in project.rows("counts_1m") if row["api"] == "Produce") >= 2
    assert reasons(project) == [
        ("orders", 2, "total is negative"),
        ("orders", 3, "id is missing"),
        ("orders", 4, "not JSON, or not of the expected types"),
    ]
    dead = next(row for row in project.rows("dead_letters") if row["offset"] == 4)
    assert dead["value"] == b"no JSON"


@pytest.mark.nightly
def test_a_second_run_reads_only_what_is_new_and_the_dead_letters_are_in_a_topic(
    embedded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send_orders(embedded, ORDERS)
    with BlockingClient(embedded, client_id="operator") as client:
        alter_subscription(client, "all", {"metrics": "*", "interval.ms": "200"})
        alter_quotas(client, (("client-id", "busy"),), {"producer_byte_rate": 1e9})
    with KafkaProducer(bootstrap_servers=embedded, client_id="busy") as producer:
        producer.send("teas", b"assam").result()
    wait_for_records(embedded, QUOTA_USAGE_TOPIC)
    project = Project(tmp_path / "my shop", embedded)
    project.set("spark.barnabas.dead.letter.topic", "rejected")
    assert project.refresh() == 0, capsys.readouterr()
    send_orders(embedded, [{"id": 5, "customer": "dora", "total": 2.0}, {"id": 6, "customer": None, "total": 2.0}])
    assert project.refresh() == 0, capsys.readouterr()
    assert sorted(row["offset"] for row in project.rows("order_records")) == [0, 1, 2, 3, 4, 5]
    assert [row["id"] for row in sorted(project.rows("orders"), key=lambda row: row["id"])] == [1, 2, 5]
    assert [row["reason"] for row in project.rows("dead_letters") if row["offset"] == 5] == ["customer is missing"]
    assert {row["part"] for row in project.rows("latency_1h")} >= {"queue", "total", "throttle"}
    assert "Produce" in {row["api"] for row in project.rows("slow_apis")}
    points = project.rows("points")
    assert {row["client_id"] for row in points} >= {"busy"}
    assert {row["metric"] for row in project.rows("metrics_1h")} == {row["metric"] for row in points}
    assert "busy" in {row["client_id"] for row in project.rows("usage")}
    assert sum(row["produced_bytes"] for row in project.rows("tenants_1m") if row["client_id"] == "busy") > 0
    assert len(project.rows("traffic")) > 1
    with KafkaConsumer("rejected", bootstrap_servers=embedded, auto_offset_reset="earliest") as consumer:
        found: list[Any] = []
        while len(found) < 3:
            polled = consumer.poll(timeout_ms=300_000)
            assert polled, "no record within 300 s"
            found += polled
    headers = [dict(one.headers) for one in found]
    assert sorted((one["offset"], one["reason"]) for one in headers) == [
        (b"2", b"total is negative"),
        (b"3", b"id is missing"),
        (b"5", b"customer is missing"),
    ]


@pytest.mark.nightly
def test_a_dry_run_needs_no_broker_and_a_mistake_is_one_line(
    connect_port: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("java") is None:
        unavailable("Spark needs Java 17 or later")
    project = Project(tmp_path / "shop", "127.0.0.1:1")
    assert project.refresh("--dry-run") == 0, capsys.readouterr()
    (project.directory / "transformations" / "wrong.sql").write_text(
        "CREATE MATERIALIZED VIEW wrong AS SELECT nothing FROM orders;"
    )
    assert project.refresh("--dry-run") == 1
    said = capsys.readouterr().err
    assert "Failed to resolve flows in the pipeline" in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_expectations_name_the_first_problem(spark: SparkSession) -> None:
    values = [b'{"id": 1, "n": 2}', b'{"id": 1, "n": -2}', b'{"n": -2}', b'{"id": "x"}', b"[", None]
    frame = raw_frame(spark, [record("t", offset, START_US, value) for offset, value in enumerate(values)])
    parsed = with_json(frame.selectExpr("*", "cast(null as string) as problem"), "id int, n int")
    judged = expect(parsed, {"id is missing": "record.id is not null", "n is negative": "record.n >= 0"})
    unreadable = "not JSON, or not of the expected types"
    assert [row["problem"] for row in judged.orderBy("offset").collect()] == [
        None,
        "n is negative",
        "id is missing",
        unreadable,
        unreadable,
        "no value",
    ]
    (row,) = usable(judged).select("record.*").collect()
    assert row.asDict() == {"id": 1, "n": 2}


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a project, and puts a script in the place of ``spark-pipelines``."""

    def fake(script: str) -> Path:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "spark-pipelines").write_text(script)
        (tmp_path / "spark-pipeline.yml").write_text("")
        monkeypatch.setattr("barnabas.spark.pipelines.project.spark_home", lambda: tmp_path)
        monkeypatch.setattr("barnabas.spark.pipelines.project.environment", lambda _directory: dict(os.environ))
        return tmp_path

    return fake


def test_an_interrupted_run_leaves_no_process(fake_spark: Callable[[str], Path]) -> None:
    project = fake_spark('sleep 600 & echo "2026-01-01 00:00:00: $$"; wait')
    groups: list[int] = []

    def interrupt(event: str) -> None:
        groups.append(int(event))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_project(project, ["run"], interrupt)
    pause = threading.Event()
    for _ in range(3_000):
        try:
            os.killpg(groups[0], 0)
        except ProcessLookupError:
            return
        pause.wait(0.1)
    pytest.fail("the processes of the run still exist after 300 s")


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ('Exception in thread "main" org.x.SparkException: no such remote', "org.x.SparkException: no such remote"),
        ("WARNING: modules\npyspark.errors.AnalysisException: [GONE] It is gone.", "[GONE] It is gone."),
        (
            "pyspark.errors.AnalysisException: \n\nCannot resolve x.",
            "errors.AnalysisException: Cannot resolve x.",
        ),
        ("java.net.BindException: Failed to bind", "port 15002 is in use"),
    ],
)
def test_a_failed_run_has_one_cause(fake_spark: Callable[[str], Path], output: str, cause: str) -> None:
    project = fake_spark(f"cat <<'END'\n{output}\n\tat org.x.Y(Z.scala:1)\nEND\nexit 1")
    with pytest.raises(PipelineError, match=re.escape(cause)):
        run_project(project, ["run"], lambda _event: None)


def test_the_commands_say_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(*arguments: str) -> str:
        assert run(["pipeline", *arguments]) == 2
        return capsys.readouterr().err

    (tmp_path / "file").write_text("")
    assert "is not an empty directory" in complaint("init", str(tmp_path))
    assert "has no spark-pipeline.yml" in complaint("refresh", str(tmp_path))
    assert "neither --tables nor --full" in complaint("refresh", str(tmp_path), "--dry-run", "--full", "all")
    secret = ("-X", "sasl.jaas.config=org.x.PlainLoginModule required password='tea';")
    assert "would be readable in the project" in complaint("init", str(tmp_path / "new"), *secret)
    assert not (tmp_path / "new").exists()
