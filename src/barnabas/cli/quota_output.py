"""Parses and formats amounts, and prints tables."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.cli.console import UsageError, output_failed, say, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

UNITS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
"""The quota keys with their units."""
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_amount(text: str) -> float:
    """Parses a number with an optional unit: 1MB is 1,000,000 bytes and 1MiB is 1,048,576.

    >>> parse_amount("1.5MB"), parse_amount("64KiB"), parse_amount("12.5")
    (1500000.0, 65536.0, 12.5)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise UsageError(f"must be a number, with an optional unit as in 10MB or 64KiB: {text!r}")
    base = 1024 if match[3] else 1000
    return float(match[1]) * math.pow(base, _POWERS[match[2].lower()])


def amount_text(key: str, value: float) -> str:
    """Formats a limit with its unit."""
    return f"{_number(value)} {UNITS.get(key, '')}".rstrip()


def count_text(key: str, value: float) -> str:
    """Formats a number of the things that the quota counts."""
    unit = UNITS[key].removesuffix("/s")
    return f"{_number(value)} {unit.removesuffix('s') if value == 1 else unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 1_000 else f"{value:,.2f}"


def one_line(text: str) -> str:
    """Escapes a table cell, so that a newline in a name does not look like a second row."""
    if text.isprintable():
        return text
    from barnabas.common.log_safety import escape

    return escape(text)


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD)
    for header in headers:
        made.add_column(header, justify="right" if header == "limit" else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(one_line(cell)) for cell in row))
    return made


UNLIMITED: Final = 10_000
"""The width of a table that another program reads: no line is broken, so that ``| grep NAME`` finds every name."""


def print_rich(*renderables: RenderableType) -> None:
    """Prints tables and texts, as wide as the terminal. For other programs nothing is wrapped or cut off."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    is_terminal = sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))
    console = Console(highlight=False, width=None if is_terminal else UNLIMITED)
    try:
        with console.capture() as written:
            for renderable in renderables:
                # Rich passes escape sequences in a text to the terminal. Its own are added after this step.
                parts = [Segment(shown(part.text), part.style, part.control) for part in console.render(renderable)]
                console.print(Segments(parts), end="")
    except OSError as error:  # Rich flushes standard output, even if it captures
        output_failed(sys.stdout, error)
        return
    text = written.get()
    if not is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    say(text, sys.stdout)


def print_json(document: object) -> None:
    say(json.dumps(document, indent=2) + "\n", sys.stdout)
