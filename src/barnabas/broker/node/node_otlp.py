"""Connects a node with an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.broker.node.exported_metrics import ExportedMetrics
from barnabas.common.config_def import ConfigError
from barnabas.telemetry.otlp_exporter import OtlpConfig, OtlpExporter

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.broker.node.broker_server import BrokerServer
    from barnabas.broker.node.controller_server import ControllerServer
    from barnabas.broker.node.shared_server import SharedServer

_HEADERS = "barnabas.otlp.headers"


def start_otlp(
    config: KafkaConfig, shared: SharedServer, broker: BrokerServer | None, controller: ControllerServer | None
) -> Callable[[], None]:
    """Starts the export of metrics and traces; returns the function that stops it."""
    settings = OtlpConfig(
        config.value("barnabas.otlp.endpoint"),
        config.value("barnabas.otlp.metrics.interval.ms"),
        config.value("barnabas.otlp.traces.enable"),
        headers_of(config),
    )
    resource = {
        "service.name": "barnabas",
        "service.version": __version__,
        "service.instance.id": str(config.node_id),
        "kafka.cluster.id": shared.cluster_id,
    }
    metrics = ExportedMetrics(config, shared, broker, controller)
    exporter = OtlpExporter(settings, metrics.collect, resource, shared.registry, shared.clock)
    request_log = None if broker is None or broker.telemetry is None else broker.telemetry.request_log
    if request_log is None or not settings.traces:
        return exporter.close
    request_log.on_entry = exporter.offer

    def stop() -> None:
        request_log.on_entry = None
        exporter.close()

    return stop


def headers_of(config: KafkaConfig) -> dict[str, str]:
    """Parses the headers of OTLP requests; raises `ConfigError`, without the values, if they are malformed."""
    given = config.value(_HEADERS)
    if given is None:
        return {}
    headers = {}
    for one in given.value.split(","):
        name, separator, value = one.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"Invalid value of {_HEADERS}: expected name=value, separated by commas")
        headers[name.strip()] = value.strip()
    return headers
