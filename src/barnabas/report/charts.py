"""The charts of the report, each a function of its section's data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.report.chart import LEAST_MS, Bar, BarChart, BarPanel, Line, Mark, Shape, TimeChart, TimePanel, Unit
from barnabas.report.clients import ClientHealth
from barnabas.report.latency import PARTS, Latency, LatencyRow
from barnabas.report.palette import series_color
from barnabas.report.quota_use import Advice, AdvisedLimit, DryRunRow, QuotaUse
from barnabas.report.tenancy import OTHERS
from barnabas.report.traffic import TenantTotal, Traffic
from barnabas.report.units import duration, rate
from barnabas.spark.pipelines.quotas import NODE_APIS

MOST_APIS: Final = 9
MOST_BARS: Final = 12
LEAST_SHARE: Final = 0.01
QUOTA_TITLES: Final = {
    "producer_byte_rate": "Produced bytes",
    "consumer_byte_rate": "Fetched bytes",
    "request_percentage": "Thread time",
    "controller_mutation_rate": "Partitions created and deleted",
}
QUOTA_UNITS: Final = {"producer_byte_rate": Unit.BYTES_PER_S, "consumer_byte_rate": Unit.BYTES_PER_S}
PART_TITLES: Final = {
    "queue": "waiting for a handler",
    "local": "in the handler",
    "remote": "waiting for data or replicas",
    "response_queue": "waiting for the network thread",
    "send": "sending",
    "throttle": "throttled",
}
PERCENTILE_COLORS: Final = {"p50": "s0", "p99": "s1", "p99.9": "alarm"}


def traffic_chart(traffic: Traffic) -> TimeChart:
    """Stacks the bytes in and out of the tenants over time."""
    panels = [
        _tenant_panel(traffic, name, f"{text}, per second", Shape.AREA, Unit.BYTES_PER_S)
        for name, text in (("produced_bytes", "Produced"), ("fetched_bytes", "Fetched"))
    ]
    alt = f"Bytes produced and fetched per second by {len(traffic.tenants)} tenants over time"
    return TimeChart("traffic", alt, panels)


def throttle_chart(traffic: Traffic) -> TimeChart:
    """Stacks the throttle times of clients over time."""
    title = f"Throttle times of clients, in steps of {duration(traffic.series.step_s * 1_000.0)}"
    panel = _tenant_panel(traffic, "throttle_ms", title, Shape.COLUMNS, Unit.SECONDS, 1_000.0)
    return TimeChart("throttling", "Throttle times by tenant over time", [panel])


def _tenant_panel(traffic: Traffic, name: str, title: str, shape: Shape, unit: Unit, divisor: float = 1.0) -> TimePanel:
    series = traffic.series
    lines = [
        Line(tenant, series_color(tenant, traffic.colors), [value / divisor for value in values.tolist()])
        for tenant, values in series.by_tenant[name].items()
    ]
    return TimePanel(title, shape, unit, series.times_s, lines)


def share_chart(traffic: Traffic) -> BarChart:
    """Shows the share of each tenant of each resource."""
    resources = {"Produced bytes": "produced_bytes", "Fetched bytes": "fetched_bytes", "Thread time": "thread_ms"}
    bars = [
        Bar(
            title,
            [
                Mark(name, series_color(name, traffic.colors), share)
                for name, share in tenant_shares(traffic.tenants, column, traffic.colors).items()
            ],
        )
        for title, column in resources.items()
    ]
    panel = BarPanel("Share of each tenant", Unit.PERCENT, bars)
    return BarChart("shares", "Each tenant's share of bytes and of thread time", [panel])


def tenant_shares(tenants: Sequence[TenantTotal], column: str, order: Sequence[str]) -> dict[str, float]:
    """Returns the share of each tenant; tenants without a color, and very small ones, are combined."""
    everything = sum(getattr(one, column) for one in tenants)
    shares: dict[str, float] = {}
    for one in tenants:
        part = getattr(one, column) / everything if everything else 0.0
        name = one.name if one.name in order and part >= LEAST_SHARE else OTHERS
        if part:
            shares[name] = shares.get(name, 0.0) + part
    return shares


def latency_chart(latency: Latency) -> BarChart:
    """Shows the parts of the mean time of a request, and the percentiles."""
    rows = [row for row in latency.by_api if row.api not in NODE_APIS][:MOST_APIS]
    parts = [
        Bar(
            row.api,
            [Mark(PART_TITLES[part], f"p{PARTS.index(part)}", share) for part, share in part_shares(row).items()],
            text=duration(mean_time(row)),
        )
        for row in rows
    ]
    dots = [
        Bar(
            row.api,
            [
                Mark(name, color, max(value or 0.0, LEAST_MS))
                for (name, color), value in zip(
                    PERCENTILE_COLORS.items(), (row.p50, row.p99, row.p999), strict=True
                )
            ],
        )
        for row in rows
    ]  # fmt: skip
    panels = [
        BarPanel("Parts of the mean time", Unit.PERCENT, parts),
        BarPanel("Percentiles of the time in the broker", Unit.MILLISECONDS, dots, are_dots=True),
    ]
    alt = "For each API: the parts of its mean time, and its 50th, 99th and 99.9th percentile"
    return BarChart("latency", alt, panels)


def part_shares(row: LatencyRow) -> dict[str, float]:
    """Returns the parts of a request's mean time, including the throttle time; they add up to one."""
    whole = mean_time(row)
    return {part: row.mean_ms[part] / whole if whole else 0.0 for part in PARTS}


