"""The example project, as somebody else would have it: its tests bring their own broker, by the fixture alone.

Once with what is in this environment; and, as that takes minutes, at night once more in an environment that has nothing
but a wheel of this package and what the project asks for: with the compiled parts, and without.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = ROOT / "examples" / "pytest_project"
TESTS: Final = 5
NOT_SOURCE: Final = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")


def run(*command: str, cwd: Path, timeout_s: float = 120, changes: dict[str, str] | None = None) -> str:
    """What a command prints; it fails if that does."""
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(changes or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy, outside of this repository: nothing of its settings must be needed."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=NOT_SOURCE))


def run_project(project: Path, python: str, changes: dict[str, str] | None = None) -> None:
    shown = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project, changes=changes)
    assert f"{TESTS} passed" in shown, shown


def test_it_names_neither_a_broker_nor_a_client_of_ours(project: Path) -> None:
    for path in project.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) barnabas", path.read_text(), re.MULTILINE), path
    assert set((project / "requirements.txt").read_text().split()) == {"barnabas", "confluent-kafka", "pytest"}


def test_it_passes_with_this_tree(project: Path) -> None:
    run_project(project, sys.executable, {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})


@pytest.mark.nightly
@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "pure"])
def test_it_passes_with_nothing_but_a_wheel(project: Path, tmp_path: Path, *, pure: bool) -> None:
    wheel = build_wheel(tmp_path, pure=pure)
    python = new_environment(tmp_path, wheel)
    accelerated = run(
        python, "-c", "from barnabas import _kernels; print(_kernels.is_compiled('consumer_record'))", cwd=project
    )
    assert accelerated.strip() == str(not pure)
    run_project(project, python)
    command = Path(python).with_name("barnabas")
    assert run(str(command), "--version", cwd=project).startswith("barnabas ")


def build_wheel(tmp_path: Path, *, pure: bool) -> Path:
    """Made of a copy, because a build leaves files in the tree."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=NOT_SOURCE)
    run(
        *(sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)),
        cwd=source,
        timeout_s=900,
        # Not BARNABAS_PURE: this is about a machine that has Cython and turns out to have no compiler.
        changes={"CC": "false", "CXX": "false"} if pure else None,
    )
    (wheel,) = tmp_path.glob("barnabas-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        entry_points = next(packed.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {"barnabas/py.typed", "pyspark_barnabas/__init__.py", "pyspark_barnabas/py.typed"} <= names
    assert "[pytest11]\nbarnabas = barnabas.pytest_plugin" in entry_points
    assert "[console_scripts]\nbarnabas = barnabas.cli.main:main" in entry_points
    sources = list((source / "src").rglob("*.pyx"))
    assert {str(path.relative_to(source / "src")) for path in sources} <= names
    assert sum(name.endswith(".so") for name in names) == (0 if pure else len(sources))
    return wheel


def new_environment(tmp_path: Path, wheel: Path) -> str:
    """A virtual environment with the wheel and what the project needs; the path of its Python."""
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"), cwd=tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    result = subprocess.run(
        [*install, str(wheel), "confluent-kafka", "pytest"], capture_output=True, text=True, timeout=600, check=False
    )
    if result.returncode and re.search("No matching distribution|connection|Temporary failure", result.stderr):
        reason = f"there is no index of packages to install from: {result.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    assert result.returncode == 0, result.stderr
    return python


def test_our_modules_are_imported_as_they_are(tmp_path: Path) -> None:
    """pytest would parse each of them, on the threads of a broker, too; a test's own modules it does."""
    (tmp_path / "test_loaders.py").write_text(
        "from barnabas.clients.consumer import kafka_consumer\n"
        "from barnabas.common import clock\n\n\n"
        "def test_loaders(barnabas_broker):\n"
        "    for module in (clock, kafka_consumer):\n"
        '        assert type(module.__loader__).__name__ == "SourceFileLoader", module\n'
        '    assert type(__loader__).__name__ == "AssertionRewritingHook"\n'
    )
    path = os.pathsep.join(path for path in sys.path if path)
    shown = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"), cwd=tmp_path, changes={"PYTHONPATH": path}
    )
    assert "1 passed" in shown
