r"""Collects all metrics under the names that Kafka dashboards use, and renders them as Prometheus text (format 0.0.4).

Brokers on a JVM are scraped through Prometheus' JMX exporter. The rules in its configuration determine the names of
metrics, and every set of dashboards comes with its own rules. The rules of the exporter's example and of Strimzi agree
on most names:

| metric, by its JMX name                            | becomes                                                      |
|----------------------------------------------------|--------------------------------------------------------------|
| gauge ``kafka.DOMAIN:type=TYPE,name=NAME``         | gauge ``kafka_domain_type_name``                             |
| gauge or meter with a NAME like ``XPercent``       | gauge ``kafka_domain_type_x_percent``                        |
| meter with a NAME like ``XPerSec``                 | counter ``kafka_domain_type_x_total``                        |
| any other meter                                    | counter ``kafka_domain_type_name_count``                     |
| histogram or timer                                 | summary ``kafka_domain_type_name`` with a ``quantile`` from  |
|                                                    | 0.50 to 0.999, and its ``_sum`` and ``_count``               |
| a sensor's metric NAME of a group                  | gauge ``kafka_server_group_name``                            |
| the same with the tags ``user`` and ``client-id``, | gauge ``kafka_server_quota_name`` with the labels            |
| or one of them, and no other                       | ``resource`` (the group), ``user``, ``clientId``             |
| a sensor's metric NAME of ``raft-metrics``         | gauge ``kafka_server_raftmetrics_name``                      |

Confluent's rules have other names for some metrics. These metrics have both names:

| metric, by its JMX name                            | becomes also                                                 |
|----------------------------------------------------|--------------------------------------------------------------|
| gauge or meter with a NAME like ``XPercent``       | gauge ``kafka_domain_type_xpercent``                         |
| meter with a NAME like ``XPerSec``                 | counter ``kafka_domain_type_xpersec``                        |
| a sensor's metric NAME of a group, of a quota      | gauge ``kafka_server_group_name`` with the labels ``user``   |
|                                                    | and ``client_id``                                            |
| a sensor's metric NAME of ``raft-metrics``         | gauge ``kafka_server_raft_metrics_name``                     |

The value of a meter with a NAME like ``XPercent`` is the rate of the last minute, a fraction from 0 to 1; it also has
the name ``kafka_domain_type_xpercent_oneminuterate``. Names are in lower case, and any character that Prometheus does
not allow becomes ``_``. Tags become labels, whose names keep their case (for Confluent's they are in lower case); a tag
without a value is left out. For example:

    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce
        kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 4.5
    kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent
        kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.97

Two things differ from the exporter. The exporter's summaries have no sum; summaries here have one. For a percentage the
exporter shows the mean since the broker started, which hardly changes after a week; here it is the rate of the last
minute.

A gauge whose value is not a number is left out, as in the exporter. (A text of ``raft-metrics`` becomes a label of a
sample with the value 1.) A gauge that fails is left out and logged, and so are the remaining families of a source that
fails: a page without one value is better than no page.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.metrics.families import (
    COUNTER,
    EVERYTHING,
    GAUGE,
    SUMMARY,
    UNTYPED,
    FamilySource,
    LabelSet,
    MetricFamily,
    MetricSelection,
)
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MBeanName, MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.histogram import Histogram
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry, YammerMetric
from barnabas.metrics.yammer.timer import Timer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Source = MetricsRegistry | Metrics | FamilySource

_QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
_SENSOR_DOMAIN: Final = "kafka.server"
_QUOTA_LABELS: Final = {"user": "user", "client-id": "clientId"}
_RAFT_GROUP: Final = "raft-metrics"
_RAFT_PREFIXES: Final = ("kafka_server_raftmetrics_", "kafka_server_raft_metrics_")

_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_PERCENT: Final = re.compile(r"(.+)Percent\w*")
_PER_SECOND: Final = re.compile(r"(.+)PerSec\w*")
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})

_log = logging.getLogger(__name__)


def render_prometheus(*sources: Source, selection: MetricSelection = EVERYTHING) -> str:
    """Returns the text of one scrape."""
    return render(collect(sources, selection))


def collect(sources: Iterable[Source], selection: MetricSelection = EVERYTHING) -> list[MetricFamily]:
    """Returns the selected families of all sources, sorted by name."""
    collector = _Collector(selection)
    for source in sources:
        if isinstance(source, Metrics):
            for metric in source.metrics.values():
                collector.add_sensor_metric(metric)
        elif isinstance(source, MetricsRegistry):
            for name, yammer_metric in source.metrics.items():
                collector.add_yammer_metric(name, yammer_metric)
        else:
            collector.add_families(source)
    return collector.families()


def render(families: Iterable[MetricFamily]) -> str:
    """Returns the text of families in Prometheus' format."""
    lines: list[str] = []
    for family in families:
        name = family.name
        lines.append(f"# HELP {name} {family.help.translate(_IN_HELP)}\n# TYPE {name} {family.type}\n")
        lines += [f"{name}{suffix}{labels.text} {_number(value)}\n" for suffix, labels, value in family.samples]
    return "".join(lines)


