"""Makes the README fit for a page on a package index, where relative links lead nowhere."""

from __future__ import annotations

import re

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def index_page(readme: str, source_url: str, ref: str) -> str:
    """Returns the README with absolute links: pages and directories of this version, and images as files.

    >>> index_page("[log](src/log) ![a](docs/a.png) [b](#b)", "https://host/p", "v1")
    '[log](https://host/p/blob/v1/src/log) ![a](https://host/p/raw/v1/docs/a.png) [b](#b)'
    """

    def absolute(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        return f"{image}[{text}]({source_url}/{'raw' if image else 'blob'}/{ref}/{target})"

    return _LINK.sub(absolute, readme)
