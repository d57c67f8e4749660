"""Renders the report as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from barnabas.common.extras import extra
from barnabas.report import sections
from barnabas.report.chart import Chart
from barnabas.report.chart_html import chart_html
from barnabas.report.chart_png import write_png
from barnabas.report.cluster_state import ClusterState
from barnabas.report.comparison import compare, read_earlier
from barnabas.report.conclusions import Conclusion, draw_conclusions
from barnabas.report.data import read_data
from barnabas.report.page_assets import script, style_sheet
from barnabas.report.section import Cell, Section, SectionTable
from barnabas.report.summary import conclusions_json, make_summary
from barnabas.report.table_reader import TableReader
from barnabas.report.tenancy import TenantNames, find_nodes
from barnabas.report.units import NONE, duration, moment, number, size
from barnabas.spark.pipelines.quota_proposal import Tenancy

MOST_ROWS: Final = 50
"""The maximum number of rows of a table on the page; the rest is in the tables themselves."""
FEW_ROWS: Final = 10
"""The number of rows shown before the user asks for more; the style sheet has the same number."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report that can be written in several formats."""

    title: str
    conclusions: Sequence[Conclusion]
    sections: Sequence[Section]
    summary: Mapping[str, Any]

    @property
    def charts(self) -> list[Chart]:
        return [chart for section in self.sections for chart in section.charts]

    def write_html(self, file: Path) -> None:
        """Writes one self-contained file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.html(), encoding="utf-8")

    def write_pngs(self, directory: Path) -> list[Path]:
        """Writes each chart as an image."""
        files = [directory / f"{chart.name}.png" for chart in self.charts]
        for chart, file in zip(self.charts, files, strict=True):
            write_png(chart, file)
        return files

    def html(self) -> str:
        links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in self.sections)
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<style>{style_sheet()}</style></head>\n"
            f"<body><header><h1>{escape(self.title)}</h1><p>{escape(self._subtitle())}</p>"
            f"{_tiles(self.summary)}<nav>{links}</nav></header>\n<main>\n{_conclusions(self.conclusions)}\n"
            + "\n".join(_section(one) for one in self.sections)
            + f"\n</main>\n<script>{script()}</script></body></html>\n"
        )

    def _subtitle(self) -> str:
        start, end = self.summary["start_us"], self.summary["end_us"]
        if start is None:
            return "The request log is empty."
        return f"{moment(start)} to {moment(end)} ({duration((end - start) / 1_000)}), {self.summary['sampling']}"


def make_report(
    out: str | Path,
    title: str = "Barnabas report",
    tenancy: Tenancy = Tenancy.CLIENT_ID,
    groups: Mapping[str, Sequence[str]] | None = None,
    earlier: Path | None = None,
    cluster: ClusterState | None = None,
) -> Report:
    """Reads the tables below a directory; raises `ReportError` if there are none.

    ``groups`` combines tenants (see `barnabas.report.tenancy.TenantNames`). ``earlier`` is a file with the JSON of the
    report to compare with. ``cluster`` has topics and groups as they are now (`read_cluster`).
    """
    with extra("report", "a report"):  # fails before any work is done
        import pyarrow as pa  # noqa: F401
    before = None if earlier is None else read_earlier(earlier)
    tables = TableReader(out)
    data = read_data(tables, TenantNames(tenancy, groups or {}, find_nodes(tables)), cluster)
    summary = make_summary(data)
    comparison = None if before is None else compare(before, summary)
    conclusions = draw_conclusions(data, comparison)
    summary["conclusions"] = conclusions_json(conclusions)
    shown = [
        *([] if comparison is None else [sections.comparison_section(comparison)]),
        sections.traffic_section(data.traffic, tables),
        sections.topic_section(data.cluster, tables),
        sections.latency_section(data.latency, tables),
        sections.quota_section(data.quota_use, data.traffic, tables),
        sections.noise_section(data.traffic, tables),
        sections.advice_section(data.advice, data.traffic, tables),
        sections.client_section(data.clients, tables),
        sections.dead_letter_section(data.dead_letters or {}, tables),
    ]
    return Report(title, conclusions, shown, summary)


def _tiles(summary: Mapping[str, Any]) -> str:
    tiles = [
        ("tenants", number(sum(_has_data(one) for one in summary["tenants"])), ""),
        ("requests", number(summary["requests"]), ""),
        ("produced", size(summary["produced_bytes"]), ""),
        ("fetched", size(summary["fetched_bytes"]), ""),
        ("p99 of Produce", duration(summary["produce_p99_ms"]), ""),
        ("throttle time", duration(summary["throttle_ms"]), "alarm" if summary["throttle_ms"] else ""),
        ("clients", NONE if summary["clients"] is None else number(len(summary["clients"])), ""),
        ("dead letters", number(summary["dead_letters"]), "alarm" if summary["dead_letters"] else ""),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="{kind}"><b>{escape(value)}</b><span>{name}</span></div>' for name, value, kind in tiles)
        + "</div>"
    )


def _conclusions(conclusions: Sequence[Conclusion]) -> str:
    if not conclusions:
        return ""
    items = []
    for one in conclusions:
        commands = "".join(
            f"<p>{escape(command.purpose)}</p>"
            f'<div class="command"><code>{_words(command.line)}</code>'
            '<button type="button" aria-label="copy the command">copy</button></div>'
            for command in one.commands
        )
        items.append(f'<li class="{one.level.name.lower()}">{escape(one.text)}{commands}</li>')
    return f'<section id="conclusions"><h2>In short</h2><ul>{"".join(items)}</ul></section>'


def _words(line: str) -> str:
    """Returns a command whose words are elements, so that it is not broken at the hyphens of an option."""
    return " ".join(f"<span>{escape(word)}</span>" for word in line.split(" "))


def _has_data(tenant: Mapping[str, Any]) -> bool:
    return bool(tenant["produced_bytes"] or tenant["fetched_bytes"])


def _section(section: Section) -> str:
    parts = [f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.lead)}</p>']
    if section.missing is not None:
        words, _, command = section.missing.partition(" Run: ")
        parts.append(f'<p class="missing">{escape(words)}<br><code>{escape(command)}</code></p>')
    parts += [chart_html(chart) for chart in section.charts]
    parts += [_table(table) for table in section.tables]
    return "".join(parts) + "</section>"


def _table(table: SectionTable) -> str:
    caption, rows = table.caption, table.rows
    left = len(rows) - MOST_ROWS
    note = f" (the first {MOST_ROWS} of {len(rows)})" if left > 0 else ""
    more = (
        f'<button type="button" class="more">all {min(len(rows), MOST_ROWS)} rows</button>'
        if len(rows) > FEW_ROWS
        else ""
    )
    if not rows:
        return f"<h3>{escape(caption)}</h3><p>None.</p>"
    numbers = [isinstance(cell, Cell) and not isinstance(cell.value, str) for cell in rows[0]]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}><button type="button">{escape(header)}</button></th>'
        for header, is_number in zip(table.headers, numbers, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(cell, is_number) for cell, is_number in zip(row, numbers, strict=True)) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    return (
        f"<h3>{escape(caption + note)}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{' class=few' if more else ''}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
        '<p class="hint">More columns: scroll to the right.</p>'
    )


def _cell(cell: Cell | str, is_number: bool) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    classes = " ".join(name for name, holds in (("n", is_number), ("alarm", cell.is_alarming)) if holds)
    kind = f' class="{classes}"' if classes else ""
    return f'<td{kind} data-v="{escape(str(cell.value))}">{escape(cell.text)}</td>'
