"""The built-in exporter: writes pushes of clients as records of ``__client_telemetry``.

The value of a record is OTLP ``MetricsData`` v1 as sent by the client, decompressed. The key is the client instance ID,
so that all pushes of a client are in one partition, in order. Metadata is in text headers, which `docs/telemetry.md`
lists.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.identifiers import uuid_to_string
from barnabas.telemetry.exporter import ClientTelemetryContext, ClientTelemetryPayload
from barnabas.telemetry.topic_writer import TopicRecord, TopicWriter

SCHEMA_VERSION: Final = 1


class TopicExporter:
    """Writes pushes to the topic."""

    def __init__(self, writer: TopicWriter[TopicRecord], node_id: int) -> None:
        self._writer = writer
        self._node_id = node_id

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Queues a push; if the queue is full, it is dropped and counted, without an error for the client."""
        record = telemetry_record(context, payload, self._node_id)
        self._writer.offer(record, record.size)


def telemetry_record(
    context: ClientTelemetryContext, payload: ClientTelemetryPayload, node_id: int = -1
) -> TopicRecord:
    """Converts a push to a record."""
    client = context.client
    instance_id = uuid_to_string(payload.client_instance_id)
    headers = {
        "schema_version": SCHEMA_VERSION,
        "content_type": payload.content_type,
        "client_instance_id": instance_id,
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.address,
        "client_source_port": client.port,
        "principal": client.principal,
        "listener": client.listener,
        "node_id": node_id,
        "subscription_id": context.subscription_id,
        "push_interval_ms": context.push_interval_ms,
        "terminating": str(payload.is_terminating).lower(),
        "compression": payload.compression.codec_name,
        "received_ms": context.received_ms,
    }
    return TopicRecord(
        context.received_ms,
        payload.data,
        instance_id.encode(),
        tuple((name, None if value is None else str(value).encode()) for name, value in headers.items()),
    )
