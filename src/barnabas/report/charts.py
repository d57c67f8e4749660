"""The charts of the report, each a function of its section's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.report.chart_style import Chart, Palette
from barnabas.report.clients import ClientHealth
from barnabas.report.latency import PARTS, Latency, LatencyRow
from barnabas.report.quota_use import Advice, AdvisedLimit, DryRunRow, QuotaUse
from barnabas.report.tenancy import OTHERS
from barnabas.report.traffic import TenantTotal, TimeSeries, Traffic
from barnabas.report.units import duration, number, rate, short_size
from barnabas.spark.pipelines.quotas import NODE_APIS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Array = npt.NDArray[np.float64]

WIDTH: Final = 9.6
MOST_APIS: Final = 9
MOST_BARS: Final = 12
LEAST_SHARE: Final = 0.01
LEAST_MS: Final = 0.01
"""The start of a logarithmic axis, which has no zero."""
QUOTA_TITLES: Final = {
    "producer_byte_rate": "Produced bytes",
    "consumer_byte_rate": "Fetched bytes",
    "request_percentage": "Thread time",
    "controller_mutation_rate": "Partitions created and deleted",
}
TIME_FORMS: Final = {900: "%H:%M:%S", 86_400: "%H:%M"}
"""The format of times on an axis of at most this many seconds; longer axes show dates."""
PART_TITLES: Final = {
    "queue": "waiting for a handler",
    "local": "in the handler",
    "remote": "waiting for data or replicas",
    "response_queue": "waiting for the network thread",
    "send": "sending",
    "throttle": "throttled",
}


def traffic_chart(traffic: Traffic) -> Chart:
    """Stacks the bytes in and out of the tenants over time."""
    series = traffic.series

    def draw(figure: Figure, colors: Palette) -> None:
        panels = figure.subplots(2, 1, sharex=True)
        for axes, name, text in zip(panels, ("produced_bytes", "fetched_bytes"), ("Produced", "Fetched"), strict=True):
            _stack(axes, series, name, traffic.colors, colors)
            axes.set_title(f"{text}, per second")
            _sizes(axes.yaxis)
        _time_axis(panels[-1], series.times_s)
        _legend(
            figure, _patches([*series.by_tenant["produced_bytes"], *series.by_tenant["fetched_bytes"]], traffic, colors)
        )

    alt = f"Bytes produced and fetched per second by {len(traffic.tenants)} tenants over time"
    return Chart("traffic", alt, (WIDTH, 4.6), draw)


def throttle_chart(traffic: Traffic) -> Chart:
    """Shows the throttle times of clients over time."""
    series = traffic.series

    def draw(figure: Figure, colors: Palette) -> None:
        import numpy as np  # an extra

        axes = figure.subplots()
        below = np.zeros(series.steps)
        for name, values in series.by_tenant["throttle_ms"].items():
            axes.bar(
                _dates(series.times_s), values / 1_000, series.step_s * 0.86 / 86_400, below / 1_000,
                color=colors.of(name, traffic.colors), linewidth=0,
            )  # fmt: skip
            below = below + values
        _no_grid(axes, "x")
        axes.set_title(f"Throttle times of clients, in steps of {duration(series.step_s * 1_000.0)}")
        axes.set_ylabel("seconds")
        axes.set_ylim(0, max(float(below.max()) / 1_000 * 1.08, 0.1))
        _time_axis(axes, series.times_s)
        _legend(figure, _patches(list(series.by_tenant["throttle_ms"]), traffic, colors))

    return Chart("throttling", "Throttle times by tenant over time", (WIDTH, 2.7), draw)


def share_chart(traffic: Traffic) -> Chart:
    """Shows the share of each tenant, and where an equal share would end."""
    resources = {"Produced bytes": "produced_bytes", "Fetched bytes": "fetched_bytes", "Thread time": "thread_ms"}

    def draw(figure: Figure, colors: Palette) -> None:
        axes = figure.subplots()
        shown: list[str] = []
        for row, column in enumerate(resources.values()):
            shares = tenant_shares(traffic.tenants, column, traffic.colors)
            shown += shares
            left = 0.0
            for name, share in shares.items():
                axes.barh(row, share * 100, 0.62, left * 100, color=colors.of(name, traffic.colors), linewidth=0)
                if share >= 0.07:
                    axes.text((left + share / 2) * 100, row, f"{share * 100:.0f} %", ha="center", va="center",
                              color="white", fontsize=8.5, fontweight="bold")  # fmt: skip
                left += share
        axes.set_yticks(range(len(resources)), list(resources))
        axes.tick_params(axis="y", length=0, labelcolor=colors.ink)
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        _no_grid(axes, "y")
        _legend(figure, _patches(shown, traffic, colors))

    return Chart("shares", "Each tenant's share of bytes and of thread time", (WIDTH, 2.4), draw)


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


def latency_chart(latency: Latency) -> Chart:
    """Shows the parts of the mean time of a request, and the percentiles."""
    rows = [row for row in latency.by_api if row.api not in NODE_APIS][:MOST_APIS]

    def draw(figure: Figure, colors: Palette) -> None:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for place, row in enumerate(rows):
            start = 0.0
            for color, share in zip(colors.parts, part_shares(row).values(), strict=True):
                left.barh(place, share * 100, 0.62, start * 100, color=color, linewidth=0)
                start += share
        left.set_xlim(0, 100)
        left.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        left.set_title("Parts of the mean time")
        left.set_yticks(range(len(rows)), [f"{row.api}\n{duration(_whole(row))}" for row in rows])
        left.tick_params(axis="y", length=0, labelcolor=colors.ink)
        left.invert_yaxis()
        _no_grid(left, "y")
        _percentile_dots(right, rows, colors)
        patches = [_patch(color, PART_TITLES[part]) for part, color in zip(PARTS, colors.parts, strict=True)]
        _legend(figure, patches, columns=3)

    alt = "For each API: the parts of its mean time, and its 50th, 99th and 99.9th percentile"
    return Chart("latency", alt, (WIDTH, 1.6 + 0.52 * len(rows)), draw)


def part_shares(row: LatencyRow) -> dict[str, float]:
    """Returns the parts of a request's mean time, including the throttle time; they add up to one."""
    whole = _whole(row)
    return {part: row.mean_ms[part] / whole if whole else 0.0 for part in PARTS}


