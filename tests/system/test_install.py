"""A release: what ``make dist`` builds installs without a compiler, and runs.

The environments are bare: no pip, none of our sources on the path, and no C compiler. Installing downloads the
dependencies, so a machine without an index skips these tests; with CI=true they fail.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Final

import pytest

from barnabas import __version__

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 900.0


def bare_environment(**changes: str) -> dict[str, str]:
    """The environment of a user who has nothing of ours, and no compiler."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BARNABAS"))}
    return {**kept, "CC": "/bin/false", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **changes}


def run(*command: str | Path, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=bare_environment(**changes),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def build(out: Path, *options: str) -> None:
    # With this environment's compiler: what is built here is installed without one.
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "dist.py"), "--out", str(out), *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode != 0 and "No matching distribution found" in done.stderr:
        unavailable("no index to build with")
    assert done.returncode == 0, done.stdout + done.stderr


def unavailable(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of a release that takes no compiler."""
    out = tmp_path_factory.mktemp("dist")
    build(out, "--pure-only")
    return out


def install(directory: Path, what: Sequence[str | Path]) -> Path:
    """Installs into a new environment, and returns its interpreter."""
    made = run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory.parent)
    assert made.returncode == 0, made.stderr
    python = directory / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-c", ROOT / "constraints.txt")
    done = run(*pip, *what, cwd=directory)
    if "No matching distribution found" in done.stderr:
        unavailable("no index to install from")
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def assert_it_works(python: Path, code: str, directory: Path) -> None:
    """Asks for the version, then starts a broker, produces and consumes (``tests/versions.py --smoke``)."""
    version = run(python.with_name("barnabas"), "--version", cwd=directory)
    assert version.stdout.startswith(f"barnabas {__version__} ({code}"), version.stdout + version.stderr
    smoke = run(python, ROOT / "tests" / "versions.py", "--smoke", cwd=directory, PYTHONWARNINGS="error")
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr


def test_a_wheel_installs_and_runs_without_a_compiler(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name == f"barnabas-{__version__}-py3-none-any.whl"
    assert_it_works(install(tmp_path / "venv", [wheel]), "pure Python", tmp_path)


def test_the_files_of_a_release(dist: Path) -> None:
    lines = (line.split() for line in (dist / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    files = [file for file in dist.iterdir() if file.name != "SHA256SUMS"]
    assert sums == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.endswith((".so", ".c"))]
    assert {name.split("/")[0] for name in names} == {
        "barnabas",
        "pyspark_barnabas",
        f"barnabas-{__version__}.dist-info",
    }
    assert [name for name in names if name.endswith("/NOTICE")], "the licence asks for it"


def test_the_page_on_an_index(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    metadata = metadata_of(wheel)
    urls = dict(one.split(", ") for one in metadata.get_all("Project-URL", []))
    assert urls == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert metadata["Version"] == __version__
    page = metadata.get_payload()
    assert isinstance(page, str)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.nightly
def test_a_wheel_with_kernels_installs_and_runs_without_a_compiler(tmp_path: Path) -> None:
    if sysconfig.get_config_var("CC") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        unavailable("no C compiler, or no headers of Python")
    out = tmp_path / "dist"
    build(out, "--only", "{}.{}".format(*sys.version_info[:2]))
    (wheel,) = out.glob("*-cp3*.whl")
    assert re.search(r"-manylinux[\w.]+\.whl$", wheel.name)
    assert wheel.stat().st_size < 6_000_000, "with debug information it is four times as large"
    assert_it_works(install(tmp_path / "wheel", [wheel]), "compiled", tmp_path)
    # From the sdist there is nothing to compile with, which is no error.
    (sdist,) = out.glob("*.tar.gz")
    assert_it_works(install(tmp_path / "sdist", [sdist]), "pure Python", tmp_path)
