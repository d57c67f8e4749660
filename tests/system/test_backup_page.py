"""docs/backup.md: its commands, in their order, do what it says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from barnabas import EmbeddedBroker

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "backup.md"
LIMIT_S: Final = 240.0


def commands() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run_page(script: str, directory: Path) -> None:
    """Runs commands as one bash script, which must succeed. None of its processes is left, whatever happens."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    programs = directory / "bin"
    programs.mkdir()
    program = programs / "barnabas"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas.cli.main "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join(one for one in sys.path if one)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    errors = directory / "errors.txt"
    # Into files: a broker that the script leaves behind would hold a pipe open.
    with (directory / "output.txt").open("wb") as out, errors.open("wb") as log:
        process = subprocess.Popen(
            [bash, "-euo", "pipefail", "-c", script],
            cwd=directory, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
        )  # fmt: skip
    try:
        process.wait(LIMIT_S)
    finally:
        if process.poll() != 0:
            # The session is the script's own, with the broker in it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, errors.read_text()


def values(file: Path) -> list[int]:
    return sorted(int(line) for line in file.read_text().split())


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    run_page("\n".join(commands()), tmp_path)
    assert len(values(tmp_path / "read.txt")) == 600
    everything = list(range(1, 1_001))
    assert values(tmp_path / "trial.txt") == everything
    assert values(tmp_path / "restored.txt") == everything
    # The group has its offsets of the time of the backup.
    described = (tmp_path / "output.txt").read_text()
    with EmbeddedBroker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")]).values()
        assert sum(one.offset for one in asked.result(60).topic_partitions) == 600
    assert described.count("billing") >= 2
