"""Exporters: the destinations of client metrics.

An exporter is any class with a method `export_metrics`. Those in ``barnabas.telemetry.exporters`` are created when the
broker starts. `TopicExporter`, which writes to a topic, always exists. A plug-in looks like this::

    class ToStatsd:
        def configure(self, properties):  # optional: all settings of the broker, as in its file
            self.address = properties["statsd.address"]

        def export_metrics(self, context, payload):
            for point in payload.decode():
                send(self.address, point.name, point.value, {"client": context.client.client_id})

        def close(self): ...  # optional
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.common.config_def import ConfigError
from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid
from barnabas.records.batch import CompressionType

if TYPE_CHECKING:
    from barnabas.telemetry.otlp import MetricPoint
    from barnabas.telemetry.telemetry_client import TelemetryClient

logger = logging.getLogger(__name__)

EXPORTERS: Final = "barnabas.telemetry.exporters"
CONTENT_TYPE: Final = "OTLP"


@dataclass(frozen=True, slots=True)
class ClientTelemetryContext:
    """The client that has pushed, and its push interval."""

    client: TelemetryClient
    push_interval_ms: int
    subscription_id: int
    received_ms: int
    """The time of arrival, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ClientTelemetryPayload:
    """One push."""

    client_instance_id: Uuid
    is_terminating: bool
    """Whether it is the client's terminating push."""
    data: bytes
    """Decompressed OTLP ``MetricsData`` v1 in protobuf. It is not validated."""
    compression: CompressionType = CompressionType.NONE
    """The compression of the request."""
    content_type: str = CONTENT_TYPE

    def decode(self) -> list[MetricPoint]:
        """Decodes the metrics. The first call in a process loads a protobuf library."""
        from barnabas.telemetry.otlp import decode_metrics  # not needed by a broker that only stores

        return decode_metrics(self.data)


class ClientTelemetryExporter(Protocol):
    """Receives the metrics of clients. Several handlers call it at the same time, so it must be fast.

    If it raises an error, the client gets INVALID_RECORD and stops pushing.
    """

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None: ...


class ClientTelemetryExporters:
    """Combines all exporters of a broker."""

    def __init__(self, exporters: Iterable[ClientTelemetryExporter]) -> None:
        self._exporters = tuple(exporters)

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Passes a push to all exporters, then raises the first error, if any failed."""
        failure: Exception | None = None
        for exporter in self._exporters:
            try:
                exporter.export_metrics(context, payload)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        for exporter in self._exporters:
            close: Callable[[], object] | None = getattr(exporter, "close", None)
            try:
                if close is not None:
                    close()
            except Exception:
                logger.exception("Cannot close the telemetry exporter %r", exporter)

    def __len__(self) -> int:
        return len(self._exporters)


def make_exporters(names: Sequence[str], properties: Mapping[str, str]) -> list[ClientTelemetryExporter]:
    """Creates exporters of these classes; raises `ConfigError` for a class that is missing or invalid."""
    return [_make(name, properties) for name in names]


def _make(name: str, properties: Mapping[str, str]) -> ClientTelemetryExporter:
    module, _, attribute = name.rpartition(".")
    try:
        make: Callable[[], Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError.invalid(EXPORTERS, name, f"cannot import the class: {error}") from None
    exporter: ClientTelemetryExporter = make()
    if not callable(getattr(exporter, "export_metrics", None)):
        raise ConfigError.invalid(EXPORTERS, name, "an exporter must have a method export_metrics")
    configure: Callable[[Mapping[str, str]], object] | None = getattr(exporter, "configure", None)
    if configure is not None:
        configure(properties)
    return exporter