def _whole(row: LatencyRow) -> float:
    return sum(row.mean_ms[part] for part in PARTS)


def _percentile_dots(axes: Axes, rows: Sequence[LatencyRow], colors: Palette) -> None:
    axes.set_xscale("log")
    marks = dict(zip("osD", (colors.series[0], colors.series[1], colors.alarm), strict=True))
    for place, row in enumerate(rows):
        points = [max(value or 0.0, LEAST_MS) for value in (row.p50, row.p99, row.p999)]
        axes.plot(points, [place] * 3, color=colors.muted, linewidth=1.4, zorder=2)
        # The highest is drawn first and largest, because all may be at the same place.
        for place_of, (marker, color) in reversed(list(enumerate(marks.items()))):
            axes.plot([points[place_of]], [place], marker, color=color, markersize=5 + 1.5 * place_of, zorder=3)
    axes.set_title("Percentiles of the time in the broker")
    axes.xaxis.set_major_formatter(lambda value, _: duration(value))
    axes.tick_params(axis="x", which="minor", length=0)
    axes.tick_params(axis="y", length=0)
    handles = [_mark(*mark, text) for mark, text in zip(marks.items(), ("p50", "p99", "p99.9"), strict=True)]
    _legend(axes.figure, handles, where="outside upper right")
    _no_grid(axes, "y")


