"""``kill -9`` in the middle of transactions, of the broker and of those who process: each record comes out once.

Processors read numbers from one topic and write them to another, in transactions which also have their positions in
them. They and the broker are killed at random moments and started again. In the end, whoever reads committed records
finds each number exactly once, and in order.

The random moments come from a seed, which a failure prints.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from benchmarks.broker_process import BrokerProcess
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.java.conftest import java_or_skip
from oracles.java_process import JavaProcess, client_jars
from system.committed_reader import CommittedReader
from system.steady_writer import SteadyWriter

WAIT_S = 60
SOURCE, TARGET, NAME = "numbers", "copies", "copier"
PARTITIONS = 2
INTERVAL_S = 0.003
VICTIMS: Sequence[Collection[str]] = [{"broker"}, {"processor"}, {"broker", "processor"}]
"""Each in turn, so that even three rounds have all of them."""
OVERRIDES: Mapping[str, object] = {
    # A killed member leaves its place for as long as its session lasts.
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
}


class Processor(Protocol):
    """A process that copies, until it is killed."""

    def spawn(self) -> None: ...
    def kill(self) -> None: ...


class ConfluentProcessor:
    """One that reads all partitions itself (:mod:`transaction_processor`)."""

    def __init__(self, bootstrap: str, output: Path) -> None:
        program = Path(__file__).with_name("transaction_processor.py")
        self._command = [sys.executable, str(program), bootstrap, SOURCE, TARGET, NAME]
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)


def confluent(bootstrap: str, directory: Path) -> list[Processor]:
    return [ConfluentProcessor(bootstrap, directory / "processor.log")]


def java(protocol: str, bootstrap: str, directory: Path) -> list[Processor]:
    """Two that share the partitions as members of a group (`tests/java/Copier.java`)."""
    with java_or_skip():
        return [
            JavaProcess(
                "Copier",
                client_jars(),
                [bootstrap, SOURCE, TARGET, NAME, f"{NAME}-{number}", protocol],
                directory / f"processor-{number}.log",
            )
            for number in range(2)
        ]


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1), NewTopic(TARGET, PARTITIONS, 1)])
    for future in made.values():
        future.result(WAIT_S)


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("rounds", [pytest.param(3, id="3"), pytest.param(30, id="30", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(confluent, id="confluent"),
        pytest.param(partial(java, "classic"), id="java-classic", marks=pytest.mark.java),
        pytest.param(partial(java, "consumer"), id="java-consumer", marks=pytest.mark.java),
    ],
)
def test_each_record_is_processed_once_whatever_is_killed(
    made: Callable[[str, Path], list[Processor]],
    rounds: int,
    tmp_path: Path,
    record_property: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    record_property("seed", seed)
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides=OVERRIDES)
    processors = made(broker.bootstrap_servers, tmp_path)
    copied: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with ExitStack() as stack:
        broker.start()
        stack.callback(broker.kill)
        for processor in processors:
            stack.callback(processor.kill)
            processor.spawn()
        make_topics(broker.bootstrap_servers)
        output = CommittedReader(
            broker.bootstrap_servers,
            TARGET,
            PARTITIONS,
            lambda partition, _key, number: copied[partition].append(int(number)),
        )
        stack.callback(output.close)
        writer = stack.enter_context(
            SteadyWriter(
                broker.bootstrap_servers, SOURCE, lambda number: (number % PARTITIONS, b"%d" % number), INTERVAL_S
            )
        )
        for number in range(rounds):
            output.read(output.total + 1)  # who has just been started is at work before it is killed again
            time.sleep(chance.uniform(0, 0.3))
            victims = VICTIMS[number % len(VICTIMS)]
            if "broker" in victims:
                broker.kill()
            if "processor" in victims:
                processor = chance.choice(processors)
                processor.kill()
                processor.spawn()
            if "broker" in victims:
                broker.start()
        total = writer.stop()
        output.read(total, to_the_end=True)
        for partition in range(PARTITIONS):
            assert copied[partition] == list(range(partition, total, PARTITIONS))
        assert "Traceback" not in broker.text()
