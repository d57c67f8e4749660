"""Decodes OTLP metrics, the format of client telemetry.

The protobuf classes come from ``opentelemetry-proto``. They take longer to load than the rest of a command line, and a
broker that only stores pushes does not need them; so the first call loads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import InvalidRecordError

_TEMPORALITIES: Final = {0: None, 1: "delta", 2: "cumulative"}

Attribute = str | bool | int | float | bytes | list[Any] | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric."""

    name: str
    kind: str
    """gauge, sum, histogram, exponential_histogram or summary."""
    value: float | None
    """For a histogram or summary: the sum of all values, None if it is unknown."""
    time_unix_nano: int
    attributes: Mapping[str, Attribute]
    resource: Mapping[str, Attribute]
    """Attributes of the client as a whole: ``client_rack``, ``group_id`` and others."""
    count: int | None = None
    """For a histogram or summary: the number of values."""
    start_time_unix_nano: int = 0
    temporality: str | None = None
    """``delta``: since the last push. ``cumulative``: since the start."""
    is_monotonic: bool = False
    unit: str = ""
    description: str = ""


def decode_metrics(data: bytes) -> list[MetricPoint]:
    """Returns all values of a push; raises `InvalidRecordError` if it is not OTLP."""
    return list(iterate_metrics(data))


def iterate_metrics(data: bytes) -> Iterator[MetricPoint]:
    for resource_metrics in parse(data).resource_metrics:
        resource = _attributes(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield from _points(metric, resource)


def parse(data: bytes) -> Any:
    """Returns the protobuf message, ``opentelemetry.proto.metrics.v1.MetricsData``."""
    message = import_module("opentelemetry.proto.metrics.v1.metrics_pb2").MetricsData()
    try:
        message.ParseFromString(data)
    except import_module("google.protobuf.message").DecodeError as error:
        raise InvalidRecordError(f"Invalid OTLP metrics: {error}") from None
    return message


def _points(metric: Any, resource: Mapping[str, Attribute]) -> Iterator[MetricPoint]:
    kind: str | None = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    temporality = _TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0))
    is_monotonic = getattr(data, "is_monotonic", False)
    for point in data.data_points:
        count: int | None = None
        value: float | None
        if kind in {"gauge", "sum"}:
            which = point.WhichOneof("value")
            value = None if which is None else getattr(point, which)
        else:
            value = point.sum if kind == "summary" or point.HasField("sum") else None
            count = point.count
        yield MetricPoint(
            metric.name,
            kind,
            value,
            point.time_unix_nano,
            _attributes(point.attributes),
            resource,
            count,
            point.start_time_unix_nano,
            temporality,
            is_monotonic,
            metric.unit,
            metric.description,
        )


def _attributes(pairs: Iterable[Any]) -> dict[str, Attribute]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Attribute:
    which: str | None = value.WhichOneof("value")
    if which is None:
        return None
    found = getattr(value, which)
    if which == "array_value":
        return [_value(one) for one in found.values]
    if which == "kvlist_value":
        return _attributes(found.values)
    plain: Attribute = found
    return plain