def mean_time(row: LatencyRow) -> float:
    """Returns the mean time of a request in milliseconds, including its throttle time."""
    return sum(row.mean_ms[part] for part in PARTS)


def quota_chart(use: QuotaUse, traffic: Traffic | None) -> TimeChart:
    """Shows usage as a fraction of the limit over time."""
    order = _order(traffic, [name for by_group in use.used_of_limit.values() for name in by_group])
    panels = [
        TimePanel(
            f"{QUOTA_TITLES.get(quota, quota)}: usage of the limit",
            Shape.LINE,
            Unit.PERCENT,
            use.times_s,
            [Line(name, series_color(name, order), _known(values.tolist())) for name, values in by_group.items()],
            limit=1.0,
        )
        for quota, by_group in use.used_of_limit.items()
    ]
    return TimeChart("quotas", "Usage of each quota in percent of its limit, over time", panels)


def advice_chart(advice: Advice, traffic: Traffic | None) -> BarChart:
    """Shows peaks with the advised limits, and throttle times in the recording and in the dry run, for one quota."""
    rows: list[AdvisedLimit | DryRunRow] = [*advice.limits, *advice.dry_run]
    order = _order(traffic, [one.name for one in rows])
    quota = rows[0].quota
    peaks = [
        Bar(
            one.name,
            [Mark("peak", series_color(one.name, order), one.peak)],
            note=one.verdict,
            text=rate(quota, one.limit),
            limit=one.limit,
        )
        for one in advice.limits
        if one.quota == quota
    ]
    tried = [one for one in advice.dry_run if one.quota == quota]
    delays = [
        Bar(one.name, [Mark(note, color, time_ms / 1_000)], note=note, text=duration(time_ms))
        for one in tried[: MOST_BARS // 2]
        for note, color, time_ms in (
            ("dry run", series_color(one.name, order), one.throttle_ms),
            ("recorded", "muted", one.recorded_throttle_ms),
        )
    ]
    unit = QUOTA_UNITS.get(quota, Unit.NUMBER)
    panels = [
        BarPanel(title, of, bars[:MOST_BARS], has_legend=False)
        for title, of, bars in (
            (f"{QUOTA_TITLES[quota]}: peak (bar) and advised limit (line)", unit, peaks),
            ("Throttle time", Unit.SECONDS, delays),
        )
        if bars
    ]
    alt = "The peak of each tenant with its advised limit, and its throttle time under that limit"
    return BarChart("advice", alt, panels)


def client_chart(health: ClientHealth) -> TimeChart:
    """Shows what clients measure themselves: latency of requests, and rates of records."""
    panels = []
    for one in health.series:
        times = sorted({time for points in one.by_client.values() for time, _ in points})
        lines = []
        for name, points in one.by_client.items():
            found = dict(points)
            lines.append(Line(name, series_color(name, health.order), [found.get(time) for time in times]))
        panels.append(TimePanel(one.title, Shape.LINE, Unit.NUMBER, times, lines))
    return TimeChart("clients", "Latency and rates as clients measure them, over time", panels)


def _order(traffic: Traffic | None, names: Sequence[str]) -> list[str]:
    """Keeps the colors of tenants that are also in other charts."""
    known = traffic.colors if traffic else []
    return [*known, *(name for name in dict.fromkeys(names) if name not in known)]


def _known(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]
