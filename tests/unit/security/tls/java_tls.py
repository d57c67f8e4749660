"""Java beside the tests of TLS: `tests/java/TlsOracle.java`, and keytool."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles.java import OracleUnavailableError
from oracles.kafka_server import JARS
from oracles.line_program import LineProgram


def unavailable(reason: str) -> None:
    """Skips a test; in a CI run, which must not lose it that way, fails it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def java() -> Iterator[LineProgram]:
    jars = sorted(JARS.glob("*.jar"))
    try:
        if not jars:
            raise OracleUnavailableError("no Kafka server in target/server-jars (make jars)")
        program = LineProgram("TlsOracle", jars)
    except OracleUnavailableError as reason:
        unavailable(str(reason))
    else:
        try:
            yield program
        finally:
            program.close()


def keytool(*arguments: str | Path) -> None:
    program = shutil.which("keytool")
    if program is None:
        unavailable("no keytool on the PATH")
    else:
        subprocess.run(
            [program, *map(str, arguments)], check=True, capture_output=True, timeout=180, stdin=subprocess.DEVNULL
        )
