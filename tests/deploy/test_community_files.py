"""The files for contributors: forms that GitHub accepts, hooks that exist, a map that is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
FORMS: Final = {
    "bug.yml": "github-issue-forms",
    "feature.yml": "github-issue-forms",
    "config.yml": "github-issue-config",
}


@pytest.mark.parametrize("name", FORMS)
def test_issue_forms(name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{FORMS[name]}"]
    done = subprocess.run(
        [*command, str(ROOT / ".github" / "ISSUE_TEMPLATE" / name)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_are_those_of_make_check() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    for hook in repository["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude") in makefile


def test_the_map_has_every_directory_and_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")
    first = text.split("## The repository")[1].split("\n## ")[0]
    skipped = {"target", "build", "dist"}
    directories = {
        path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._" and path.name not in skipped
    }
    assert directories - {"src"} <= set(re.findall(r"\[(\w+)\]", first))
    for named in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (ROOT / named).exists(), named
    commands = set(re.findall(r"make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert commands <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