class _Collector:
    """Gathers families from registries, whose metrics are unordered."""

    def __init__(self, selection: MetricSelection) -> None:
        self._selection = selection
        self._families: dict[str, MetricFamily | None] = {}
        """By name; None for a name that is not selected."""
        self._seen: set[tuple[str, str]] = set()

    def families(self) -> list[MetricFamily]:
        found = [family for family in self._families.values() if family is not None and family.samples]
        return sorted(found, key=lambda family: family.name)

    def add_families(self, source: FamilySource) -> None:
        try:
            for family in source.families(self._selection):
                if self._selection.names(family.name):
                    self._families[family.name] = family
        except Exception:  # noqa: BLE001 - it may run any code of the broker; see the module docstring
            _log.warning("Cannot read all metrics of %s", type(source).__name__, exc_info=True)

    def add_yammer_metric(self, name: MBeanName, metric: YammerMetric) -> None:
        prefix = f"{name.domain}_{name.type}_"
        text = f"{name.domain}:type={name.type},name={name.name}"
        labels = _labels(name.tags)
        percent = _PERCENT.fullmatch(name.name)
        if isinstance(metric, Histogram | Timer):
            self._add_summary(_metric_name(prefix + name.name), text, labels, metric)
        elif isinstance(metric, Gauge):
            value = _number_or_none(name, metric.value)
            self._add(GAUGE, prefix + (f"{percent[1]}_percent" if percent else name.name), text, labels, value)
            if percent:
                self._add(GAUGE, prefix + name.name, text, _lower(labels), value)
        elif percent:
            rate = metric.one_minute_rate
            self._add(GAUGE, f"{prefix}{percent[1]}_percent", text, labels, rate)
            for alias in (name.name, f"{name.name}_OneMinuteRate"):
                self._add(GAUGE, prefix + alias, text, _lower(labels), rate)
        elif per_second := _PER_SECOND.fullmatch(name.name):
            count = metric.count
            self._add(COUNTER, f"{prefix}{per_second[1]}_total", text, labels, count)
            self._add(COUNTER, prefix + name.name, text, _lower(labels), count)
        else:
            self._add(COUNTER, f"{prefix}{name.name}_count", text, labels, metric.count)

    def add_sensor_metric(self, metric: KafkaMetric) -> None:
        name = metric.name
        read = _value_or_none(name, metric.value)
        text = name.description or f"{name.name} of {_SENSOR_DOMAIN}:type={name.group}"
        tags = {key: tag for key, tag in name.tags.items() if tag}
        if name.group == _RAFT_GROUP:
            labels = {_NOT_IN_NAME.sub("_", name.name): read} if isinstance(read, str) else {}
            for prefix in _RAFT_PREFIXES:
                self._add(GAUGE, prefix + name.name, text, labels, 1 if labels else _if_number(read))
        elif tags and tags.keys() <= _QUOTA_LABELS.keys():
            labels = {"resource": name.group, **{_QUOTA_LABELS[key]: tag for key, tag in tags.items()}}
            self._add(GAUGE, f"{_SENSOR_DOMAIN}_quota_{name.name}", text, labels, _if_number(read))
            self._add(GAUGE, f"{_SENSOR_DOMAIN}_{name.group}_{name.name}", text, _labels(tags), _if_number(read))
        else:
            self._add(GAUGE, f"{_SENSOR_DOMAIN}_{name.group}_{name.name}", text, _labels(tags), _if_number(read))

    def _add(self, kind: str, name: str, text: str, labels: Mapping[str, str], value: float | None) -> None:
        if value is not None:
            family = self._family(_metric_name(name), kind, text)
            if family is not None:
                self._add_sample(family, "", LabelSet(labels), value)

    def _add_summary(self, name: str, text: str, labels: dict[str, str], metric: Histogram | Timer) -> None:
        family = self._family(name, SUMMARY, text)
        if family is None:
            return
        snapshot = metric.snapshot()
        for label, fraction in _QUANTILES.items():
            self._add_sample(family, "", LabelSet({**labels, "quantile": label}), snapshot.quantile(fraction))
        whole = LabelSet(labels)
        self._add_sample(family, "_sum", whole, snapshot.sum)
        self._add_sample(family, "_count", whole, snapshot.count)

    def _family(self, name: str, kind: str, text: str) -> MetricFamily | None:
        """Returns the family of a name, or None if the name is not selected."""
        if name not in self._families:
            self._families[name] = MetricFamily(name, kind, text) if self._selection.names(name) else None
        family = self._families[name]
        if family is not None and family.type != kind:
            family.type = UNTYPED
        return family

    def _add_sample(self, family: MetricFamily, suffix: str, labels: LabelSet, value: float) -> None:
        # Two metrics may differ only in characters that Prometheus cannot represent; a duplicate sample is invalid.
        key = (family.name + suffix, labels.text)
        if key not in self._seen:
            self._seen.add(key)
            family.samples.append((suffix, labels, value))


def _value_or_none(name: MBeanName | MetricName, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # noqa: BLE001 - a gauge may run any code of the broker; see the module docstring
        _log.warning("Cannot read the metric %s", name, exc_info=True)
        return None


def _number_or_none(name: MBeanName | MetricName, read: Callable[[], Any]) -> float | None:
    return _if_number(_value_or_none(name, read))


def _if_number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _metric_name(text: str) -> str:
    return _NOT_IN_NAME.sub("_", text).lower()


def _labels(tags: Mapping[str, str]) -> dict[str, str]:
    return {
        ("_" if key[0].isdigit() else "") + _NOT_IN_NAME.sub("_", key): value
        for key, value in tags.items()
        if key and value
    }


def _lower(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in labels.items()}


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # a boolean, too
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
