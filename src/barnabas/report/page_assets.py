"""The style sheet and the script of the page. Both are embedded, so that the page is self-contained."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from barnabas.report.palette import DARK, LIGHT, Palette

UPLOT_VERSION: Final = "1.6.32"
"""uPlot draws charts over time. Its files are those of the npm package ``uplot``, unchanged; its license is MIT."""
UPLOT_SHA256: Final = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
PAGES: Final = {LIGHT: {"page": "#f6f8fb", "card": "#ffffff"}, DARK: {"page": "#12161c", "card": "#1a2028"}}
_BANNER: Final = re.compile(r"^/\*!.*?\*/\s*", re.DOTALL)


def asset(name: str) -> str:
    """Returns the text of a file that belongs to the page."""
    return (files("barnabas.report") / "assets" / name).read_text(encoding="utf-8")


def style_sheet() -> str:
    """Returns the style of the page. A page that is printed is light (``data-theme``)."""
    dark = f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_colors(DARK)}}}}}"
    return f":root{{{_colors(LIGHT)}}}\n{dark}\n{asset('uPlot.min.css')}\n{asset('report.css')}"


def script() -> str:
    """Returns uPlot with its license, and the script of the page.

    The license must be part of every copy, so also of every page. The banner of uPlot's file is left out because it
    contains a URL, and the page must not appear to load anything.
    """
    uplot = _BANNER.sub("", asset("uPlot.iife.min.js"), count=1)
    terms = asset("uPlot.LICENSE.txt").strip()
    return f"/* uPlot {UPLOT_VERSION}\n\n{terms} */\n{uplot}\n{asset('report.js')}"


def _colors(palette: Palette) -> str:
    return "".join(f"--{name}:{color};" for name, color in (palette.named() | PAGES[palette]).items())
