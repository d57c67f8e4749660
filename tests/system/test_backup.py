"""Backup and restore as docs/upgrading.md describes them: its commands are run, with a broker before and after."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.wire_client import WireClient

from unit.cli.command_line import broker

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "upgrading.md"


def commands() -> list[str]:
    """The blocks of the chapter: one for the backup, one to restore it."""
    chapter = PAGE.read_text(encoding="utf-8").split("\n## Back up and restore\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)


def write(data: Path, *values: bytes) -> tuple[str | None, list[bytes]]:
    """Starts a broker, writes records, stops it; returns the id of the cluster and all records."""
    with broker(data) as terminal, WireClient(terminal.bootstrap_servers) as client:
        if "orders" not in {topic.name for topic in client.metadata().topics}:
            client.create_topic("orders")
        for value in values:
            client.produce("orders", 0, value)
        found = client.metadata().cluster_id, client.fetch_all("orders", 0)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 0
    return found


def test_a_backup_brings_back_what_was_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    backup, restore = commands()
    cluster, _ = write(data, b"one", b"two")

    def run(script: str) -> None:
        env = {**os.environ, "DATA": str(data), "BACKUP": str(tmp_path / "backup")}
        subprocess.run(["bash", "-euc", script], env=env, check=True, timeout=60)

    run(backup)
    assert write(data, b"three") == (cluster, [b"one", b"two", b"three"])
    run(restore)
    assert write(data) == (cluster, [b"one", b"two"])
    assert (data.stat().st_mode & 0o777) == 0o700
