"""Pushes of client telemetry as rows: a client decides what is in them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
from opentelemetry.proto.metrics.v1 import metrics_pb2

from barnabas.spark.pipelines.telemetry_pushes import parse_pushes

RECEIVED = dt.datetime(2026, 11, 18, tzinfo=dt.UTC)
HEADERS = [{"key": "schema_version", "value": b"1"}, {"key": "content_type", "value": b"OTLP"}]


def push(offset: int, count: int) -> dict[str, Any]:
    """A push with one histogram."""
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="latency")
    metric.histogram.data_points.add(count=count, sum=1.0, time_unix_nano=2**64 - 1)
    origin = {"topic": "__client_telemetry", "partition": 0, "offset": offset, "timestamp": RECEIVED}
    return {**origin, "problem": None, "key": b"k", "value": data.SerializeToString(), "headers": HEADERS}


def test_a_count_that_does_not_fit_makes_only_its_push_unreadable() -> None:
    pushes = [push(0, 3), push(1, 2**64 - 1), push(2, 2**63 - 1)]
    good, bad, largest = (rows[0] for rows in parse_pushes(pa.array(pushes)).to_pylist())
    assert (good["offset"], good["count"], good["problem"]) == (0, 3, None)
    assert (largest["offset"], largest["count"], largest["problem"]) == (2, 2**63 - 1, None)
    assert (bad["offset"], bad["key"], bad["value_bytes"]) == (1, b"k", pushes[1]["value"])
    assert bad["problem"].startswith("a value does not fit its column: ")
