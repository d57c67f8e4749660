"""The definition of a chart: its data, titles and units, without any drawing.

Two renderers read it: `barnabas.report.chart_html` for the page, `barnabas.report.chart_png` for images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.report.units import duration, number, percent, short_size

LEAST_MS: Final = 0.01
"""The start of a logarithmic axis, which has no zero."""


class Unit(Enum):
    """The unit of an axis. The script of the page formats the same units."""

    BYTES_PER_S = "B/s"
    SECONDS = "s"
    MILLISECONDS = "ms"
    PERCENT = "%"
    NUMBER = ""

    def text(self, value: float) -> str:
        """Formats a value for an axis.

        >>> Unit.BYTES_PER_S.text(2_000_000), Unit.PERCENT.text(0.5), Unit.SECONDS.text(0.25)
        ('2 MB/s', '50 %', '250 ms')
        """
        match self:
            case Unit.BYTES_PER_S:
                return f"{short_size(value)}/s" if value else "0"
            case Unit.SECONDS:
                return duration(value * 1_000)
            case Unit.MILLISECONDS:
                return duration(value)
            case Unit.PERCENT:
                return percent(value)
            case _:
                return number(value)


class Shape(Enum):
    """The shape of the series of a panel with a time axis."""

    AREA = "area"
    """Stacked; the first series is on top."""
    COLUMNS = "columns"
    """Stacked columns, one per step."""
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Line:
    """One series over time. None where it has no value."""

    name: str
    color: str
    """A name in the palette."""
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class TimePanel:
    """Series over one time axis."""

    title: str
    shape: Shape
    unit: Unit
    times_s: Sequence[float]
    lines: Sequence[Line]
    limit: float | None = None
    """Where to draw a line across."""


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Panels below each other, which share the legend and the pointer."""

    name: str
    """The name of the image file."""
    alt: str
    panels: Sequence[TimePanel]


@dataclass(frozen=True, slots=True)
class Mark:
    """A part of a bar, or a dot."""

    name: str
    color: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: its parts follow each other, or its dots are on one line."""

    label: str
    marks: Sequence[Mark]
    note: str = ""
    """Text below the label."""
    text: str = ""
    """Text at the end of the row."""
    limit: float | None = None
    """Where to draw a line across the row."""


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Horizontal bars, or dots on a logarithmic axis, on a common scale."""

    title: str
    unit: Unit
    bars: Sequence[Bar]
    are_dots: bool = False
    has_legend: bool = True

    @property
    def end(self) -> float:
        """The end of the axis of bars. An axis of percentages ends at one."""
        if self.unit is Unit.PERCENT:
            return 1.0
        return max(
            (max(sum(mark.value for mark in bar.marks), bar.limit or 0.0) for bar in self.bars), default=0.0
        ) or 1.0  # fmt: skip

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The names of the marks and their colors, each once."""
        marks = [(mark.name, mark.color) for bar in self.bars for mark in bar.marks]
        return list(dict.fromkeys(marks)) if self.has_legend else []


@dataclass(frozen=True, slots=True)
class BarChart:
    """Panels beside each other, or below each other where there is no room."""

    name: str
    alt: str
    panels: Sequence[BarPanel]


Chart = TimeChart | BarChart
