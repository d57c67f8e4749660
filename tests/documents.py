"""The code in the documents, and how to run it.

=============== ====================================================================================================
```` ```python```` one program for the whole page, block after block; the address in it is that of the test's broker
```` ```text````   what the block before prints
```` ```console```` commands, with what they print
```` ```sh````     what to install
=============== ====================================================================================================

A block of Python that has a function ``test_...`` is not part of the program but a file for pytest.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
ADDRESS: Final = "localhost:9092"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int
    heading: str
    """The chapter that it is in."""


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page in ``docs``."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^## (.*)$", before, re.MULTILINE)
        found.append(Block(match[1], match[2], before.count("\n") + 2, headings[-1] if headings else ""))
    return found


def is_test(block: Block) -> bool:
    return block.language == "python" and re.search(r"^def test_", block.code, re.MULTILINE) is not None


def run_program(page: str, blocks: list[Block], bootstrap_servers: str, names: dict[str, Any] | None = None) -> int:
    """Runs the Python in it, and compares what it prints where the page says so; returns how many blocks that were.

    Errors show the line of the page.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"} if names is None else names
    ran = 0
    printed = ""
    for block in blocks:
        if block.language == "text":
            assert printed.strip() == block.code.strip(), f"{page}, line {block.line}: it prints something else"
        if block.language != "python" or is_test(block):
            continue
        code = "\n" * (block.line - 1) + block.code.replace(ADDRESS, bootstrap_servers)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, page, "exec"), namespace)
        printed = output.getvalue()
        ran += 1
    return ran
