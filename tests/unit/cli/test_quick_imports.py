"""The shorter way of importing finds what the standard one finds, and leaves it alone where it is not sure."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import pytest

import barnabas
from barnabas.cli import quick_imports
from barnabas.cli.quick_imports import QuickFinder, QuickLoader

SRC = Path(barnabas.__file__).parents[1]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package ``sample`` that counts as ours."""
    monkeypatch.setattr(quick_imports, "PACKAGE", "sample.")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    directory = tmp_path / "sample"
    (directory / "inner").mkdir(parents=True)
    (directory / "inner" / "__init__.py").write_text("VALUE = 'inner'\n")
    (directory / "one.py").write_text("VALUE = 1\n")
    (directory / "data").mkdir()
    return directory


def load(place: Path, name: str) -> ModuleType:
    spec = QuickFinder().find_spec(f"sample.{name}", [str(place)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["one", "inner"])
def test_a_module_looks_as_the_standard_finder_makes_it(place: Path, name: str) -> None:
    ours = QuickFinder().find_spec(f"sample.{name}", [str(place)])
    standard = PathFinder.find_spec(f"sample.{name}", [str(place)])
    assert ours is not None
    assert standard is not None
    for attribute in ("name", "origin", "cached", "has_location", "parent", "submodule_search_locations"):
        assert getattr(ours, attribute) == getattr(standard, attribute), attribute
    assert load(place, name).VALUE in {1, "inner"}


def test_the_compiled_form_is_taken_while_the_source_is_the_same(place: Path) -> None:
    source = place / "one.py"
    py_compile.compile(str(source), doraise=True)
    loader = QuickLoader("sample.one", str(source), importlib.util.cache_from_source(str(source)))
    assert loader._compiled() is not None
    before = source.stat()
    source.write_text("VALUE = 22\n")  # longer
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert loader._compiled() is None
    assert load(place, "one").VALUE == 22
    source.write_text("VALUE = 33\n")  # as long, but later
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 5_000_000_000))
    assert loader._compiled() is None
    assert load(place, "one").VALUE == 33


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, None])
def test_a_damaged_compiled_form_is_made_anew(place: Path, damage: bytes | None) -> None:
    source = place / "one.py"
    cached = Path(py_compile.compile(str(source), doraise=True) or "")
    good = cached.read_bytes()
    cached.write_bytes(good[:20] if damage is None else damage)
    assert QuickLoader("sample.one", str(source), str(cached))._compiled() is None


def test_a_compiled_form_that_was_moved_is_not_taken(place: Path, tmp_path: Path) -> None:
    """Its tracebacks would show files that are not there."""
    source = place / "one.py"
    cached = Path(py_compile.compile(str(source), dfile=str(tmp_path / "elsewhere.py"), doraise=True) or "")
    assert QuickLoader("sample.one", str(source), str(cached))._compiled() is None
    assert load(place, "one").VALUE == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sample", None),
        ("sample.one", ["a", "b"]),
        ("other.one", ["here"]),
        ("sample.absent", ["here"]),
        ("sample.data", ["here"]),
        ("sample.one", ["not a directory"]),
    ],
)
def test_what_is_not_its_business_is_left_to_others(place: Path, name: str, path: list[str] | None) -> None:
    given = None if path is None else [str(place) if part == "here" else part for part in path]
    assert QuickFinder().find_spec(name, given) is None


def test_extension_modules_are_left_to_others(place: Path) -> None:
    (place / "fast.cpython-999-none.so").write_bytes(b"")
    assert QuickFinder().find_spec("sample.fast", [str(place)]) is None


def test_the_command_runs_with_it() -> None:
    code = (
        "import sys; sys.argv = ['barnabas', '--version']\n"
        "from barnabas.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "from barnabas.common import errors\n"
        "print(type(errors.__loader__).__name__, errors.__file__, errors.Errors.NONE.value)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"QuickLoader {SRC / 'barnabas' / 'common' / 'errors.py'} 0"
