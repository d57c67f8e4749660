"""Pushes of clients as points and roll-ups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import dead_letters, mark_late
from barnabas.spark.pipelines.rollup import percentiles
from barnabas.spark.pipelines.telemetry import TELEMETRY, by_minute
from barnabas.spark.pipelines.telemetry_pushes import parse_pushes
from spark.pipeline_records import SECOND, START_US, moment, push, raw_frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S05")

CONFIG = PipelineConfig(out="nowhere", sketch_k=200)
LATENCY = "org.apache.kafka.producer.request.latency.avg"
TOTAL = "org.apache.kafka.producer.record.send.total"


def test_pushes_become_points_and_roll_ups(spark: SparkSession) -> None:
    rows: list[Any] = [
        push(place, START_US + place * SECOND, {LATENCY: float(place), TOTAL: 10.0}) for place in range(120)
    ]
    rows.append(push(120, START_US, {LATENCY: 7.0}, client_id=None, principal=None, terminating="true"))
    rows.append(push(121, START_US, {}))
    wrong = {
        200: push(200, START_US, {}, schema_version="2"),
        201: push(201, START_US, {}, content_type="JSON"),
        202: push(202, START_US, {}, node_id="one"),
        203: record(
            "__client_telemetry",
            203,
            START_US,
            b"\xff\xff\xff",
            headers={"schema_version": "1", "content_type": "OTLP"},
        ),
        204: record("__client_telemetry", 204, START_US, b""),
    }
    parsed = TELEMETRY.parse(mark_late(raw_frame(spark, rows + list(wrong.values())), {}, 0), CONFIG).persist()
    reasons = {row["offset"]: row for row in dead_letters(parsed).collect()}
    assert {offset: row["reason"].split(" ")[0] for offset, row in reasons.items()} == {
        200: "schema_version",
        201: "content_type",
        202: "node_id",
        203: "Invalid",
        204: "schema_version",
    }
    assert bytes(reasons[203]["value"]) == b"\xff\xff\xff"

    tables = TELEMETRY.rows(parsed.where("problem is null"), CONFIG)
    points = tables["points"].persist()
    assert points.count() == 241
    first = points.where(f"client_id = 'alpha' and metric = '{LATENCY}'").orderBy("timestamp").first()
    assert first is not None
    assert (first["value"], first["kind"], first["principal"]) == (0.0, "gauge", "User:ANONYMOUS")
    assert json.loads(first["attributes"]) == {"client_rack": "r1"}
    assert first["time"] == moment(START_US).replace(tzinfo=None)
    nameless = points.where("client_id is null").collect()
    assert [(row["principal"], row["terminating"], row["value"]) for row in nameless] == [(None, True, 7.0)]

    minutes = {
        (row["window_start"].minute, row["client_id"], row["metric"]): row for row in tables["metrics_1m"].collect()
    }
    assert len(minutes) == 5
    row = minutes[1, "alpha", LATENCY]
    assert (row["count"], row["sum"], row["min"], row["max"], row["p50"]) == (60, sum(range(60, 120)), 60, 119, 89)
    assert minutes[0, "alpha", TOTAL]["temporality"] == "delta"
    hours = {(row["client_id"], row["metric"]): row for row in tables["metrics_1h"].collect()}
    row = hours["alpha", LATENCY]
    assert (row["count"], row["sum"], row["p50"], row["p99"]) == (120, sum(range(120)), 59, 118)
    assert hours["alpha", TOTAL]["sum"] == 1_200
    whole = percentiles(tables["metrics_1m"].where(f"metric = '{LATENCY}'"), ["metric"], {"p90": 0.9}).collect()[0]
    assert (whole["count"], whole["p90"]) == (121, 107)


def test_histograms_and_what_is_no_number(spark: SparkSession) -> None:
    """A histogram counts by its mean; a value that is none, or is not known, is a point and in no roll-up."""
    columns = "timestamp timestamp, metric string, kind string, value double, count bigint"
    other = ("client_instance_id", "client_id", "principal", "client_software_name", "client_software_version")
    rows = [
        (moment(START_US), "h", "histogram", 30.0, 10),
        (moment(START_US), "h", "histogram", 0.0, 0),
        (moment(START_US), "h", "histogram", float("nan"), None),
        (moment(START_US), "h", "histogram", None, None),
    ]
    frame = spark.createDataFrame(rows, columns)
    for name in (*other, "temporality", "attributes"):
        frame = frame.selectExpr("*", f"cast(null as string) as {name}")
    (row,) = by_minute(frame, CONFIG).collect()
    assert (row["count"], row["sum"], row["p50"]) == (1, 3.0, 3.0)


def test_no_rows_make_no_batches() -> None:
    assert len(parse_pushes(pa.array([], pa.struct([])))) == 0
