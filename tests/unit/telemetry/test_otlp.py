"""Reading what clients push."""

from __future__ import annotations

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.common.errors import InvalidRecordError
from barnabas.telemetry.otlp import MetricPoint, decode_metrics

pytestmark = pytest.mark.mechanism("Q15")


def sample() -> MetricsData:
    message = MetricsData()
    resource = message.resource_metrics.add()
    rack = resource.resource.attributes.add()
    rack.key, rack.value.string_value = "client_rack", "r1"
    scope = resource.scope_metrics.add()
    total = scope.metrics.add()
    total.name, total.unit, total.description = "org.apache.kafka.producer.record.send.total", "1", "sent"
    total.sum.aggregation_temporality = 1
    total.sum.is_monotonic = True
    for node, value in ((1, 7.0), (2, 9.0)):
        point = total.sum.data_points.add()
        point.as_double = value
        point.time_unix_nano, point.start_time_unix_nano = 2_000, 1_000
        attribute = point.attributes.add()
        attribute.key, attribute.value.int_value = "node_id", node
    gauge = scope.metrics.add()
    gauge.name = "queue"
    gauge.gauge.data_points.add().as_int = 5
    histogram = scope.metrics.add()
    histogram.name = "latency"
    point = histogram.histogram.data_points.add()
    point.count, point.sum = 4, 10.5
    without_sum = histogram.histogram.data_points.add()
    without_sum.count = 3
    summary = scope.metrics.add()
    summary.name = "size"
    quantiles = summary.summary.data_points.add()
    quantiles.count, quantiles.sum = 2, 6.0
    scope.metrics.add().name = "without data"
    return message


def test_all_kinds_of_metrics() -> None:
    points = decode_metrics(sample().SerializeToString())
    assert points[0] == MetricPoint(
        "org.apache.kafka.producer.record.send.total",
        "sum",
        7.0,
        2_000,
        {"node_id": 1},
        {"client_rack": "r1"},
        None,
        1_000,
        "delta",
        True,
        "1",
        "sent",
    )
    assert [(point.name, point.kind, point.value, point.count) for point in points[1:]] == [
        ("org.apache.kafka.producer.record.send.total", "sum", 9.0, None),
        ("queue", "gauge", 5, None),
        ("latency", "histogram", 10.5, 4),
        ("latency", "histogram", None, 3),
        ("size", "summary", 6.0, 2),
    ]


def test_all_kinds_of_attributes() -> None:
    message = MetricsData()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "x"
    point = metric.gauge.data_points.add()
    for name in ("none", "bool", "double", "bytes", "list", "map"):
        point.attributes.add().key = name
    attributes = point.attributes
    attributes[1].value.bool_value = True
    attributes[2].value.double_value = 0.5
    attributes[3].value.bytes_value = b"\x01"
    attributes[4].value.array_value.values.add().int_value = 3
    entry = attributes[5].value.kvlist_value.values.add()
    entry.key, entry.value.string_value = "a", "b"
    (found,) = decode_metrics(message.SerializeToString())
    assert found.attributes == {
        "none": None,
        "bool": True,
        "double": 0.5,
        "bytes": b"\x01",
        "list": [3],
        "map": {"a": "b"},
    }
    assert found.value is None


def test_nothing_is_no_metrics() -> None:
    assert decode_metrics(b"") == []


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"this is no protobuf"])
def test_what_is_no_otlp(data: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="Invalid OTLP"):
        decode_metrics(data)
