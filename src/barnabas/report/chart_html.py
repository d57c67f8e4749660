"""Renders charts as parts of a page.

Bars are plain elements, whose widths are percentages: they need no script, wrap on a phone and can be printed. Charts
with a time axis are data for the script of the page, which draws them with uPlot.
"""

from __future__ import annotations

import json
import math
import re
from html import escape
from typing import Final

from barnabas.report.chart import BarChart, BarPanel, Chart, Mark, TimeChart, TimePanel, Unit

LEAST_LABELLED: Final = 0.04
"""The smallest share of a bar that may have room for its number; the style sheet hides it where there is none."""
SIGNIFICANT: Final = 5
"""The digits of a value in the data of a chart: more than a screen has pixels for."""
_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")
"""Where the name of an API may be broken."""


def chart_html(chart: Chart) -> str:
    """Returns the element of a chart."""
    return _times(chart) if isinstance(chart, TimeChart) else _bars(chart)


def _times(chart: TimeChart) -> str:
    data = {"name": chart.name, "alt": chart.alt, "panels": [_panel(panel) for panel in chart.panels]}
    # A "<" in a client ID must not end the script element.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return f'<figure class="times" data-chart="{chart.name}"><script type="application/json">{text}</script></figure>'


def _panel(panel: TimePanel) -> dict[str, object]:
    return {
        "title": panel.title,
        "shape": panel.shape.value,
        "unit": panel.unit.value,
        "times": list(panel.times_s),
        "limit": panel.limit,
        "lines": [
            {"name": line.name, "color": line.color, "values": [_rounded(value) for value in line.values]}
            for line in panel.lines
        ],
    }


def _rounded(value: float | None) -> float | None:
    """Rounds to a few significant digits, which halves the size of the data.

    >>> _rounded(1234567.8), _rounded(0.0123456), _rounded(None), _rounded(0.0)
    (1234600, 0.012346, None, 0)
    """
    if value is None:
        return None
    short = float(f"{value:.{SIGNIFICANT}g}")
    return int(short) if short == int(short) else short


def _bars(chart: BarChart) -> str:
    panels = "".join(_bar_panel(panel) for panel in chart.panels)
    label = escape(chart.alt)
    return f'<figure class="bars" data-chart="{chart.name}" role="group" aria-label="{label}">{panels}</figure>'


def _bar_panel(panel: BarPanel) -> str:
    legend = "".join(
        f'<span><i style="background:var(--{color})"></i>{escape(name)}</span>' for name, color in panel.legend
    )
    first, last = _decades(panel)
    rows = []
    for bar in panel.bars:
        if panel.are_dots:
            # The highest is drawn first and largest, because all may be at the same place.
            track = "".join(_dot(mark, panel.unit, first, last) for mark in reversed(bar.marks))
        else:
            has_numbers = not bar.text
            track = "".join(_part(mark, panel, has_numbers) for mark in bar.marks if mark.value > 0)
        if bar.limit is not None:
            track += f'<b style="left:{_percent(bar.limit / panel.end)}"></b>'
        note = f"<small>{escape(bar.note)}</small>" if bar.note else ""
        rows.append(
            f"<dt>{_WORDS.sub('<wbr>', escape(bar.label))}{note}</dt>"
            f'<dd><div class="track">{track}</div>{f"<span>{escape(bar.text)}</span>" if bar.text else ""}</dd>'
        )
    if panel.are_dots:
        rows.append(f'<dt></dt><dd><div class="axis">{_axis(panel.unit, first, last)}</div></dd>')
    kind = "panel dots" if panel.are_dots else "panel"
    return (
        f'<div class="{kind}"><h4>{escape(panel.title)}</h4>'
        + (f'<div class="legend">{legend}</div>' if legend else "")
        + f"<dl>{''.join(rows)}</dl></div>"
    )


def _part(mark: Mark, panel: BarPanel, has_numbers: bool) -> str:
    share = mark.value / panel.end
    number = panel.unit.text(mark.value)
    shown = f"<span>{number}</span>" if has_numbers and share >= LEAST_LABELLED else ""
    tip = escape(f"{mark.name}: {number}")
    return f'<i style="width:{_percent(share)};background:var(--{mark.color})" data-tip="{tip}">{shown}</i>'


def _dot(mark: Mark, unit: Unit, first: int, last: int) -> str:
    place = (math.log10(mark.value) - first) / (last - first)
    tip = escape(f"{mark.name}: {unit.text(mark.value)}")
    return f'<i style="left:{_percent(place)};background:var(--{mark.color})" data-tip="{tip}"></i>'


def _decades(panel: BarPanel) -> tuple[int, int]:
    """Returns the first and the last power of ten of a logarithmic axis."""
    values = [mark.value for bar in panel.bars for mark in bar.marks if mark.value > 0]
    if not panel.are_dots or not values:
        return 0, 1
    first = math.floor(math.log10(min(values)))
    return first, max(math.ceil(math.log10(max(values))), first + 1)


def _axis(unit: Unit, first: int, last: int) -> str:
    # At most four labels fit on a phone.
    step = -(-(last - first) // 3)
    return "".join(
        f'<span style="left:{_percent((power - first) / (last - first))}">{escape(unit.text(10.0**power))}</span>'
        for power in range(first, last + 1, step)
    )


def _percent(share: float) -> str:
    return f"{share * 100:.4g}%"
