"""Creates a client's metrics registry from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import barnabas
from barnabas.clients.common.plug_ins import configured
from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigValues
from barnabas.metrics.config import MetricConfig, RecordingLevel
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics

APP_INFO_GROUP: Final = "app-info"
UNKNOWN: Final = "unknown"


def make_metrics(values: ConfigValues, client_id: str, clock: Clock) -> Metrics:
    """Creates the registry: all metrics have the client id as a tag, and configured reporters see each."""
    originals = {**values.originals, "client.id": client_id}
    metrics = Metrics(
        MetricConfig(
            samples=values.get_int("metrics.num.samples"),
            window_ms=max(values.get_int("metrics.sample.window.ms"), 1),
            record_level=RecordingLevel[values.get_str("metrics.recording.level")],
            tags={"client-id": client_id},
        ),
        [configured("metric.reporters", name, originals) for name in values.get_list("metric.reporters")],
        clock,
    )
    _show_app_info(metrics, clock.milliseconds())
    return metrics


def _show_app_info(metrics: Metrics, now_ms: int) -> None:
    """Adds the app-info metrics. A wheel has no commit id, so its value is Kafka's value for an unknown one."""
    values = {"version": barnabas.__version__, "commit-id": UNKNOWN, "start-time-ms": now_ms}
    for name, value in values.items():
        metrics.add_metric(
            metrics.metric_name(name, APP_INFO_GROUP, description=f"The {name} of this client."),
            lambda *_, value=value: value,
        )


def metric_value(metrics: Metrics, client_id: str, name: str, group: str, tags: Mapping[str, str]) -> Any:
    """Returns the current value of one metric; tags have underscores for hyphens."""
    given = {"client-id": client_id, **{tag.replace("_", "-"): value for tag, value in tags.items()}}
    metric = metrics.metric(MetricName(name, group, given))
    if metric is None:
        raise KeyError(f"there is no metric {name} in {group} with {given}")
    return metric.value()
