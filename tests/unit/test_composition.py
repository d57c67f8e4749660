"""The large classes own collaborators: none of them is cut into a chain of base classes to keep its files short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import barnabas

SOURCES: Final = Path(barnabas.__file__).parent
COMPOSED: Final = (
    "KafkaChannel",
    "Partition",
    "QuorumController",
    "Selector",
    "SubscriptionState",
    "TransactionManager",
    "UnifiedLog",
)
INTERFACES: Final = {"ABC", "Generic", "Protocol", "object"}


def _classes() -> Iterator[ast.ClassDef]:
    for path in sorted(SOURCES.rglob("*.py")):
        source = path.read_text()
        if "class " in source:
            yield from (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


def _bases(node: ast.ClassDef) -> set[str]:
    """Returns the names of the bases, without modules and type arguments."""
    names = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {ast.unparse(name).rpartition(".")[2] for name in names}


@pytest.fixture(scope="module")
def classes() -> list[ast.ClassDef]:
    return list(_classes())


@pytest.mark.parametrize("name", COMPOSED)
def test_a_composed_class_has_no_base_but_interfaces(classes: list[ast.ClassDef], name: str) -> None:
    interfaces = INTERFACES | {node.name for node in classes if _bases(node) & {"ABC", "Protocol"}}
    found = [node for node in classes if node.name == name]
    assert found, f"there is no class {name} any more"
    for node in found:
        assert _bases(node) <= interfaces


@pytest.mark.parametrize("name", COMPOSED)
def test_nothing_derives_from_a_composed_class(classes: list[ast.ClassDef], name: str) -> None:
    assert [node.name for node in classes if name in _bases(node)] == []
