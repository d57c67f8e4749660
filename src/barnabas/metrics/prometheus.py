r"""Renders all metrics as text for Prometheus (exposition format 0.0.4), under the names that Kafka dashboards use.

Brokers on a JVM are scraped through Prometheus' JMX exporter, and dashboards and alerts expect the rules of its example
configuration for Kafka. The same rules, applied here:

| metric, by its JMX name                            | becomes                                                      |
|----------------------------------------------------|--------------------------------------------------------------|
| gauge ``kafka.DOMAIN:type=TYPE,name=NAME``         | gauge ``kafka_domain_type_name``                             |
| gauge or meter with a NAME like ``XPercent``       | gauge ``kafka_domain_type_x_percent``; of a meter the rate of |
|                                                    | the last minute, which is a fraction from 0 to 1             |
| meter with a NAME like ``XPerSec``                 | counter ``kafka_domain_type_x_total``                        |
| any other meter                                    | counter ``kafka_domain_type_name_count``                     |
| histogram or timer                                 | summary ``kafka_domain_type_name`` with a ``quantile`` from  |
|                                                    | 0.50 to 0.999, and its ``_sum`` and ``_count``               |
| a sensor's metric NAME of a group                  | gauge ``kafka_server_group_name``                            |
| the same with the tags ``user`` and ``client-id``, | gauge ``kafka_server_quota_name`` with the labels            |
| or one of them, and no other                       | ``resource`` (the group), ``user``, ``clientId``             |

Names are in lower case, and any character that Prometheus does not allow becomes ``_``. Tags become labels, whose names
keep their case; a tag without a value is left out. For example:

    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce
        kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 4.5
    kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent
        kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.97

Two things differ from the exporter. Its summaries have no sum; here they have one. And for a percentage it shows the
mean since the broker started, which hardly moves after a week; here it is the rate of the last minute.

A gauge whose value is not a number is left out, as in the exporter. So is one that fails, with a line in the log: a
page without one value is better than no page.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from barnabas.common.dataclass import dataclass, field
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MBeanName, MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.histogram import Histogram
from barnabas.metrics.yammer.registry import Gauge, YammerMetric
from barnabas.metrics.yammer.timer import Timer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
_SENSOR_DOMAIN = "kafka.server"
_QUOTA_LABELS = {"user": "user", "client-id": "clientId"}

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_]")
_PERCENT = re.compile(r"(.+)Percent\w*")
_PER_SECOND = re.compile(r"(.+)PerSec\w*")
_IN_LABEL_VALUE = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})

_log = logging.getLogger(__name__)


class MetricSource(Protocol):
    """A registry, or an object that can build the contents of one at any time."""

    @property
    def metrics(self) -> Mapping[MBeanName, YammerMetric]: ...


def render_prometheus(*registries: MetricSource | Metrics) -> str:
    """Returns the text of one scrape."""
    page = _Page()
    for registry in registries:
        if isinstance(registry, Metrics):
            for metric in registry.metrics.values():
                page.add_sensor_metric(metric)
        else:
            for name, yammer_metric in registry.metrics.items():
                page.add_yammer_metric(name, yammer_metric)
    return page.render()


@dataclass(slots=True)
class _Family:
    """All samples of one name. The format requires them to be together, below one line with their type."""

    type: str
    help: str
    samples: list[str] = field(default_factory=list)


class _Page:
    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._seen: set[str] = set()

    def render(self) -> str:
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines.append(f"# HELP {name} {family.help.translate(_IN_HELP)}\n")
            lines.append(f"# TYPE {name} {family.type}\n")
            lines += family.samples
        return "".join(lines)

    def add_yammer_metric(self, name: MBeanName, metric: YammerMetric) -> None:
        prefix = f"{name.domain}_{name.type}_"
        text = f"{name.domain}:type={name.type},name={name.name}"
        labels = _labels(name.tags)
        percent = _PERCENT.fullmatch(name.name)
        if isinstance(metric, Histogram | Timer):
            self._add_summary(_metric_name(prefix + name.name), text, labels, metric)
        elif isinstance(metric, Gauge):
            value = _number_or_none(name, metric.value)
            self._add("gauge", prefix + (f"{percent[1]}_percent" if percent else name.name), text, labels, value)
        elif percent:
            self._add("gauge", f"{prefix}{percent[1]}_percent", text, labels, metric.one_minute_rate)
        elif per_second := _PER_SECOND.fullmatch(name.name):
            self._add("counter", f"{prefix}{per_second[1]}_total", text, labels, metric.count)
        else:
            self._add("counter", f"{prefix}{name.name}_count", text, labels, metric.count)

    def add_sensor_metric(self, metric: KafkaMetric) -> None:
        name = metric.name
        value = _number_or_none(name, metric.value)
        text = name.description or f"{name.name} of {_SENSOR_DOMAIN}:type={name.group}"
        tags = {key: tag for key, tag in name.tags.items() if tag}
        if tags and tags.keys() <= _QUOTA_LABELS.keys():
            labels = {"resource": name.group, **{_QUOTA_LABELS[key]: tag for key, tag in tags.items()}}
            self._add("gauge", f"{_SENSOR_DOMAIN}_quota_{name.name}", text, labels, value)
        else:
            self._add("gauge", f"{_SENSOR_DOMAIN}_{name.group}_{name.name}", text, _labels(tags), value)

    def _add(self, kind: str, name: str, text: str, labels: Mapping[str, str], value: float | None) -> None:
        if value is not None:
            name = _metric_name(name)
            self._add_sample(self._family(name, kind, text), name, labels, value)

    def _add_summary(self, name: str, text: str, labels: dict[str, str], metric: Histogram | Timer) -> None:
        family = self._family(name, "summary", text)
        snapshot = metric.snapshot()
        for label, fraction in _QUANTILES.items():
            self._add_sample(family, name, {**labels, "quantile": label}, snapshot.quantile(fraction))
        self._add_sample(family, f"{name}_sum", labels, snapshot.sum)
        self._add_sample(family, f"{name}_count", labels, snapshot.count)

    def _family(self, name: str, kind: str, text: str) -> _Family:
        family = self._families.setdefault(name, _Family(kind, text))
        if family.type != kind:
            family.type = "untyped"
        return family

    def _add_sample(self, family: _Family, name: str, labels: Mapping[str, str], value: float) -> None:
        if labels:
            pairs = ",".join(f'{key}="{text.translate(_IN_LABEL_VALUE)}"' for key, text in labels.items())
            name = f"{name}{{{pairs}}}"
        # Two metrics may differ only in characters that Prometheus cannot represent; a duplicate sample is invalid.
        if name not in self._seen:
            self._seen.add(name)
            family.samples.append(f"{name} {_number(value)}\n")


def _number_or_none(name: MBeanName | MetricName, read: Callable[[], Any]) -> float | None:
    try:
        value = read()
    except Exception:  # noqa: BLE001 - a gauge may run any code of the broker; see the module docstring
        _log.warning("Cannot read the metric %s", name, exc_info=True)
        return None
    return value if isinstance(value, int | float) else None


def _metric_name(text: str) -> str:
    return _NOT_IN_NAME.sub("_", text).lower()


def _labels(tags: Mapping[str, str]) -> dict[str, str]:
    return {
        ("_" if key[0].isdigit() else "") + _NOT_IN_NAME.sub("_", key): value
        for key, value in tags.items()
        if key and value
    }


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if isinstance(value, bool) else repr(value)
