"""The state of clients, from the metrics that they push (KIP-714)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.report.table_reader import TableReader
from barnabas.report.tenancy import NAMELESS, largest
from barnabas.report.traffic import MINUTE_US, MOST_TENANTS, SECOND_US, SINGLE_REQUESTS_US, step_of

DOMAIN: Final = "org.apache.kafka."
MEASURES: Final[Mapping[str, tuple[str, ...]]] = {
    "latency_ms": (
        "producer.request.latency.avg",
        "consumer.fetch.manager.fetch.latency.avg",
        "producer.node.request.latency.avg",
        "consumer.node.request.latency.avg",
    ),
    "max_latency_ms": (
        "producer.request.latency.max",
        "consumer.fetch.manager.fetch.latency.max",
        "producer.node.request.latency.max",
        "consumer.node.request.latency.max",
    ),
    "records_per_s": ("producer.record.send.rate", "consumer.fetch.manager.records.consumed.rate"),
    "queue_ms": ("producer.record.queue.time.avg",),
    "throttle_ms": ("producer.produce.throttle.time.max", "consumer.fetch.manager.fetch.throttle.time.max"),
    "errors": ("producer.record.error.total",),
    "retries": ("producer.record.retry.total",),
}
"""The measures, with the metrics that contain them. Clients push different metrics: the first that exists is used."""
MAXIMA: Final = ("max_latency_ms", "throttle_ms")
SUMS: Final = ("errors", "retries")
TITLES: Final = {"latency_ms": "Request latency measured by clients, ms", "records_per_s": "Records per second"}
KEYS: Final = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
ROLLUP_COLUMNS: Final = ("window_start", *KEYS, "metric", "weight", "sum", "max")
POINT_COLUMNS: Final = ("timestamp", "client_id", "metric", "value")
_RANK: Final = {
    DOMAIN + metric: (measure, place) for measure, metrics in MEASURES.items() for place, metric in enumerate(metrics)
}


@dataclass(slots=True)
class Client:
    """One client instance."""

    instance_id: str
    client_id: str
    software: str
    version: str
    values: dict[str, float] = field(default_factory=dict)
    """Values by measure; measures that the client does not push are missing."""
    last_us: int = 0


@dataclass(frozen=True, slots=True)
class ClientSeries:
    """One measure of several clients over time: pairs of seconds since 1970 and a value."""

    title: str
    by_client: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """The data of the section about clients."""

    clients: Sequence[Client]
    series: Sequence[ClientSeries]
    order: Sequence[str]
    """The order of colors."""


def read_clients(tables: TableReader, order: Sequence[str] = ()) -> ClientHealth | None:
    """Returns None if no client has pushed metrics. ``order`` are tenants that already have a color."""
    import pyarrow.compute as pc  # an extra

    found = tables.read("telemetry", "metrics_1h", ROLLUP_COLUMNS)
    if found is None:
        return None
    known = found.filter(pc.is_in(found["metric"], value_set=_metrics()))
    clients = summarize(found.select([*KEYS, "window_start"]).group_by(list(KEYS)).aggregate([("window_start", "max")])
                        .to_pylist(), known.to_pylist())  # fmt: skip
    names = list(dict.fromkeys(one.client_id for one in clients))
    windows = pc.min_max(found["window_start"]).as_py()
    if windows["max"] - windows["min"] <= SINGLE_REQUESTS_US:
        rows = tables.read("telemetry", "points", POINT_COLUMNS)
    else:
        rows = tables.read("telemetry", "metrics_1m", ("window_start", "client_id", "metric", "sum", "weight"))
        if rows is not None:
            middle = pc.add(rows["window_start"], MINUTE_US // 2)
            rows = rows.append_column("timestamp", middle)
            rows = rows.append_column("value", pc.divide(rows["sum"], rows["weight"]))
    series: list[ClientSeries] = []
    if rows is not None:
        shown = rows.filter(pc.is_in(rows["metric"], value_set=_metrics()))
        series = [
            ClientSeries(title, by_client)
            for measure, title in TITLES.items()
            if (by_client := _over_time(shown.select(list(POINT_COLUMNS)).to_pylist(), measure))
        ]
    return ClientHealth(clients, series, [*order, *(name for name in names if name not in order)])


def summarize(instances: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> list[Client]:
    """Returns the clients by name, including those that push none of these measures."""
    clients = {
        one["client_instance_id"]: Client(
            one["client_instance_id"] or "",
            one["client_id"] or NAMELESS,
            one["client_software_name"] or "unknown",
            one["client_software_version"] or "",
            last_us=one["window_start_max"],
        )
        for one in instances
    }
    sums: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for row in rows:
        measure, place = _RANK[row["metric"]]
        cell = sums[row["client_instance_id"], measure][place]
        cell[0] += row["sum"]
        cell[1] += row["weight"]
        cell[2] = max(cell[2], row["max"])
    for (instance, measure), by_place in sums.items():
        total, weight, highest = by_place[min(by_place)]
        value = highest if measure in MAXIMA else total if measure in SUMS else total / weight if weight else 0.0
        if math.isfinite(value):  # clients may push infinity
            clients[instance].values[measure] = value
    return sorted(clients.values(), key=lambda one: (one.client_id, one.instance_id))


def _over_time(rows: Sequence[Mapping[str, Any]], measure: str) -> dict[str, list[tuple[float, float]]]:
    """Returns the means of all instances with the same client ID, in steps."""
    wanted = [
        (row["timestamp"], row["client_id"] or NAMELESS, _RANK[row["metric"]][1], row["value"])
        for row in rows
        if _RANK[row["metric"]][0] == measure and row["value"] is not None and math.isfinite(row["value"])
    ]
    if not wanted:
        return {}
    first, last = min(one[0] for one in wanted), max(one[0] for one in wanted)
    step_us = step_of(last - first) * SECOND_US
    best: dict[str, int] = {}
    for _, name, place, _ in wanted:
        best[name] = min(best.get(name, place), place)
    cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for time, name, place, value in wanted:
        if place == best[name]:
            cells[name][(time - first) // step_us].append(value)
    shown = largest({name: float(sum(len(values) for values in steps.values())) for name, steps in cells.items()},
                    MOST_TENANTS)  # fmt: skip
    return {
        name: [
            ((first + (step + 0.5) * step_us) / SECOND_US, sum(values) / len(values))
            for step, values in sorted(cells[name].items())
        ]
        for name in sorted(shown)
    }


def _metrics() -> Any:
    import pyarrow as pa  # an extra

    return pa.array(list(_RANK))
