"""Records as brokers write them to the telemetry topics, for the tests of the pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_US: Final = 1_794_754_800_000_000
"""The full hour."""
RAW: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
SECOND: Final = 1_000_000


def moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)


def record(topic: str, offset: int, time_us: int, value: bytes | None, **more: Any) -> tuple[Any, ...]:
    """A row of the source."""
    headers = [(key, None if text is None else text.encode()) for key, text in more.get("headers", {}).items()]
    key = more.get("key")
    return key, value, topic, more.get("partition", 0), offset, moment(time_us), 0, headers


def raw_frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), RAW)


def request(offset: int, start_us: int, **fields: Any) -> tuple[Any, ...]:
    """A record of ``__request_log``: 1 ms in the queue, 2 in the handler, 4 waiting, 8 for the network, 16 sending."""
    times = [start_us + milliseconds * 1_000 for milliseconds in (0, 1, 3, 7, 15, 31)]
    names = ("start", "request_dequeue", "api_local_complete", "response_complete", "response_dequeue", "end")
    document = {
        "schema_version": 1,
        "node_id": 1,
        "sample_rate": 1.0,
        "api": "Produce",
        "api_key": 0,
        "api_version": 13,
        "correlation_id": offset,
        "client_id": "alpha",
        "client_software_name": "test",
        "client_software_version": "1",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "security_protocol": "PLAINTEXT",
        "client_address": "127.0.0.1",
        "connection_id": "c1",
        "forwarded": False,
        "request_bytes": 1_000,
        "response": "send",
        "response_bytes": 50,
        **{f"{name}_time_us": time for name, time in zip(names, times, strict=True)},
        "callback_time_us": 0,
        "throttle_time_ms": 0,
        "errors": {},
        **fields,
    }
    return record(REQUEST_LOG_TOPIC, offset, document["end_time_us"], json.dumps(document).encode())


def usage(offset: int, end_us: int, **fields: Any) -> tuple[Any, ...]:
    """A record of ``__quota_usage``, for ten seconds."""
    document = {
        "schema_version": 1,
        "node_id": 1,
        "start_time_ms": end_us // 1_000 - 10_000,
        "end_time_ms": end_us // 1_000,
        "quota": "producer_byte_rate",
        "user": None,
        "client_id": "alpha",
        "tags": {"user": "", "client-id": "alpha"},
        "limit": 1_000.0,
        "amount": 5_000.0,
        "unit": "bytes",
        "throttle_count": 0,
        "throttle_time_ms": 0.0,
        **fields,
    }
    return record(QUOTA_USAGE_TOPIC, offset, end_us, json.dumps(document).encode())


def push(offset: int, time_us: int, values: dict[str, float], **headers: str | None) -> tuple[Any, ...]:
    """A record of ``__client_telemetry``: a gauge for each name, and a sum where the name ends in ``total``."""
    message = MetricsData()
    resource = message.resource_metrics.add()
    attribute = resource.resource.attributes.add()
    attribute.key = "client_rack"
    attribute.value.string_value = "r1"
    scope = resource.scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name)
        if name.endswith("total"):
            metric.sum.aggregation_temporality = 1
            metric.sum.is_monotonic = True
            point = metric.sum.data_points.add()
        else:
            point = metric.gauge.data_points.add()
        point.as_double = value
        point.time_unix_nano = time_us * 1_000
    known = {
        "schema_version": "1",
        "content_type": "OTLP",
        "client_instance_id": "7rIoyv48QXuwxY1fxOMApA",
        "client_id": "alpha",
        "client_software_name": "test",
        "client_software_version": "1",
        "client_source_address": "127.0.0.1",
        "principal": "User:ANONYMOUS",
        "node_id": "1",
        "push_interval_ms": "1000",
        "terminating": "false",
        **headers,
    }
    return record(CLIENT_TELEMETRY_TOPIC, offset, time_us, message.SerializeToString(), headers=known)