def quota_chart(use: QuotaUse, traffic: Traffic | None) -> Chart:
    """Shows usage as a fraction of the limit over time."""
    order = _order(traffic, [name for by_group in use.used_of_limit.values() for name in by_group])

    def draw(figure: Figure, colors: Palette) -> None:
        panels = figure.subplots(len(use.used_of_limit), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (quota, by_group) in zip(panels, use.used_of_limit.items(), strict=True):
            highest = 100.0
            for name, values in by_group.items():
                axes.plot(_dates(use.times_s), values * 100, "-o", markersize=2.5, color=colors.of(name, order))
                highest = max(highest, _highest(values) * 100)
            axes.axhline(100, color=colors.alarm, linewidth=1.2, linestyle="--")
            axes.text(1.0, 100, "limit", transform=axes.get_yaxis_transform(), color=colors.alarm, ha="right",
                      va="bottom", fontsize=8)  # fmt: skip
            axes.set_ylim(0, highest * 1.12)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
            axes.set_title(f"{QUOTA_TITLES.get(quota, quota)}: usage of the limit")
        _time_axis(panels[-1], use.times_s)
        names = list(dict.fromkeys(name for by_group in use.used_of_limit.values() for name in by_group))
        _legend(figure, [_patch(colors.of(name, order), name) for name in names])

    alt = "Usage of each quota in percent of its limit, over time"
    return Chart("quotas", alt, (WIDTH, 0.9 + 1.9 * len(use.used_of_limit)), draw)


def advice_chart(advice: Advice, traffic: Traffic | None) -> Chart:
    """Shows peaks with the advised limits, and throttle times in the recording and in the dry run, for one quota."""
    rows: list[AdvisedLimit | DryRunRow] = [*advice.limits, *advice.dry_run]
    order = _order(traffic, [one.name for one in rows])
    quota = rows[0].quota
    limits = [one for one in advice.limits if one.quota == quota][:MOST_BARS]
    tried = [one for one in advice.dry_run if one.quota == quota][:MOST_BARS]

    def draw(figure: Figure, colors: Palette) -> None:
        panels = list(figure.subplots(1, bool(limits) + bool(tried), squeeze=False)[0])
        if limits:
            _limit_bars(panels.pop(0), quota, limits, order, colors)
        if tried:
            _delay_bars(panels.pop(0), tried, order, colors)

    alt = "The peak of each tenant with its advised limit, and its throttle time under that limit"
    return Chart("advice", alt, (WIDTH, 1.2 + 0.55 * max(len(limits), len(tried))), draw)


def _limit_bars(axes: Axes, quota: str, limits: Sequence[AdvisedLimit], order: Sequence[str], colors: Palette) -> None:
    for place, one in enumerate(limits):
        axes.barh(place, one.peak, 0.5, color=colors.of(one.name, order), linewidth=0)
        axes.plot([one.limit] * 2, [place - 0.36, place + 0.36], color=colors.alarm, linewidth=2.5)
        _note(axes, max(one.peak, one.limit), place, rate(quota, one.limit), colors)
    axes.set_title(f"{QUOTA_TITLES[quota]}: peak and advised limit")
    _bars(axes, [f"{one.name}\n{one.verdict}" for one in limits], colors)
    axes.set_xlim(0, max(max(one.peak, one.limit) for one in limits) * 1.35)
    if quota.endswith("byte_rate"):
        _sizes(axes.xaxis)
    _thin_out(axes)


def _delay_bars(axes: Axes, tried: Sequence[DryRunRow], order: Sequence[str], colors: Palette) -> None:
    for place, row in enumerate(tried):
        axes.barh(place - 0.17, row.throttle_ms / 1_000, 0.3, color=colors.of(row.name, order), linewidth=0)
        axes.barh(place + 0.17, row.recorded_throttle_ms / 1_000, 0.3, color=colors.muted, linewidth=0)
        _note(axes, row.throttle_ms / 1_000, place - 0.17, duration(row.throttle_ms), colors)
    axes.set_title("Throttled: dry run (color), recorded (grey)")
    _bars(axes, [row.name for row in tried], colors)
    longest_s = max(max(row.throttle_ms, row.recorded_throttle_ms) for row in tried) / 1_000
    axes.set_xlim(0, longest_s * 1.3 or 1.0)
    axes.set_xlabel("seconds")
    _thin_out(axes)


def client_chart(health: ClientHealth) -> Chart:
    """Shows what clients measure themselves: latency of requests, and rates of records."""

    def draw(figure: Figure, colors: Palette) -> None:
        panels = figure.subplots(len(health.series), 1, sharex=True, squeeze=False)[:, 0]
        for axes, one in zip(panels, health.series, strict=True):
            for name, points in one.by_client.items():
                times, values = zip(*points, strict=True)
                axes.plot(_dates(times), values, "-o", markersize=2.5, color=colors.of(name, health.order))
            axes.set_title(one.title)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: number(value))
        everything = [time for one in health.series for points in one.by_client.values() for time, _ in points]
        _time_axis(panels[-1], [min(everything), max(everything)])
        names = list(dict.fromkeys(name for one in health.series for name in one.by_client))
        _legend(figure, [_patch(colors.of(name, health.order), name) for name in names])

    alt = "Latency and rates as clients measure them, over time"
    return Chart("clients", alt, (WIDTH, 0.9 + 1.7 * len(health.series)), draw)


