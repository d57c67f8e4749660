"""The same lines in two places are one function that nobody has written yet."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import barnabas

RUN = 6
MOST_PAIRS = 70
"""Most of the rest are signatures, of a protocol and its implementations, of a client and its asynchronous form; or
structures of messages, which Kafka's definitions declare for each API."""


def code_of(path: Path) -> list[tuple[int, str]]:
    """The lines of a module with their numbers, without imports, strings that document, comments and punctuation."""
    text = path.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is not ...
        if documents or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in left_out]
    return [(number, line) for number, line in lines if line[:1] != "#" and any(map(str.isalnum, line))]


def test_few_runs_of_lines_stand_in_two_places() -> None:
    root = Path(barnabas.__file__).parent
    code = {path: code_of(path) for path in sorted(root.rglob("*.py"))}
    places = defaultdict(list)
    for path, lines in code.items():
        for start in range(len(lines) - RUN + 1):
            places[tuple(line for _, line in lines[start : start + RUN])].append((path, start))
    shared = {
        (one, other, second - first, first)
        for found in places.values()
        for index, (one, first) in enumerate(found)
        for other, second in found[index + 1 :]
    }
    # A longer run begins where no pair of windows one line earlier is the same.
    pairs = [
        f"{one.name}:{code[one][first][0]} and {other.name}:{code[other][first + distance][0]}"
        for one, other, distance, first in shared
        if (one, other, distance, first - 1) not in shared
    ]
    assert len(pairs) <= MOST_PAIRS, "\n".join(sorted(pairs))
