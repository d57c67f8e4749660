"""Encodes a broker's metrics and traces as OTLP requests.

| family of metrics | OTLP |
|---|---|
| gauge, untyped | Gauge |
| counter | Sum: cumulative since the start of the broker, monotonic |
| summary | Summary: quantiles, sum and count |

A sampled request is a trace of six spans. The six timestamps of a request (see the request log) delimit them:

    Produce                 T0 ------------------------------------------------------------ T5
      request queue         T0 ---- T1
      handler                       T1 ------ T2
      purgatory                               T2 ------------- T3      waits for followers, or for records
      response queue                                           T3 -- T4
      send                                                           T4 ------------------- T5

The protobuf classes come from ``opentelemetry-proto``, which the decoder of client metrics uses, too; they are loaded
with the first message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from barnabas import __version__
from barnabas.metrics.families import COUNTER, SUMMARY, LabelSet, MetricFamily
from barnabas.security.principal import ANONYMOUS
from barnabas.telemetry.request_log import RequestLogEntry, completed_moments
from barnabas.telemetry.response_errors import errors_in_frame

SCOPE: Final = "barnabas"
STATIONS: Final = ("request queue", "handler", "purgatory", "response queue", "send")
"""The spans of a request, between its timestamps."""

_SERVER_KIND: Final = 2
_INTERNAL_KIND: Final = 1
_ERROR_STATUS: Final = 2


def encode_metrics(families: Iterable[MetricFamily], resource: Mapping[str, str], start_ns: int, now_ns: int) -> bytes:
    """Returns an ExportMetricsServiceRequest. Times are in nanoseconds since 1970."""
    message = import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    temporality = import_module("opentelemetry.proto.metrics.v1.metrics_pb2").AGGREGATION_TEMPORALITY_CUMULATIVE
    request = message.ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    _add_attributes(group.resource.attributes, resource)
    scope = group.scope_metrics.add()
    scope.scope.name, scope.scope.version = SCOPE, __version__
    for family in families:
        metric = scope.metrics.add()
        metric.name, metric.description = family.name, family.help
        if family.type == SUMMARY:
            _add_summary(metric.summary.data_points, family, start_ns, now_ns)
            continue
        if family.type == COUNTER:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = temporality
            points = metric.sum.data_points
        else:
            points = metric.gauge.data_points
        for _, labels, value in family.samples:
            point = points.add()
            point.time_unix_nano = now_ns
            if family.type == COUNTER:
                point.start_time_unix_nano = start_ns
            point.as_double = value
            _add_attributes(point.attributes, labels.pairs)
    encoded: bytes = request.SerializeToString()
    return encoded


def _add_summary(points: Any, family: MetricFamily, start_ns: int, now_ns: int) -> None:
    """Adds a point for each set of labels without the quantile."""
    by_labels: dict[tuple[tuple[str, str], ...], Any] = {}

    def point_of(labels: LabelSet) -> Any:
        key = tuple(pair for pair in labels.pairs.items() if pair[0] != "quantile")
        point = by_labels.get(key)
        if point is None:
            point = by_labels[key] = points.add()
            point.time_unix_nano, point.start_time_unix_nano = now_ns, start_ns
            _add_attributes(point.attributes, dict(key))
        return point

    for suffix, labels, value in family.samples:
        point = point_of(labels)
        if suffix == "_sum":
            point.sum = value
        elif suffix == "_count":
            point.count = int(value)
        else:
            quantile = point.quantile_values.add()
            quantile.quantile, quantile.value = float(labels.pairs["quantile"]), value


def encode_spans(
    entries: Sequence[RequestLogEntry],
    resource: Mapping[str, str],
    epoch_ns: int,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> bytes:
    """Returns an ExportTraceServiceRequest with a trace for each request.

    `epoch_ns` is the wall-clock time at which the monotonic clock was 0.
    """
    message = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = message.ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _add_attributes(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = SCOPE, __version__
    for entry in entries:
        _add_trace(scope.spans, entry, epoch_ns, random_bytes)
    encoded: bytes = request.SerializeToString()
    return encoded


def _add_trace(spans: Any, entry: RequestLogEntry, epoch_ns: int, random_bytes: Callable[[int], bytes]) -> None:
    moments = [moment + epoch_ns for moment in completed_moments(entry.moments)]
    trace_id = random_bytes(16)
    root = spans.add()
    root.trace_id, root.span_id = trace_id, random_bytes(8)
    root.name, root.kind = entry.api_key.title, _SERVER_KIND
    root.start_time_unix_nano, root.end_time_unix_nano = moments[0], moments[-1]
    errors = _errors(entry)
    if errors:
        root.status.code = _ERROR_STATUS
        root.status.message = ", ".join(sorted(errors))
    _add_attributes(root.attributes, _attributes_of(entry))
    for name, start, end in zip(STATIONS, moments, moments[1:], strict=False):
        span = spans.add()
        span.trace_id, span.parent_span_id, span.span_id = trace_id, root.span_id, random_bytes(8)
        span.name, span.kind = name, _INTERNAL_KIND
        span.start_time_unix_nano, span.end_time_unix_nano = start, end


def _errors(entry: RequestLogEntry) -> Mapping[str, int]:
    if entry.response_pieces is None:
        return {}
    found = errors_in_frame(
        entry.api_key, entry.api_version, entry.response_pieces, envelope_version=entry.envelope_version
    )
    return found or {}


def _attributes_of(entry: RequestLogEntry) -> dict[str, str | int]:
    context = entry.context
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "kafka.api": entry.api_key.title,
        "kafka.api.version": entry.api_version,
        "kafka.correlation_id": entry.correlation_id,
        "kafka.client.software": f"{context.client_software_name} {context.client_software_version}",
        "kafka.listener": context.listener_name,
        "kafka.principal": str(entry.principal or ANONYMOUS),
        "kafka.request.bytes": entry.request_bytes,
        "kafka.response.bytes": entry.response_bytes,
        "kafka.throttle_time_ms": entry.throttle_time_ms,
        "client.address": entry.client_address,
    }
    if entry.client_id is not None:
        attributes["messaging.client.id"] = entry.client_id
    return attributes


def _add_attributes(attributes: Any, values: Mapping[str, str | int] | Mapping[str, str]) -> None:
    for key, value in values.items():
        attribute = attributes.add()
        attribute.key = key
        if isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value
