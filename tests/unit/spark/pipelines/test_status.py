"""The status of pipelines, and the metrics of queries."""

from __future__ import annotations

import io
import os
import socket
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.prometheus import render_prometheus
from barnabas.spark.pipelines.config import TableOptions
from barnabas.spark.pipelines.progress import BatchProgress, LineProgress
from barnabas.spark.pipelines.query_metrics import QueryMetrics, serve_metrics
from barnabas.spark.pipelines.status import (
    HEARTBEAT_MS,
    Cluster,
    PipelineStatus,
    StatusDisplay,
    explain,
    records_behind,
)
from barnabas.spark.pipelines.tables import BatchState, TableStore

pytestmark = pytest.mark.mechanism("S14")

REPORT: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 1_200,
    "inputRowsPerSecond": 100.0,
    "processedRowsPerSecond": 400.0,
    "batchDuration": 3_000,
    "sources": [{"endOffset": '{"t":{"0":5}}', "latestOffset": {"t": {"0": 8, "1": 2}}}],
    "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 900}, {"numRowsTotal": 1, "memoryUsedBytes": 100}],
}
NOW_MS = 1_000_000_000
ALIVE = PipelineStatus(
    "requests",
    "running",
    socket.gethostname(),
    os.getpid(),
    updated_ms=NOW_MS,
    batch_id=3,
    last_batch_ms=NOW_MS - 90_000,
    behind=0,
    activity="Waiting for next trigger",
    activity_since_ms=NOW_MS - 80_000,
    offsets={"t": {"0": 5}},
)


@pytest.mark.parametrize(
    ("status", "cluster", "state", "why"),
    [
        (ALIVE, Cluster(), "running", "up to date; no new records for 1 min 30 s"),
        (
            replace(ALIVE, rows_per_second=10.0),
            Cluster({"t": {"0": 1_005}}),
            "running",
            "1,000 records behind at 10/s: up to date in 1 min 40 s",
        ),
        (
            replace(ALIVE, rows_per_second=10.0, input_rows_per_second=40.0, behind=7),
            Cluster(),
            "falling behind",
            "7 records behind; processes 10/s, and 40/s arrive",
        ),
        (
            replace(ALIVE, behind=7, activity="Processing new data"),
            Cluster(),
            "slow",
            "7 records behind; the current batch has been running for 1 min 20 s",
        ),
        (ALIVE, Cluster(error="h:1: refused"), "stuck", "the cluster cannot be reached: h:1: refused"),
        (
            replace(ALIVE, state="failed", error="ValueError: no", updated_ms=NOW_MS - 5_000),
            Cluster(error="down"),
            "failed",
            "failed 5 s ago, after batch 3: ValueError: no",
        ),
        (
            replace(ALIVE, state="ended", updated_ms=NOW_MS - 7_200_000),
            Cluster({"t": {"0": 9}}),
            "ended",
            "ended 2 h 0 min ago, after batch 3; 4 records are waiting for the next run",
        ),
        (
            replace(ALIVE, state="starting", batch_id=None, activity="Initializing sources"),
            Cluster(),
            "starting",
            "no batch has ended yet; Initializing sources for 1 min 20 s",
        ),
    ],
)
def test_the_status_says_why(status: PipelineStatus, cluster: Cluster, state: str, why: str) -> None:
    assert explain(status, cluster, NOW_MS) == (state, why)


def test_a_process_that_has_vanished_is_dead() -> None:
    elsewhere = replace(ALIVE, host="other.example", pid=7)
    assert explain(elsewhere, Cluster(), NOW_MS)[0] == "running"
    state, why = explain(elsewhere, Cluster(), NOW_MS + 61_000)
    assert state == "dead"
    assert "process 7 on other.example ended 1 min 1 s ago" in why
    child = os.fork() if hasattr(os, "fork") else None
    if child is None:
        pytest.skip("needs fork")
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert explain(replace(ALIVE, pid=child), Cluster(), NOW_MS)[0] == "dead"


def test_lag_is_that_of_now_if_the_cluster_responds() -> None:
    status = replace(ALIVE, behind=3)
    assert records_behind(status, Cluster({"t": {"0": 15, "1": 4}})) == 14
    assert records_behind(status, Cluster(error="down")) == 3


def test_a_running_pipeline_writes_its_status(tmp_path: Path) -> None:
    clock = MockClock()
    store = TableStore(str(tmp_path), TableOptions(), "requests")
    metrics = QueryMetrics(clock)
    stream = io.StringIO()

    def status() -> PipelineStatus:
        said = store.status()
        assert said is not None
        return PipelineStatus.from_json(said)

    def fail_in_a_later_batch() -> None:
        with StatusDisplay(LineProgress(stream), lambda: store, PipelineStatus("r"), metrics, clock) as display:
            assert status().state == "starting"
            store.set_state(BatchState("q", 3, {}, 6))
            display.batch("r", BatchProgress.of(REPORT))
            found = status()
            assert (found.state, found.batch_id, found.behind, found.dead_letters) == ("running", 3, 5, 6)
            assert (found.state_rows, found.state_bytes, found.offsets) == (8, 1_000, {"t": {"0": 5}})
            clock.advance(HEARTBEAT_MS)
            display.activity("r", "Waiting for next trigger")
            assert status().updated_ms == clock.milliseconds()
            raise RuntimeError("it broke")

    store.set_state(BatchState("q", 2, {}, 4))
    with pytest.raises(RuntimeError):
        fail_in_a_later_batch()
    found = status()
    assert (found.state, found.error, found.activity) == ("failed", "it broke", "Waiting for next trigger")
    assert "batch 3" in stream.getvalue()
    page = render_prometheus(metrics)
    assert 'barnabas_pipeline_dead_letters_total{pipeline="r"} 2' in page
    assert 'barnabas_pipeline_failed{pipeline="r"} 1' in page


def test_metrics_of_a_query_are_on_the_page() -> None:
    metrics = QueryMetrics()
    metrics.batch("requests", BatchProgress.of(REPORT))
    metrics.batch("requests", BatchProgress.of({**REPORT, "batchId": 4, "numInputRows": 300}))
    with serve_metrics("127.0.0.1:0", metrics) as address, urllib.request.urlopen(f"{address}/metrics") as response:
        page = response.read().decode()
    for line in (
        'barnabas_pipeline_lag_records{pipeline="requests"} 5',
        'barnabas_pipeline_input_rows_per_second{pipeline="requests"} 100',
        'barnabas_pipeline_processed_rows_per_second{pipeline="requests"} 400',
        'barnabas_pipeline_rows_total{pipeline="requests"} 1500',
        'barnabas_pipeline_state_rows{pipeline="requests"} 8',
        'barnabas_pipeline_state_bytes{pipeline="requests"} 1000',
        'barnabas_pipeline_batch_id{pipeline="requests"} 4',
        'barnabas_pipeline_dead_letters_total{pipeline="requests"} 0',
        'barnabas_pipeline_failed{pipeline="requests"} 0',
    ):
        assert line in page.splitlines() or f"{line}.0" in page.splitlines(), page
