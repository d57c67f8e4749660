"""Exporters: where the metrics of clients go.

An exporter is any class with an `export_metrics`; those named in ``barnabas.telemetry.exporters`` are made when the
broker starts. One is always there, `TopicExporter`, which writes to a topic. A plug-in looks like this::

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
    """Who has pushed, and how often that is to be expected."""

    client: TelemetryClient
    push_interval_ms: int
    subscription_id: int
    received_ms: int
    """When it came, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ClientTelemetryPayload:
    """One push."""

    client_instance_id: Uuid
    is_terminating: bool
    """It is the client's last."""
    data: bytes
    """OTLP ``MetricsData`` v1 in protobuf, not compressed (any more). Nobody has looked whether it is well-formed."""
    compression: CompressionType = CompressionType.NONE
    """How it was sent."""
    content_type: str = CONTENT_TYPE

    def decode(self) -> list[MetricPoint]:
        """The metrics, one by one. The first call in a process loads a protobuf library."""
        from barnabas.telemetry.otlp import decode_metrics  # noqa: PLC0415 - a broker that only stores needs none

        return decode_metrics(self.data)


class ClientTelemetryExporter(Protocol):
    """Takes the metrics of clients. Called by handlers, any number at a time, so it has to be quick.

    An error that it raises is told to the client as INVALID_RECORD, which makes it give up pushing.
    """

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None: ...


class ClientTelemetryExporters:
    """All exporters of a broker, as one."""

    def __init__(self, exporters: Iterable[ClientTelemetryExporter]) -> None:
        self._exporters = tuple(exporters)

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Gives a push to all. If some fail, the first error is raised once all others have had it."""
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
    """The exporters of these classes; `ConfigError` if there is no such class, or it is none."""
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
