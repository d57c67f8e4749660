"""What a section of the report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.report.chart_style import Chart


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, and what it is sorted by."""

    text: str
    value: float | str
    is_alarming: bool = False


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Rows with a caption. A text is sorted as such."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, charts, tables and words."""

    name: str
    title: str
    lead: str
    charts: Sequence[Chart]
    tables: Sequence[SectionTable]
    missing: str | None = None
    """What to run, if there is nothing to show."""
