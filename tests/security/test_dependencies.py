"""No pinned dependency is a version that is known to be vulnerable.

The table is the result of a search of advisories on 2026-11-17; ``pip-audit -r constraints.txt`` makes a new one where
its service can be reached. It lists what is in the extras ``security``, ``arrow`` and ``spark``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FIXED_IN: Final = {
    "cryptography": ("50.0.0", "CVE-2026-26007, CVE-2026-34073, CVE-2026-39892, CVE-2026-69247, CVE-2026-69248"),
    "pyjwt": ("2.13.0", "CVE-2026-32597 and CVE-2026-48522 to 48526, among them forged tokens"),
    "protobuf": ("6.33.5", "CVE-2026-0994: recursion in json_format, which is not used here"),
    "pyarrow": ("23.0.1", "CVE-2026-25087: use after free in the IPC file reader, not reachable from Python"),
}
"""The first version without the vulnerabilities, and which they are."""
EXTRA: Final = ("cryptography", "pyjwt")
"""Those whose lowest accepted version counts, because they handle what strangers send."""


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


@pytest.mark.mechanism("A12")
def test_pinned_versions_are_not_known_to_be_vulnerable() -> None:
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {name.lower(): text for name, text in pinned.items()}
    for name, (fixed, why) in FIXED_IN.items():
        assert version(pinned[name]) >= version(fixed), f"{name} {pinned[name]}: {why}"


@pytest.mark.mechanism("A12")
def test_the_security_extra_accepts_no_vulnerable_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    floors = {name.lower(): text for name, text in re.findall(r"([A-Za-z]+)>=([0-9.]+)", " ".join(extras["security"]))}
    for name in EXTRA:
        fixed, why = FIXED_IN[name]
        assert version(floors[name]) >= version(fixed), f"{name}>={floors[name]}: {why}"
