"""docs/mechanisms.md tells the truth: each mechanism with a marked test is listed, with files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_list_is_complete_and_its_files_exist() -> None:
    marked = {
        mechanism
        for file in (ROOT / "tests").rglob("*.py")
        for arguments in re.findall(r"mechanism\(([^)]*)\)", file.read_text())
        for mechanism in re.findall(r"\"([A-Z]\d\d)\"", arguments)
    }
    listed = {}
    for line in (ROOT / "docs" / "mechanisms.md").read_text().splitlines():
        if row := re.match(r"\| ([A-Z]\d\d) \| .* \| (.*) \| (.*) \|$", line):
            listed[row[1]] = (re.findall(r"`([^`]+)`", row[2]), re.findall(r"`([^`]+)`", row[3]))
    assert set(listed) == marked
    for mechanism, (modules, tests) in listed.items():
        assert modules, mechanism
        assert tests, mechanism
        for module in modules:
            assert (ROOT / "src" / "barnabas" / module).exists(), (mechanism, module)
        for test in tests:
            assert mechanism in (ROOT / "tests" / test).read_text(), (mechanism, test)