def _stack(axes: Axes, series: TimeSeries, name: str, order: Sequence[str], colors: Palette) -> None:
    """Puts the largest on top, so that steady series have a steady base line."""
    import numpy as np  # an extra

    by_tenant = series.by_tenant[name]
    below = np.zeros(series.steps)
    for tenant in reversed(list(by_tenant)):
        above = below + by_tenant[tenant]
        axes.fill_between(_dates(series.times_s), below, above, color=colors.of(tenant, order), alpha=0.88, linewidth=0)
        below = above
    axes.set_ylim(0, max(float(below.max()) * 1.08, 1.0))


def _order(traffic: Traffic | None, names: Sequence[str]) -> list[str]:
    """Keeps the colors of tenants that are also in other charts."""
    known = traffic.colors if traffic else []
    return [*known, *(name for name in dict.fromkeys(names) if name not in known)]


def _dates(times_s: Sequence[float]) -> Array:
    """Converts times to Matplotlib's days since 1970."""
    import numpy as np  # an extra

    return np.asarray(times_s) / 86_400


def _time_axis(axes: Axes, times_s: Sequence[float]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter  # an extra

    first, last = times_s[0], times_s[-1]
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    form = next((text for seconds, text in TIME_FORMS.items() if last - first <= seconds), None)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator) if form is None else DateFormatter(form)  # type: ignore[no-untyped-call]
    )
    if first < last:
        axes.set_xlim(*_dates([first, last]))
    axes.set_xlabel("time (UTC)")


def _sizes(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator  # an extra

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda value, _: short_size(value))


def _bars(axes: Axes, labels: Sequence[str], colors: Palette) -> None:
    axes.set_yticks(range(len(labels)), list(labels))
    axes.tick_params(axis="y", length=0, labelcolor=colors.ink)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    _no_grid(axes, "y")


def _note(axes: Axes, right_of: float, place: float, text: str, colors: Palette) -> None:
    """Writes text at the end of a bar."""
    axes.annotate(
        text, (right_of, place), (5, 0), textcoords="offset points", va="center", color=colors.ink, fontsize=8.5
    )


def _thin_out(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator  # an extra

    axes.xaxis.set_major_locator(MaxNLocator(4))


def _no_grid(axes: Axes, which: Any) -> None:
    axes.grid(visible=False, axis=which)


def _highest(values: Array) -> float:
    import numpy as np  # an extra

    return float(np.nanmax(values, initial=0.0))


def _patch(color: str, text: str) -> Any:
    from matplotlib.patches import Patch  # an extra

    # A legend leaves out labels that begin with an underscore.
    return Patch(color=color, label=f" {text}" if text.startswith("_") else text)


def _mark(marker: str, color: str, text: str) -> Any:
    from matplotlib.lines import Line2D  # an extra

    return Line2D([], [], color=color, marker=marker, linestyle="none", markersize=6, label=text)


def _patches(names: Sequence[str], traffic: Traffic, colors: Palette) -> list[Any]:
    shown: Mapping[str, None] = dict.fromkeys(name if name in traffic.colors else OTHERS for name in names)
    ordered = [name for name in (*traffic.colors, OTHERS) if name in shown]
    return [_patch(colors.of(name, traffic.colors), name) for name in ordered]


def _legend(figure: Any, handles: Sequence[Any], columns: int = 8, where: str = "outside upper left") -> None:
    if handles:
        figure.legend(
            handles=list(handles), loc=where, ncols=min(columns, len(handles)), fontsize=8.5,
            handlelength=1.0, handleheight=1.0, columnspacing=1.4,
        )  # fmt: skip
