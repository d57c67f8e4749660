"""The files in ``deploy/``: each passes its own linter, and the package has the same ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.cli.container import container_settings
from barnabas.cli.generate import ARTEFACTS
from barnabas.common.properties import load_properties
from unit.cli.command_line import run

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
WAIT_S: Final = 180
MAX_EXPOSURE: Final = 2.0


def program(name: str) -> str:
    """The path of a linter; without it the test is skipped, or fails with CI=true."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def check(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_image() -> None:
    assert check(program("hadolint"), DEPLOY / "docker" / "Dockerfile") == ""
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER 1000:1000$", last, re.MULTILINE), "not root"
    assert "HEALTHCHECK" in last
    assert "gcc" not in last, "the compiler stays in the first stage"


def copied_into_the_image() -> set[str]:
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    return {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for name in line.split()}


def test_what_the_image_copies_is_let_in() -> None:
    """.dockerignore leaves out everything that it does not name."""
    lines = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert copied_into_the_image() == {line[1:] for line in lines if line.startswith("!")}


def test_what_the_image_copies_is_enough_to_build_the_package(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    for name in copied_into_the_image():
        path = DEPLOY.parent / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
            shutil.copytree(path, source / name, ignore=ignored)
        else:
            shutil.copy2(path, source / name)
    done = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(out)!r})"],
        cwd=source,
        env={**os.environ, "BARNABAS_PURE": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "barnabas/cli/container.py" in names
    assert "barnabas/deploy/compose/compose.yml" in names, "what barnabas generate writes"


def compose() -> dict[str, Any]:
    document = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_the_compose_file() -> None:
    file = DEPLOY / "compose" / "compose.yml"
    check(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file)
    assert set(compose()["services"]) == {"barnabas"}


def test_the_variables_of_the_compose_file_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path))
    config = container_settings(compose()["services"]["barnabas"]["environment"], tmp_path, tmp_path)
    assert [(one.host, one.port) for one in config.advertised_listeners] == [("barnabas", 19092), ("localhost", 9092)]
    assert config.log_dirs == (tmp_path,)


def test_the_unit(tmp_path: Path) -> None:
    """With another program in it, because the one that it names is not installed here."""
    analyze = program("systemd-analyze")
    unit = tmp_path / "barnabas.service"
    text = (DEPLOY / "systemd" / "barnabas.service").read_text(encoding="utf-8")
    assert text.count("/opt/barnabas/bin/barnabas") == 1
    unit.write_text(text.replace("/opt/barnabas/bin/barnabas", shutil.which("true") or "/bin/true"))
    assert check(analyze, "verify", unit) == ""
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", check(analyze, "security", "--offline=true", unit))
    assert found is not None
    assert float(found[1]) <= MAX_EXPOSURE


def test_the_command_of_the_unit_and_its_settings() -> None:
    text = (DEPLOY / "systemd" / "barnabas.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=/opt/barnabas/bin/barnabas (.*)$", text, re.MULTILINE)
    assert line == "start --config /etc/barnabas/server.properties --format"
    config = KafkaConfig.from_properties(dict(load_properties(DEPLOY / "systemd" / "server.properties")))
    assert [str(path) for path in config.log_dirs] == ["/var/lib/barnabas"]


def test_the_package_has_the_same_files() -> None:
    data = files("barnabas").joinpath("deploy")
    for artefact in ARTEFACTS.values():
        for name in artefact.files:
            ours = data.joinpath(*name.split("/")).read_text(encoding="utf-8")
            assert ours == (DEPLOY / name).read_text(encoding="utf-8"), f"copy deploy/{name} to src/barnabas/deploy"


def test_generate_writes_them(tmp_path: Path) -> None:
    for name, artefact in ARTEFACTS.items():
        out = tmp_path / name
        done = run("generate", name, "--out", str(out))
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Next: {artefact.next_step}" in done.stdout
        for file in artefact.files:
            assert (out / Path(file).name).read_text() == (DEPLOY / file).read_text(encoding="utf-8")
    (tmp_path / "compose" / "compose.yml").write_text("mine")
    refused = run("generate", "compose", "--out", str(tmp_path / "compose"))
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert (tmp_path / "compose" / "compose.yml").read_text() == "mine"
    printed = run("generate", "compose", "--out", str(tmp_path / "compose"), "--stdout")
    assert printed.stdout == (DEPLOY / "compose" / "compose.yml").read_text(encoding="utf-8")
    assert run("generate", "compose", "--out", str(tmp_path / "compose"), "--force").returncode == 0
