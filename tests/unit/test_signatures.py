"""A function with very many parameters does too much, or misses a noun: each has a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import barnabas

MAX_PARAMETERS = 10

_OPTIONS = "one parameter for each option of the command"
REASONS = {
    "consume_command": _OPTIONS,
    "produce_command": _OPTIONS,
    "reset_command": _OPTIONS,
    "run_command": _OPTIONS,
    "start_command": _OPTIONS,
    "_advise": _OPTIONS,
    "_dry_run": _OPTIONS,
    "RecordBatchBuilder.__init__": "the fields of a batch header, as keyword arguments",
    "TopicWriter.__init__": "collaborators of the broker, and the limits of the queue",
    "Processor.__init__": "collaborators that the socket server shares among its processors",
    "LogLoader.__init__": "the parts of a log, as UnifiedLog takes them",
}
"""The functions with more parameters than that, and why."""


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The qualified names of functions, and how many parameters they have besides self."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = child.args
            names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            yield prefix + child.name, len([name for name in names if name not in {"self", "cls"}])
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def test_a_signature_with_more_than_ten_parameters_has_a_reason() -> None:
    unexplained = [
        f"{path.name}: {name} has {count} parameters"
        for path in sorted(Path(barnabas.__file__).parent.rglob("*.py"))
        for name, count in functions(ast.parse(path.read_text()))
        if count > MAX_PARAMETERS and name not in REASONS
    ]
    assert unexplained == []
