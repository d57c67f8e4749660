"""Our subclasses of other projects' classes must not reuse the private names of their base classes.

Python 3.13 gave `threading.Thread` an attribute `_handle`. One of our threads already had an attribute of that name, so
no broker started on 3.13. A private name of a base class may appear with any release: this checks every class.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import threading
from collections.abc import Iterator

import barnabas

THREAD_NAMES = frozenset(
    {
        # 3.11 and 3.12
        *("_is_stopped", "_reset_internal_locks", "_set_tstate_lock", "_stop", "_tstate_lock", "_wait_for_tstate_lock"),
        # 3.13
        *("_after_fork", "_handle"),
        # 3.14
        *("_context", "_os_thread_handle", "_set_os_name"),
    }
)
"""Private names of `threading.Thread` that not every supported version of Python has."""
INTENDED = {
    "HelpFormatter._action_max_length",  # argparse has no public way to align the help of commands
}


def our_classes() -> set[type]:
    found: set[type] = set()
    for module_info in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
        if module_info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(module_info.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("barnabas"):
                raise
            continue  # an extra that is not installed with this interpreter
        found.update(value for value in vars(module).values() if isinstance(value, type) and is_ours(value))
    return found


def is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] in {"barnabas", __name__.split(".")[0]}


def is_private(name: str) -> bool:
    """One underscore, and no sunder name such as ``_missing_``: those are for subclasses."""
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


@functools.cache
def classes_of_source(file: str) -> dict[str, ast.ClassDef]:
    with open(file, encoding="utf-8") as source:  # noqa: PTH123 - as inspect names it
        tree = ast.parse(source.read())
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@functools.cache
def written_names(cls: type) -> frozenset[str]:
    """Private names that the source of a class gives to the class or to its instances; none for compiled classes."""
    try:
        definition = classes_of_source(inspect.getfile(cls)).get(cls.__name__)
    except (OSError, TypeError, UnicodeDecodeError, SyntaxError):
        return frozenset()
    names = set()
    for node in ast.walk(definition) if definition is not None else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            names |= {node.attr} if node.value.id == "self" else set()
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return frozenset(filter(is_private, names))


@functools.cache
def foreign_names(cls: type) -> frozenset[str]:
    names = frozenset(filter(is_private, vars(cls))) | written_names(cls)
    return names | THREAD_NAMES if cls is threading.Thread else names


def clashes(cls: type) -> Iterator[str]:
    """Names that a class of ours shares with one of its base classes that is not ours."""
    foreign = [base for base in cls.__mro__ if not is_ours(base) and base is not object]
    for base in foreign:
        for ours in filter(is_ours, cls.__mro__):
            yield from (f"{ours.__name__}.{name}" for name in written_names(ours) & foreign_names(base))


def test_no_class_reuses_a_private_name_of_a_foreign_base_class() -> None:
    classes = our_classes()
    assert sum(issubclass(cls, threading.Thread) for cls in classes) > 5  # the search has found something
    assert {clash for cls in classes for clash in clashes(cls)} <= INTENDED


class Clashing(threading.Thread):
    """What Python 3.13 did not start."""

    def __init__(self) -> None:
        super().__init__()
        self._target = None
        self._handle = None
        self._our_own = None


def test_a_clash_is_found() -> None:
    assert set(clashes(Clashing)) == {"Clashing._target", "Clashing._handle"}
