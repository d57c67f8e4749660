"""Commands as a person at a terminal runs them: questions, colors, Ctrl-C."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.producer import KafkaProducer
from unit.cli.command_line import COMMAND, WAIT_S, Terminal, environment


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides={"offsets.topic.num.partitions": "1"}) as started:
        yield started


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("_", "-")
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([name])
    return name


def terminal(broker: EmbeddedBroker, *arguments: str) -> Terminal:
    """A command that finds the broker through the environment."""
    return Terminal(*arguments, env=environment(BARNABAS_BOOTSTRAP=broker.bootstrap_servers, COLUMNS="100"))


def test_deleting_asks_first(broker: EmbeddedBroker, topic: str) -> None:
    with terminal(broker, "topics", "delete", topic) as screen:
        screen.read_until(r"Delete \S+ with all records\? \[y/N\] ")
        screen.type_in("\n")
        screen.read_until("nothing was changed")
        assert screen.wait() == 1
    with terminal(broker, "topics", "delete", topic) as screen:
        screen.read_until(r"\[y/N\] ")
        screen.type_in("y\n")
        screen.read_until(f"{topic}: deleted")
        assert screen.wait() == 0


def test_errors_are_one_red_line(broker: EmbeddedBroker) -> None:
    with terminal(broker, "topics", "describe", "nothing-like-that") as screen:
        assert screen.wait() == 1
        assert screen.text == "\x1b[1;31merror:\x1b[0m topic nothing-like-that does not exist\n"
    with Terminal("topics", "list", "-b", "127.0.0.1:1") as screen:
        assert screen.wait() == 1
        assert "connection refused; nothing listens on that port (run barnabas doctor to find the cause)" in screen.text
        assert screen.text.count("\n") == 1


def test_doctor_has_colors(broker: EmbeddedBroker) -> None:
    with terminal(broker, "doctor") as screen:
        assert screen.wait() == 0
        assert "\x1b[32mok\x1b[0m  controller " in screen.text


def test_reading_ends_with_ctrl_c(broker: EmbeddedBroker, topic: str) -> None:
    with (
        terminal(broker, "consume", topic, "--from-beginning", "--group", topic) as screen,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send(topic, b"one").result(60)
        screen.read_until("one\n")
        producer.send(topic, b"two").result(60)
        screen.read_until("two\n")
        screen.interrupt()
        screen.read_until("2 records")
        assert screen.wait() == 0
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = admin.describe_groups([topic])[topic]
        assert not group.members, "it has left"
        assert {lag.lag for lag in admin.describe_group_lag(topic).values()} == {0}, "and committed"


def test_reading_ends_when_nobody_listens(broker: EmbeddedBroker, topic: str) -> None:
    """``barnabas consume ... | head -1``"""
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, "--from-beginning", "-b", broker.bootstrap_servers],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + WAIT_S
    try:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"first").result(60)
            assert select.select([process.stdout], [], [], WAIT_S)[0]
            assert os.read(process.stdout.fileno(), 100) == b"first\n"
            process.stdout.close()
            while process.poll() is None and time.monotonic() < deadline:
                producer.send(topic, b"more").result(60)
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == b""
    finally:
        process.stderr.close()
        if process.poll() is None:
            process.kill()
            process.wait()
