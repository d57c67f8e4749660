"""Output of commands that cannot be written: a full disk, a closed pipe."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.producer import KafkaProducer
from unit.cli.command_line import COMMAND, WAIT_S, environment

FULL = Path("/dev/full")
NO_SPACE = "error: cannot write to standard output: No space left on device\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides={"offsets.topic.num.partitions": "1"}) as started:
        with KafkaProducer(bootstrap_servers=started.bootstrap_servers) as producer:
            producer.send("topic", b"value").result(60)
        yield started


def outcome(output: int, broker: EmbeddedBroker | None, *arguments: str) -> tuple[int, str]:
    """Runs a command that writes to this descriptor; returns its exit code and its errors."""
    changes = {} if broker is None else {"BARNABAS_BOOTSTRAP": broker.bootstrap_servers}
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stderr


LOCAL = [("--version",), ("--help",), ("topics", "--help"), ("completion", "bash")]
REMOTE = [("topics", "list"), ("topics", "list", "--json"), ("consume", "topic", "--from-beginning", "-n", "1")]


def check_full_disk(broker: EmbeddedBroker | None, arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        assert outcome(full.fileno(), broker, *arguments) == (1, NO_SPACE)


def check_closed_pipe(broker: EmbeddedBroker | None, arguments: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert outcome(write_end, broker, *arguments) == (0, "")
    finally:
        os.close(write_end)


@pytest.mark.parametrize("arguments", LOCAL, ids=" ".join)
def test_a_full_disk_is_one_sentence(arguments: tuple[str, ...]) -> None:
    check_full_disk(None, arguments)


@pytest.mark.parametrize("arguments", REMOTE, ids=" ".join)
def test_a_full_disk_is_one_sentence_with_a_broker(broker: EmbeddedBroker, arguments: tuple[str, ...]) -> None:
    check_full_disk(broker, arguments)


@pytest.mark.parametrize("arguments", LOCAL, ids=" ".join)
def test_a_closed_pipe_is_quiet(arguments: tuple[str, ...]) -> None:
    check_closed_pipe(None, arguments)


@pytest.mark.parametrize("arguments", REMOTE, ids=" ".join)
def test_a_closed_pipe_is_quiet_with_a_broker(broker: EmbeddedBroker, arguments: tuple[str, ...]) -> None:
    check_closed_pipe(broker, arguments)


def test_a_full_error_stream_keeps_the_exit_code() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "topcs"], env=environment(), stdin=subprocess.DEVNULL, stderr=full, timeout=WAIT_S, check=False
        )
    assert done.returncode == 2
