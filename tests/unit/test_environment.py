"""``tools/environment.py``: uv gets pip's settings, and pip takes over where uv cannot work."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool("environment")


def test_every_pinned_package_takes_the_oldest_python_that_is_claimed() -> None:
    """Distributions keep the first patch releases of a Python version for years: Debian 12 has 3.11.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    pinned = set(re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    needs = {
        distribution.name: str(distribution.metadata.json.get("requires_python", ""))
        for distribution in importlib.metadata.distributions()
        if distribution.name in pinned
    }
    assert len(needs) > 50, "the packages are not installed under the names that are pinned"
    assert {name: need for name, need in needs.items() if oldest not in SpecifierSet(need)} == {}


def test_uv_gets_the_settings_of_pip(tool: ModuleType) -> None:
    listed = (
        ":env:.default-timeout='180'\n"
        "global.cert='/etc/ca.pem'\n"
        "global.find-links='/opt/a\\n/opt/b'\n"
        "global.index-url='index-of-all'\n"
        "install.index-url='index-of-install'\n"
        "global.no-cache-dir='false'\n"
        "freeze.extra-index-url='index-of-freeze'\n"
    )
    assert tool.uv_variables(listed, {}) == {
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_FIND_LINKS": "/opt/a,/opt/b",
        "UV_DEFAULT_INDEX": "index-of-install",
    }
    kept = tool.uv_variables(listed, {"SSL_CERT_FILE": "/mine.pem", "UV_FIND_LINKS": ""})
    assert kept == {"UV_HTTP_TIMEOUT": "180", "UV_DEFAULT_INDEX": "index-of-install"}


class Commands:
    """Stands for the programs that are run: those with one of these words in them fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.ran: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> int:
        self.ran.append([Path(command[0]).name, *command[1:]])
        return int(any(word in self.ran[-1] for word in self.failing))


@pytest.mark.parametrize(
    ("failing", "used"),
    [((), ["python", "uv"]), (("uv",), ["python", "python"]), (("--python",), ["python", "uv", "python"])],
    ids=["uv", "no uv", "uv fails"],
)
def test_pip_takes_over_where_uv_cannot_work(
    tool: ModuleType, tmp_path: Path, failing: tuple[str, ...], used: list[str]
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho \"global.index-url='an-index'\"\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    said: list[str] = []
    commands = Commands(*failing)
    environment = tool.Environment(tmp_path, said.append, commands)
    environment.create()
    environment.install("demo")
    assert [command[0] for command in commands.ran] == used
    assert commands.ran[-1][commands.ran[-1].index("-e") + 1] == ".[demo]"
    assert all("constraints.txt" in command for command in commands.ran)
    assert said[-1].startswith("done in")
    assert ("uv has failed, see above; pip takes over" in said) is (used == ["python", "uv", "python"])


def test_a_failure_of_pip_ends_it(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"python ended with 1"):
        tool.Environment(tmp_path, lambda _: None, Commands("install")).install("core")


def test_kernels_are_built_again_when_a_source_has_changed(tool: ModuleType, tmp_path: Path) -> None:
    for name in ("codec.pyx", "reactor.pyx", "layout.pxd"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (100, 100))
    built = [tmp_path / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in ("codec", "reactor")]
    built[0].touch()
    assert not tool.are_kernels_built(tmp_path)
    built[1].touch()
    assert tool.are_kernels_built(tmp_path)
    for path in built:
        os.utime(path, (99, 99))
    assert not tool.are_kernels_built(tmp_path)
    for path in built:
        path.rename(path.with_name(path.name.replace("cpython-3", "cpython-4")))
    assert not tool.are_kernels_built(tmp_path), "for another interpreter"


# ---------------------------------------------------------------------------------------------------- make


def make(*arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_alone_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(text.split(".PHONY:")[1].replace("\\\n", " ").splitlines()[0].split())
    explained = set(re.findall(r"^  make ([a-z-]+) +\S", make(), re.MULTILINE))
    assert explained == phony - {"jars"}


def test_the_demo_installs_no_test_tools() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extras["demo"] == ["barnabas[report,spark]", "confluent-kafka>=2.11"]
    assert "environment.py .venv-none demo" in make("-n", "demo", "VENV=.venv-none")
    assert "environment.py .venv-none core" in make("-n", "run", "VENV=.venv-none")
