"""The report as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.log_safety import escape
from barnabas.report.conclusions import Conclusion
from barnabas.report.units import NONE, duration, rate, size
from barnabas.spark.pipelines.quota_advice import NOISY

if TYPE_CHECKING:
    from rich.table import Table

HEADERS: Final = ("tenant", "produced", "fetched", "p99", "throttled", "advice", "dry run")
CAPTION: Final = "p99: of Produce; dry run: throttle time under the limits that were tried"
MOST_ROWS: Final = 15


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Returns a row per tenant: its traffic, its latency, its throttling and the advised limit."""
    from rich import box  # only needed on a terminal
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=CAPTION)
    for header in HEADERS:
        made.add_column(header, justify="left" if header == "tenant" else "right", overflow="fold")
    for row in summary_rows(summary)[:MOST_ROWS]:
        # Clients choose their names: brackets are not markup, and escape sequences are not for the terminal.
        made.add_row(*(Text(cell if cell.isprintable() else escape(cell)) for cell in row))
    return made


def conclusion_lines(conclusions: Iterable[Conclusion]) -> list[str]:
    """Returns the conclusions as lines of text, with an empty line after each."""
    lines = []
    for one in conclusions:
        lines.append(f"{one.level.name.lower()}: {one.text}")
        for command in one.commands:
            lines += [f"  {command.purpose}", f"    {command.line}"]
        lines.append("")
    return lines


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the rows of the table as strings."""
    produce = {row["tenant"]: row["p99_ms"] for row in summary["latency"] or () if row["api"] == "Produce"}
    advised = {row["who"]: row for row in summary["advice"] or ()}
    tried = {row["who"]: row for row in summary["dry_run"] or ()}
    rows: list[tuple[str, ...]] = []
    for one in summary["tenants"]:
        if not one["produced_bytes"] and not one["fetched_bytes"]:
            continue
        name = one["tenant"]
        advice = advised.get(name)
        dry = tried.get(name)
        rows.append(
            (
                f"{name} (noisy)" if advice is not None and advice["verdict"] == NOISY else name,
                size(one["produced_bytes"]),
                size(one["fetched_bytes"]),
                duration(produce.get(name)),
                duration(one["throttle_ms"]),
                NONE if advice is None else rate(advice["quota"], advice["limit"]),
                NONE if dry is None else duration(dry["throttle_ms"]),
            )
        )
    return rows
