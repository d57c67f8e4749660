"""The style of charts: the same figure as an image, and as a part of a page that may be light or dark.

Matplotlib writes fixed colors into its SVG. So for a page a figure is drawn with unusual placeholder colors, which are
then replaced by names of the page's style sheet (``var(--ink)``). Elements that Matplotlib adds for standalone files (a
document type, namespaces, metadata) are removed, because they contain addresses of other servers, and the page must not
even seem to load anything.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors of a page."""

    ink: str
    muted: str
    line: str
    alarm: str
    series: tuple[str, ...]
    """One color per tenant, in the order of the tenants; the last is for all others."""
    parts: tuple[str, ...]
    """The parts of a request's time: queue, local, remote, response queue, send, throttle."""

    def named(self) -> dict[str, str]:
        """Returns the colors by their names in the style sheet."""
        return {
            "--ink": self.ink,
            "--muted": self.muted,
            "--line": self.line,
            "--alarm": self.alarm,
            **{f"--s{number}": color for number, color in enumerate(self.series)},
            **{f"--p{number}": color for number, color in enumerate(self.parts)},
        }

    def of(self, name: str, order: Sequence[str]) -> str:
        """Returns the color of a tenant, which is the same in all charts of a page."""
        own = order[: len(self.series) - 1]
        return self.series[own.index(name)] if name in own else self.series[-1]


STAND_INS: Final = Palette(
    ink="#010203",
    muted="#040506",
    line="#070809",
    alarm="#0a0b0c",
    series=tuple(f"#0{number}0{number}f{number}" for number in range(8)),
    parts=tuple(f"#0{number}0{number}e{number}" for number in range(6)),
)
LIGHT: Final = Palette(
    ink="#1c2430",
    muted="#5b6676",
    line="#d9dee6",
    alarm="#c62f3e",
    series=("#2f6fde", "#e07b16", "#1a9a72", "#b24fb0", "#b39200", "#12a0c4", "#8a5a2b", "#8b95a3"),
    parts=("#e0a100", "#2f6fde", "#9db0c9", "#b24fb0", "#1a9a72", "#c62f3e"),
)
DARK: Final = Palette(
    ink="#e6eaf0",
    muted="#9aa6b6",
    line="#323b48",
    alarm="#ff6b75",
    series=("#6ea2ff", "#ffa24d", "#43cf9f", "#dc86da", "#ecd04a", "#4fcdec", "#c99a68", "#a4aebb"),
    parts=("#f2c04a", "#6ea2ff", "#66768e", "#dc86da", "#43cf9f", "#ff6b75"),
)
PNG_DPI: Final = 150
_PROLOGUE: Final = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_COMMENTS: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_NAMESPACES: Final = re.compile(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"')
_SIZE: Final = re.compile(r'(?<=<svg)(?=[^>]*viewBox)([^>]*?) width="[^"]*" height="[^"]*"')
_FONT: Final = re.compile(r"(font: [^;\"']*?px) [^;\"]*")
_IDS: Final = re.compile(r'(\bid="|url\(#|href="#)')


def style(palette: Palette, background: str = "none") -> dict[str, Any]:
    """Returns the settings of Matplotlib."""
    return {
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 9.0,
        "text.color": palette.ink,
        # Dollar signs in the name of a client are not a formula.
        "text.parse_math": False,
        "axes.edgecolor": palette.line,
        "axes.labelcolor": palette.muted,
        "axes.titlecolor": palette.ink,
        "axes.titlesize": 10.0,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": palette.line,
        "grid.linewidth": 0.8,
        "xtick.color": palette.line,
        "ytick.color": palette.line,
        "xtick.labelcolor": palette.muted,
        "ytick.labelcolor": palette.muted,
        "legend.frameon": False,
        "legend.labelcolor": palette.ink,
        "figure.facecolor": background,
        "axes.facecolor": "none",
        "savefig.facecolor": background,
    }


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its name, its alternative text, and a function that draws it."""

    name: str
    """The name of the image file."""
    alt: str
    size: tuple[float, float]
    """Width and height in inches."""
    draw: Callable[[Figure, Palette], None]

    def svg(self) -> str:
        """Renders the chart as an element of a page."""
        written = io.StringIO()
        self._save(written, "svg", STAND_INS, "none")
        text = _PROLOGUE.sub("", written.getvalue(), count=1)
        for pattern in (_METADATA, _COMMENTS, _NAMESPACES):
            text = pattern.sub("", text)
        text = _SIZE.sub(r"\1", text, count=1).replace("xlink:href", "href")
        text = _FONT.sub(r"\1 var(--font)", text)
        # The IDs of all charts on a page must be distinct.
        text = _IDS.sub(rf"\g<1>{self.name}-", text)
        for name, color in STAND_INS.named().items():
            text = text.replace(color, f"var({name})")
        return text.replace("<svg", f'<svg role="img" aria-label="{escape(self.alt)}"', 1).strip()

    def write_png(self, file: Path) -> None:
        """Renders the chart as an image with the colors of a light page."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._save(file, "png", LIGHT, "white")

    def _save(self, target: Any, kind: str, palette: Palette, background: str) -> None:
        import matplotlib as mpl  # an extra
        from matplotlib.figure import Figure

        settings: Any = style(palette, background) | {"svg.hashsalt": self.name}
        with mpl.rc_context(settings), warnings.catch_warnings():
            # Characters that Matplotlib's font lacks: browsers show them, images show a box.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font")
            figure = Figure(figsize=self.size, layout="constrained")
            self.draw(figure, palette)
            figure.savefig(target, format=kind, dpi=PNG_DPI, metadata={"Date": None} if kind == "svg" else None)
