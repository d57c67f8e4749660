"""``barnabas pipeline status`` and the metrics of running queries, on a broker and with Spark."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.cli.cluster import Cluster
from barnabas.cli.main import run
from barnabas.cli.pipeline_lake import run_topic_table
from barnabas.cli.pipeline_status import observed
from barnabas.metrics.prometheus import render_prometheus
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.lake import LakeConfig
from barnabas.spark.pipelines.lake_values import ValueSettings, value_format
from barnabas.spark.pipelines.progress import LineProgress
from barnabas.spark.pipelines.query_metrics import watch_queries
from barnabas.spark.pipelines.runner import PipelineError
from barnabas.spark.pipelines.status import PipelineStatus
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S14")
LIMIT_S = 180


def run_once(spark: SparkSession, config: LakeConfig, bootstrap: str) -> None:
    shown = observed(LineProgress(io.StringIO()), f"lake/{config.name}", config.store, Cluster(bootstrap), None)
    with shown as display:
        run_topic_table(spark, config, display, threading.Event())


def test_the_status_says_how_far_a_pipeline_is_and_why_it_failed(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(*arguments: str) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        code = run(["pipeline", "status", "--out", str(tmp_path), "--json", *arguments])
        said = capsys.readouterr()
        assert said.out, said.err
        (row,) = json.loads(said.out)
        return code, row, said.err

    topics.create(topic)
    topics.send(topic, ['{"id": 1}', "no JSON", '{"id": 2}'])
    pipeline = PipelineConfig(out=str(tmp_path), bootstrap_servers=topics.bootstrap_servers, once=True)
    config = LakeConfig(pipeline, (topic,), None, value_format(ValueSettings("json", "id bigint")))
    run_once(spark, config, topics.bootstrap_servers)
    code, row, _ = status()
    assert (code, row["pipeline"], row["state"], row["behind"]) == (0, f"lake/{topic}", "ended", 0)
    assert row["dead_letters"] == 1
    topics.send(topic, ['{"id": 3}'] * 5)
    assert status()[1]["why"].endswith("after batch 0; 5 records are waiting for the next run")
    topics.delete_records(topic, 0, 6)
    with pytest.raises(PipelineError):
        run_once(spark, config, topics.bootstrap_servers)
    code, row, error = status(f"lake/{topic}")
    assert (code, row["state"]) == (1, "failed")
    assert "DataLoss" in row["why"]
    assert f"1 of 1 pipelines need attention: lake/{topic}" in error
    running = PipelineStatus("x", "running", socket.gethostname(), os.getpid(), offsets={topic: {"0": 1}})
    config.store().set_status(running.to_json())
    code, row, _ = status("-b", "127.0.0.1:1")
    assert (code, row["state"]) == (1, "stuck")
    assert "the cluster cannot be reached: 127.0.0.1:1" in row["why"]
    assert run(["pipeline", "status", "nonsense", "--out", str(tmp_path)]) == 2
    assert run(["pipeline", "status", "--out", str(tmp_path / "empty")]) == 1


def test_queries_of_any_session_have_metrics(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic)
    topics.send(topic, ["a", "b", "c"])
    options = {"kafka.bootstrap.servers": topics.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    with watch_queries(spark) as metrics:
        stream = spark.readStream.format("barnabas").options(**options).load().groupBy("value").count()
        writer = stream.writeStream.format("memory").outputMode("complete").queryName("counted")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(LIMIT_S)
        wanted = [
            'barnabas_pipeline_rows_total{pipeline="counted"} 3',
            'barnabas_pipeline_lag_records{pipeline="counted"} 0',
            'barnabas_pipeline_state_rows{pipeline="counted"} 3',
        ]
        pause = threading.Event()
        page: list[str] = []
        for _ in range(LIMIT_S * 20):  # Spark reports on another thread
            page = render_prometheus(metrics).splitlines()
            if all(any(line.startswith(one) for line in page) for one in wanted):
                break
            pause.wait(0.05)
        else:
            pytest.fail("\n".join(page))


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_no_status_is_an_error_in_either_form(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert run(["pipeline", "status", "--out", str(tmp_path), *options]) == 1
    said = capfd.readouterr()
    assert said.out == ("[]\n" if options else "")
    assert said.err == f"error: no pipeline has written its status to {tmp_path}\n"
