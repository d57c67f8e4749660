"""The colors of the report, for a light and a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_SERIES: Final = 7
"""The number of distinguishable colors of series; further series share one more color."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors of a page."""

    ink: str
    muted: str
    line: str
    alarm: str
    good: str
    series: tuple[str, ...]
    """One color per tenant, in the order of the tenants; the last is for all others."""
    parts: tuple[str, ...]
    """The parts of a request's time: queue, local, remote, response queue, send, throttle."""

    def named(self) -> dict[str, str]:
        """Returns the colors by name. A chart refers to a color by its name, so that it can be light or dark.

        >>> LIGHT.named()["s0"]
        '#2f6fde'
        """
        return {
            "ink": self.ink,
            "muted": self.muted,
            "line": self.line,
            "alarm": self.alarm,
            "good": self.good,
            **{f"s{number}": color for number, color in enumerate(self.series)},
            **{f"p{number}": color for number, color in enumerate(self.parts)},
        }


LIGHT: Final = Palette(
    ink="#1c2430",
    muted="#5b6676",
    line="#d9dee6",
    alarm="#c62f3e",
    good="#137a55",
    series=("#2f6fde", "#e07b16", "#1a9a72", "#b24fb0", "#b39200", "#12a0c4", "#8a5a2b", "#8b95a3"),
    parts=("#e0a100", "#2f6fde", "#9db0c9", "#b24fb0", "#1a9a72", "#c62f3e"),
)
DARK: Final = Palette(
    ink="#e6eaf0",
    muted="#9aa6b6",
    line="#323b48",
    alarm="#ff6b75",
    good="#43cf9f",
    series=("#6ea2ff", "#ffa24d", "#43cf9f", "#dc86da", "#ecd04a", "#4fcdec", "#c99a68", "#a4aebb"),
    parts=("#f2c04a", "#6ea2ff", "#66768e", "#dc86da", "#43cf9f", "#ff6b75"),
)


def series_color(name: str, order: Sequence[str]) -> str:
    """Returns the name of a tenant's color, which is the same in all charts of a page.

    >>> series_color("b", ["a", "b"]), series_color("others", ["a", "b"])
    ('s1', 's7')
    """
    own = order[:MOST_SERIES]
    return f"s{own.index(name)}" if name in own else f"s{MOST_SERIES}"
