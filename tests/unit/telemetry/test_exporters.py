"""Where pushes go: to a topic, and to whoever else is named in the settings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.common.config_def import ConfigError
from barnabas.common.scheduler import MockScheduler
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.records.batch import CompressionType, iter_batches
from barnabas.records.reader import read_records
from barnabas.telemetry.exporter import (
    ClientTelemetryContext,
    ClientTelemetryExporters,
    ClientTelemetryPayload,
    make_exporters,
)
from barnabas.telemetry.topic_exporter import TopicExporter, telemetry_record
from barnabas.telemetry.topic_writer import TopicRecord, TopicWriter
from telemetry_fixtures import SOME_ID, Appends, Exports, OneTopic, client

pytestmark = pytest.mark.mechanism("Q15")

CONTEXT = ClientTelemetryContext(client(), 10_000, -77, 1_700_000_000_123)
PAYLOAD = ClientTelemetryPayload(SOME_ID, False, b"otlp", CompressionType.ZSTD)


def test_a_push_becomes_a_record_with_who_what_and_when_in_its_headers() -> None:
    record = telemetry_record(CONTEXT, PAYLOAD, 3)
    assert record.value == b"otlp"
    assert record.key == b"AQIDBAUGBwgJCgsMDQ4PEA"
    assert record.timestamp_ms == 1_700_000_000_123
    assert dict(record.headers) == {
        "schema_version": b"1",
        "content_type": b"OTLP",
        "client_instance_id": b"AQIDBAUGBwgJCgsMDQ4PEA",
        "client_id": b"billing-1",
        "client_software_name": b"apache-kafka-java",
        "client_software_version": b"4.4.0",
        "client_source_address": b"10.0.0.7",
        "client_source_port": b"50001",
        "principal": b"User:alice",
        "listener": b"PLAINTEXT",
        "node_id": b"3",
        "subscription_id": b"-77",
        "push_interval_ms": b"10000",
        "terminating": b"false",
        "compression": b"zstd",
        "received_ms": b"1700000000123",
    }


def test_what_is_not_known_has_no_value() -> None:
    context = ClientTelemetryContext(client(client_id=None, port=None), 1, 1, 1)
    headers = dict(telemetry_record(context, PAYLOAD).headers)
    assert headers["client_id"] is None
    assert headers["client_source_port"] is None


def test_the_exporter_queues_and_never_fails() -> None:
    scheduler = MockScheduler()
    cache, appends = OneTopic(), Appends()
    writer: TopicWriter[TopicRecord] = TopicWriter(
        "__client_telemetry",
        lambda record: record,
        1,
        cache,
        appends,
        lambda _name: None,
        lambda: None,
        scheduler,
        scheduler.clock,
        MetricsRegistry(scheduler.clock),
        max_records=2,
    )
    exporter = TopicExporter(writer, 1)
    for _ in range(3):
        exporter.export_metrics(CONTEXT, PAYLOAD)
    assert writer.dropped == 1
    cache.leaders = [1]
    scheduler.advance(500)
    values = [
        record.value for _, _, data in appends.batches for batch in iter_batches(data) for record in read_records(batch)
    ]
    assert values == [b"otlp", b"otlp"]


def test_all_exporters_get_a_push_although_one_fails() -> None:
    first, second, third = Exports(), Exports(), Exports()
    second.failure = RuntimeError("second")
    exporters = ClientTelemetryExporters([first, second, third])
    with pytest.raises(RuntimeError, match="second"):
        exporters.export_metrics(CONTEXT, PAYLOAD)
    assert first.pushes == third.pushes == [(CONTEXT, PAYLOAD)]
    assert len(exporters) == 3
    exporters.close()
    assert first.closed
    assert third.closed


def test_exporters_are_made_by_the_names_of_their_classes() -> None:
    (made,) = make_exporters(["telemetry_fixtures.Exports"], {"statsd.address": "10.0.0.9"})
    assert isinstance(made, Exports)
    assert made.properties == {"statsd.address": "10.0.0.9"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere.Exporter", "cannot import the class"),
        ("telemetry_fixtures.Missing", "cannot import the class"),
        ("Exports", "cannot import the class"),
        ("telemetry_fixtures.OneTopic", "export_metrics"),
    ],
)
def test_a_name_that_stands_for_no_exporter(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_exporters([name], {})


def test_a_payload_is_decoded_when_somebody_asks() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    message = MetricsData()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "x"
    metric.gauge.data_points.add().as_int = 3
    payload = ClientTelemetryPayload(SOME_ID, False, message.SerializeToString())
    assert [(point.name, point.value) for point in payload.decode()] == [("x", 3)]


def test_nothing_that_a_broker_needs_loads_protobuf() -> None:
    program = (
        "import sys, barnabas.broker.node.kafka_raft_server, barnabas.telemetry.otlp, barnabas.cli.telemetry;"
        "sys.exit(any(name.split('.')[0] in ('google', 'opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=180).returncode == 0
