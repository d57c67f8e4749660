"""Importing must stay light: a command line tool or a worker of a pool pays for it each time."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "numpy", "pyspark", "pandas", "opentelemetry", "asyncio", "cramjam", "crc32c")


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=180)
    return set(done.stdout.split())


def test_nothing_heavy_comes_with_the_package() -> None:
    for statement in ("import barnabas", "import barnabas.protocol.api_keys", "import barnabas.records"):
        assert not modules_after(statement) & set(HEAVY), statement


def test_the_package_is_imported_within_60_ms() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import barnabas"],
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )
    (line,) = [line for line in done.stderr.splitlines() if line.rpartition("|")[2].strip() == "barnabas"]
    assert int(line.split("|")[1]) < 60_000


def test_messages_are_imported_when_they_are_asked_for() -> None:
    loaded = modules_after("from barnabas.protocol.api_keys import ApiKey\nApiKey.FETCH.request")
    assert "barnabas.protocol.messages.fetch" in loaded
    assert "barnabas.protocol.messages.produce" not in loaded
