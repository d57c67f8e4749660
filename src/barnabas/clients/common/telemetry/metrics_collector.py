"""Encodes a client's metrics as OTLP."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import CumulativeSum

log = logging.getLogger(__name__)

DOMAIN: Final = "org.apache.kafka"
EXCLUDED_LABELS: Final = frozenset({"client_id"})
"""Added by the broker, which knows it."""

_DELTA: Final = 1
_CUMULATIVE: Final = 2


def telemetry_name(name: MetricName) -> str:
    """Returns the name under which a metric is pushed.

    >>> telemetry_name(MetricName("record-send-rate", "producer-metrics"))
    'org.apache.kafka.producer.record.send.rate'
    >>> telemetry_name(MetricName("request-latency-avg", "producer-node-metrics"))
    'org.apache.kafka.producer.node.request.latency.avg'
    """
    group = name.group.lower().replace("-", ".").replace(".metrics", "")
    return f"{DOMAIN}.{group}.{name.name.lower().replace('-', '.')}"


class MetricsCollector:
    """Reads a client's registry and encodes it as OTLP.

    Values that only grow (`CumulativeSum`: the totals) are *sums*; all others, averages, rates, maxima, are *gauges*. A
    sum is sent as it is, *cumulative*, or, if the broker asks for *delta* temporality, as the increase since the last
    push that the broker accepted: the next push includes a rejected one.

    A gauge without a value, such as the average of nothing, is left out.

    It is a reporter of the registry to learn the creation time of each metric, for the start of a sum. Without a
    subscription it does nothing else, and the protobuf classes are not loaded.
    """

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._added_ms: dict[MetricName, int] = {}
        self._last: dict[MetricName, tuple[float, int]] = {}
        """The value of a sum at the last push, and its time. Owned by the I/O thread, as is the next."""
        self._pushing: dict[MetricName, tuple[float, int]] = {}
        metrics.add_reporter(self)

    # -- a reporter of the registry

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric: KafkaMetric) -> None:
        self._added_ms[metric.name] = self._clock.milliseconds()

    def metric_removal(self, metric: KafkaMetric) -> None:
        self._added_ms.pop(metric.name, None)
        self._last.pop(metric.name, None)
        self._pushing.pop(metric.name, None)

    def close(self) -> None:
        pass

    # -- a push

    def collect(self, selected: Callable[[str], bool], labels: Mapping[str, str], *, delta: bool) -> bytes:
        """Returns the wanted metrics as bytes of ``MetricsData``."""
        protobuf = import_module("opentelemetry.proto.metrics.v1.metrics_pb2")
        data = protobuf.MetricsData()
        resource = data.resource_metrics.add()
        _set_attributes(resource.resource.attributes, labels)
        pushed = resource.scope_metrics.add().metrics
        now_ms = self._clock.milliseconds()
        self._pushing = {}
        for name, metric in self._metrics.metrics.items():
            full = telemetry_name(name)
            if not selected(full):
                continue
            value = _number(metric)
            if value is None:
                continue
            made = pushed.add(name=full)
            if isinstance(metric.measurable, CumulativeSum):
                made.sum.is_monotonic = True
                made.sum.aggregation_temporality = _DELTA if delta else _CUMULATIVE
                point = made.sum.data_points.add()
                value, start_ms = self._sum(name, float(value), now_ms, delta=delta)
                point.start_time_unix_nano = start_ms * 1_000_000
            else:
                point = made.gauge.data_points.add()
            point.time_unix_nano = now_ms * 1_000_000
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            tags = {tag.lower().replace("-", "_"): text for tag, text in name.tags.items()}
            _set_attributes(point.attributes, {tag: tags[tag] for tag in tags if tag not in EXCLUDED_LABELS})
        encoded: bytes = data.SerializeToString()
        return encoded

    def _sum(self, name: MetricName, value: float, now_ms: int, *, delta: bool) -> tuple[float, int]:
        added_ms = self._added_ms.get(name, now_ms)
        if not delta:
            return value, added_ms
        last, since_ms = self._last.get(name, (0.0, added_ms))
        self._pushing[name] = (value, now_ms)
        return value - last, since_ms

    def pushed(self) -> None:
        """Starts the next delta here: the broker has, or may have, the last push."""
        self._last.update(self._pushing)
        self._pushing = {}

    def refused(self) -> None:
        """Includes the last push in the next one: the broker rejected it."""
        self._pushing = {}

    def reset(self) -> None:
        """Restarts deltas: the broker wants another temporality."""
        self._last = {}
        self._pushing = {}


def _number(metric: KafkaMetric) -> float | int | None:
    try:
        value: Any = metric.value()
    except Exception:  # a gauge is user code
        log.debug("The metric %r cannot be read", metric, exc_info=True)
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and math.isnan(value))
    ):
        return None
    return value


def _set_attributes(attributes: Any, labels: Mapping[str, str]) -> None:
    for key, text in labels.items():
        attribute = attributes.add(key=key)
        attribute.value.string_value = text
