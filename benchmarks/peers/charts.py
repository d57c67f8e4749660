"""Charts of a run: each case as a bar of its ratio to Apache Kafka, and throughput and latency side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.rounds import Measured
from benchmarks.peers.systems import KAFKA, OURS

COLOURS = {OURS: "#2a6f97", KAFKA: "#b8b8b8"}
GOOD, BAD = "#2a6f97", "#c8553d"
KINDS = ("svg", "png")


def draw(measured: Sequence[Measured], directory: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    mpl.rcParams["font.size"] = 9
    ratios(measured, directory)
    side_by_side([one for one in measured if one.metric.unit == "MB/s"], "Throughput", "MB/s", "throughput", directory)
    side_by_side([one for one in measured if one.metric.unit == "s/GB"], "Broker CPU", "s/GB", "cpu", directory)
    latencies = [one for one in measured if one.case.startswith("latency")]
    side_by_side(latencies, "End-to-end latency", "ms", "latency", directory, with_metric=True)


def ratios(measured: Sequence[Measured], directory: Path) -> None:
    import matplotlib.pyplot as plt

    rows = [one for one in measured if one.ratio]
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.26 * len(rows)), layout="constrained")
    # Always so that right is better.
    values = [one.ratio if one.metric.more_is_better else 1 / one.ratio for one in rows if one.ratio]
    names = [f"{one.title}: {one.metric.name}" for one in rows]
    axes.barh(names, values, color=[GOOD if value >= 1 else BAD for value in values])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.set_xlabel("times as good as Apache Kafka (throughput: ours / its; time, memory and CPU: its / ours)")
    axes.invert_yaxis()
    save(figure, directory, "ratios")


def side_by_side(
    rows: Sequence[Measured], title: str, unit: str, name: str, directory: Path, *, with_metric: bool = False
) -> None:
    import matplotlib.pyplot as plt

    if not rows:
        return
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * len(rows)), layout="constrained")
    for offset, system in ((-0.2, OURS), (0.2, KAFKA)):
        medians = [one.median(system) for one in rows]
        spread = [
            [value - min(one.values[system]) for one, value in zip(rows, medians, strict=True)],
            [max(one.values[system]) - value for one, value in zip(rows, medians, strict=True)],
        ]
        places = [number + offset for number in range(len(rows))]
        axes.barh(places, medians, 0.38, xerr=spread, label=system, color=COLOURS[system], error_kw={"linewidth": 0.8})
    # What a chart is about is in its title; anything else is told.
    usual = "" if with_metric else rows[0].metric.name
    names = [one.title if one.metric.name == usual else f"{one.title}: {one.metric.name}" for one in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(f"{title}, median of the rounds with least and greatest")
    axes.legend()
    save(figure, directory, name)


def save(figure: Any, directory: Path, name: str) -> None:
    import matplotlib.pyplot as plt

    for kind in KINDS:
        # Without a date in them: the same results make the same files.
        figure.savefig(directory / f"{name}.{kind}", dpi=110, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
