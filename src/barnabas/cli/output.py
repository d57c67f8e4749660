"""Formats tables for people. Numbers are right-aligned, and wide cells wrap instead of being cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from barnabas.cli.quota_output import one_line, print_json, print_rich

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["bytes_text", "number", "print_json", "print_rich", "table", "time_text", "title"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> RenderableType:
    """Returns a table; ``right`` are the headers of columns with numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    numbers = set(right)
    made = Table(box=box.SIMPLE_HEAD)
    for header in headers:
        made.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    for row in rows:
        # As Text objects, because brackets in a name are not markup.
        made.add_row(*(Text(one_line(cell)) for cell in row))
    return made


def title(text: str) -> RenderableType:
    from rich.text import Text

    return Text(one_line(text), "bold")


def number(value: int | None) -> str:
    """
    >>> number(1234567), number(None)
    ('1,234,567', '-')
    """
    return "-" if value is None else f"{value:,}"


def bytes_text(value: int | None) -> str:
    """
    >>> bytes_text(999), bytes_text(2048), bytes_text(5_368_709_120)
    ('999 B', '2.0 KiB', '5.0 GiB')
    """
    if value is None:
        return "-"
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{value} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def time_text(milliseconds: int | None) -> str:
    """
    >>> time_text(0), time_text(None)
    ('1970-01-01T00:00:00.000Z', '-')
    """
    if milliseconds is None or milliseconds < 0:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
