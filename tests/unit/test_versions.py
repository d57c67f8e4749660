"""The versions of Python that the package claims are those that are tested."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import versions

ROOT = Path(__file__).resolve().parents[2]
FIRST = "3.11"
"""All of CI runs on it; the others are run by `make versions`."""


def test_the_classifiers_name_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    claimed = [f"3.{name.removeprefix(prefix)}" for name in project["classifiers"] if name.startswith(prefix)]
    assert claimed == [FIRST, *versions.VERSIONS]
    assert project["requires-python"] == f">={FIRST}"
    assert "make versions" in (ROOT / ".ci" / "run").read_text()


def test_an_interpreter_of_another_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with pyenv's shims, which are on the path for versions that are not selected."""
    monkeypatch.setattr(versions, "JARS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert versions.find_interpreter("3.12", tmp_path) is None
    shim.write_text("#!/bin/sh\necho 3.12\n")
    assert versions.find_interpreter("3.12", tmp_path) == shim
