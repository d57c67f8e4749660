"""The commands in docs/cli.md print what it says there.

Each is run in a terminal, in their order, against a new broker. Names and numbers that are different each time are
replaced by others of the same length. ``BARNABAS_UPDATE_DOCS=1`` writes the page anew.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from unit.cli.command_line import WAIT_S, environment

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
PORT: Final = "19092"
IDS: Final = ("kT3pXo0zQZ2Jc5V7mWn1aA", "9mFvG2hTS0uYb4LqRe8wDg")
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_VOLATILE: Final = (
    (re.compile(r"connected in \d+\.\d ms"), "connected in 0.2 ms"),
    (
        re.compile(r"(ok|!!)  barnabas( +)([\d.]+), .*, Python [\d.]+(\n +->.*)?"),
        r"ok  barnabas\2\3, compiled, Python 3.11.7",
    ),
    (re.compile(r"(ok|!!)  java( +).*"), r"ok  java\2Java 17 (/usr/bin/java), for Spark"),
    (re.compile(r"\d+ partitions, all with a leader"), "50 partitions, all with a leader"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        overrides={
            "offsets.topic.num.partitions": "1",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ) as started:
        yield started


def on_screen(command: str, bin_dir: Path, bootstrap: str) -> str:
    """What a shell shows for a command, in a terminal of a hundred columns."""
    screen, tty = pty.openpty()
    env = environment(
        BARNABAS_BOOTSTRAP=bootstrap, COLUMNS="100", NO_COLOR="1", PATH=f"{bin_dir}{os.pathsep}{os.environ['PATH']}"
    )
    process = subprocess.Popen(
        ["bash", "-c", command], env=env, stdin=subprocess.DEVNULL, stdout=tty, stderr=tty, close_fds=True
    )
    os.close(tty)
    parts = []
    while True:
        try:
            part = os.read(screen, 65_536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(screen)
    process.wait(WAIT_S)
    text = _STYLE.sub("", b"".join(parts).decode()).replace("\r\n", "\n")
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join(lines).strip("\n")


def steady(text: str, broker: EmbeddedBroker) -> str:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        topics = admin.list_topics()
        found = [admin.describe_cluster().cluster_id, *(topic.topic_id for topic in topics.values())]
    for own, shown in zip(found, IDS, strict=False):
        text = text.replace(own, shown)
    port = broker.bootstrap_servers.rpartition(":")[2]
    assert len(port) == len(PORT)
    text = text.replace(port, PORT)
    for pattern, shown in _VOLATILE:
        text = pattern.sub(shown, text)
    return text


def test_the_page_shows_what_the_commands_print(broker: EmbeddedBroker, tmp_path: Path) -> None:
    shim = tmp_path / "barnabas"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas.cli.main "$@"\n')
    shim.chmod(0o755)
    page = PAGE.read_text(encoding="utf-8")

    def run_block(block: re.Match[str]) -> str:
        shown = []
        for line in block[1].splitlines():
            if line.startswith("$ "):
                output = on_screen(line[2:], tmp_path, broker.bootstrap_servers)
                shown += [line, *([steady(output, broker)] if output else [])]
        return "```console\n" + "\n".join(shown) + "\n```"

    now = _BLOCK.sub(run_block, page)
    if os.environ.get("BARNABAS_UPDATE_DOCS") == "1":
        PAGE.write_text(now, encoding="utf-8")
    assert now == page or os.environ.get("BARNABAS_UPDATE_DOCS") == "1", (
        "docs/cli.md is out of date; run this test with BARNABAS_UPDATE_DOCS=1"
    )
