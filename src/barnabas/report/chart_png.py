"""Renders charts as images with Matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.extras import extra
from barnabas.report.chart import BarChart, BarPanel, Chart, Shape, TimeChart, TimePanel
from barnabas.report.palette import LIGHT

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Array = npt.NDArray[np.float64]

WIDTH: Final = 9.6
PNG_DPI: Final = 150
LEAST_LABELLED: Final = 0.07
"""The smallest share of a bar that has room for its number."""
TIME_FORMS: Final = {900: "%H:%M:%S", 86_400: "%H:%M"}
"""The format of times on an axis of at most this many seconds; longer axes show dates."""
COLORS: Final = LIGHT.named()
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": LIGHT.ink,
    # Dollar signs in the name of a client are not a formula.
    "text.parse_math": False,
    "axes.edgecolor": LIGHT.line,
    "axes.labelcolor": LIGHT.muted,
    "axes.titlecolor": LIGHT.ink,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT.line,
    "grid.linewidth": 0.8,
    "xtick.color": LIGHT.line,
    "ytick.color": LIGHT.line,
    "xtick.labelcolor": LIGHT.muted,
    "ytick.labelcolor": LIGHT.muted,
    "legend.frameon": False,
    "legend.labelcolor": LIGHT.ink,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "savefig.facecolor": "white",
}


def write_png(chart: Chart, file: Path) -> None:
    """Renders a chart as an image with the colors of a light page."""
    with extra("report", "an image of a chart"):
        import matplotlib as mpl
        from matplotlib.figure import Figure

    file.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Characters that Matplotlib's font lacks: browsers show them, images show a box.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        if isinstance(chart, TimeChart):
            figure = Figure(figsize=(WIDTH, 0.9 + 1.9 * len(chart.panels)), layout="constrained")
            _draw_times(figure, chart)
        else:
            bars = max(len(panel.bars) for panel in chart.panels)
            figure = Figure(figsize=(WIDTH, 1.4 + 0.45 * bars), layout="constrained")
            _draw_bars(figure, chart)
        figure.savefig(file, format="png", dpi=PNG_DPI)


def _draw_times(figure: Figure, chart: TimeChart) -> None:
    grid = figure.subplots(len(chart.panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, chart.panels, strict=True):
        highest = _lines(axes, panel) if panel.shape is Shape.LINE else _stack(axes, panel)
        if panel.limit is not None:
            axes.axhline(panel.limit, color=LIGHT.alarm, linewidth=1.2, linestyle="--")
            highest = max(highest, panel.limit)
        axes.set_title(panel.title)
        axes.set_ylim(0, highest * 1.1 or 1.0)
        axes.yaxis.set_major_formatter(lambda value, _, unit=panel.unit: unit.text(value))
    _time_axis(grid[-1], [time for panel in chart.panels for time in panel.times_s])
    _legend(figure, [(line.name, line.color) for panel in chart.panels for line in panel.lines])


def _lines(axes: Axes, panel: TimePanel) -> float:
    highest = 0.0
    for line in panel.lines:
        points = [(time, value) for time, value in zip(panel.times_s, line.values, strict=True) if value is not None]
        axes.plot(
            _dates([time for time, _ in points]), [value for _, value in points], "-o",
            markersize=2.5, color=COLORS[line.color],
        )  # fmt: skip
        highest = max([highest, *(value for _, value in points)])
    return highest


def _stack(axes: Axes, panel: TimePanel) -> float:
    import numpy as np  # an extra

    times = _dates(panel.times_s)
    step = float(times[1] - times[0]) if len(times) > 1 else 1 / 86_400
    below = np.zeros(len(times))
    for line in reversed(panel.lines):
        above = below + np.asarray(line.values, dtype=np.float64)
        if panel.shape is Shape.AREA:
            axes.fill_between(times, below, above, color=COLORS[line.color], linewidth=0)
        else:
            axes.bar(times, above - below, step * 0.86, below, color=COLORS[line.color], linewidth=0)
        below = above
    return float(below.max(initial=0.0))


def _draw_bars(figure: Figure, chart: BarChart) -> None:
    grid = figure.subplots(1, len(chart.panels), squeeze=False)[0]
    for axes, panel in zip(grid, chart.panels, strict=True):
        if panel.are_dots:
            _dots(axes, panel)
        else:
            _bars(axes, panel)
        axes.set_title(panel.title)
        axes.xaxis.set_major_formatter(lambda value, _, unit=panel.unit: unit.text(value))
        axes.set_yticks(
            range(len(panel.bars)), ["\n".join(part for part in (bar.label, bar.note) if part) for bar in panel.bars]
        )
        axes.tick_params(axis="y", length=0, labelcolor=LIGHT.ink)
        axes.tick_params(axis="x", which="minor", length=0)
        axes.set_ylim(len(panel.bars) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
    _legend(figure, [entry for panel in chart.panels for entry in panel.legend], columns=5)


def _bars(axes: Axes, panel: BarPanel) -> None:
    from matplotlib.ticker import MaxNLocator  # an extra

    has_texts = any(bar.text for bar in panel.bars)
    for place, bar in enumerate(panel.bars):
        left = 0.0
        for mark in bar.marks:
            axes.barh(place, mark.value, 0.6, left, color=COLORS[mark.color], linewidth=0)
            if len(bar.marks) > 1 and not has_texts and mark.value / panel.end >= LEAST_LABELLED:
                axes.text(
                    left + mark.value / 2, place, panel.unit.text(mark.value),
                    ha="center", va="center", color="white", fontsize=8.5, fontweight="bold",
                )  # fmt: skip
            left += mark.value
        if bar.limit is not None:
            axes.plot([bar.limit] * 2, [place - 0.36, place + 0.36], color=LIGHT.alarm, linewidth=2.5)
        axes.annotate(
            bar.text, (max(left, bar.limit or 0.0), place), (5, 0),
            textcoords="offset points", va="center", fontsize=8.5,
        )  # fmt: skip
    axes.set_xlim(0, panel.end * (1.3 if has_texts else 1.0))
    ticks = MaxNLocator(4).tick_values(0, panel.end)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= panel.end * 1.001])


def _dots(axes: Axes, panel: BarPanel) -> None:
    axes.set_xscale("log")
    for place, bar in enumerate(panel.bars):
        axes.plot([mark.value for mark in bar.marks], [place] * len(bar.marks), color=LIGHT.muted, linewidth=1.4)
        # The highest is drawn first and largest, because all may be at the same place.
        for number, mark in reversed(list(enumerate(bar.marks))):
            axes.plot([mark.value], [place], "o", color=COLORS[mark.color], markersize=5 + 1.5 * number)


def _dates(times_s: Sequence[float]) -> Array:
    """Converts times to Matplotlib's days since 1970."""
    import numpy as np  # an extra

    return np.asarray(times_s, dtype=np.float64) / 86_400


def _time_axis(axes: Axes, times_s: Sequence[float]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter  # an extra

    first, last = min(times_s), max(times_s)
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    form = next((text for seconds, text in TIME_FORMS.items() if last - first <= seconds), None)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator) if form is None else DateFormatter(form)  # type: ignore[no-untyped-call]
    )
    if first < last:
        axes.set_xlim(*_dates([first, last]))
    axes.set_xlabel("time (UTC)")


def _legend(figure: Figure, entries: Sequence[tuple[str, str]], columns: int = 8) -> None:
    from matplotlib.patches import Patch  # an extra

    # A legend leaves out labels that begin with an underscore.
    handles = [
        Patch(color=COLORS[color], label=f" {name}" if name.startswith("_") else name)
        for name, color in dict.fromkeys(entries)
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside upper left", ncols=min(columns, len(handles)), fontsize=8.5,
            handlelength=1.0, handleheight=1.0, columnspacing=1.4,
        )  # fmt: skip
