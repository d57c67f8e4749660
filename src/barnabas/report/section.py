"""The parts of a section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.report.chart import Chart


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with its sort key."""

    text: str
    value: float | str
    is_alarming: bool = False


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Rows with a caption. Strings are sorted as such."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, text, charts and tables."""

    name: str
    title: str
    lead: str
    charts: Sequence[Chart]
    tables: Sequence[SectionTable]
    missing: str | None = None
    """The command to run if there is no data."""
